package nats

import (
	"runtime"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// blocked is a sink whose first message blocks until it is released.
type blocked struct {
	begun   chan struct{}
	release chan struct{}
}

func (s blocked) Deliver(driver.Message) bool { close(s.begun); <-s.release; return true }
func (blocked) Gap(int)                       {}
func (blocked) Load() int                     { return 0 }
func (blocked) Fail(error)                    {}

// A subscription that ends while the connection ends reports that messages may have
// been lost (S4), whoever notices the end of the connection first.
func TestEndThatMeetsTheEndOfTheConnectionIsNotConfirmed(t *testing.T) {
	for range 10 {
		func() {
			server := natstest.Start(t, natstest.Options{})
			b, err := OpenBus(t.Context(), Config{URL: server.URL()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close(t.Context()) }()
			s := blocked{make(chan struct{}), make(chan struct{})}
			r, err := b.Subscribe(t.Context(), driver.Subscription{Pattern: "n", Sink: s})
			if err != nil {
				t.Fatal(err)
			}
			// The goroutine that subscribes passes the gate after Subscribe has returned,
			// which a blocked sink would prevent. It ends another subscription afterwards.
			other, err := b.Subscribe(t.Context(), driver.Subscription{Pattern: "other", Sink: s})
			if err != nil {
				t.Fatal(err)
			}
			if err := other.End(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := b.Publish(t.Context(), driver.Message{Kind: driver.Event, Subject: "n"}); err != nil {
					t.Fatal(err)
				}
			}
			<-s.begun
			l, m := b.link.Load(), r.(*member)
			ended := make(chan error)
			go func() { ended <- r.End(t.Context()) }()
			var e *ending
			for ; e == nil; runtime.Gosched() {
				b.mu.Lock()
				e = m.end
				b.mu.Unlock()
			}
			<-e.done // End waits for the messages
			b.mu.Lock()
			l.closeSocket()
			<-l.over
			b.mu.Unlock()
			close(s.release)
			if err := <-ended; err == nil {
				t.Error("the end is confirmed, although a message is lost")
			}
		}()
	}
}
