package nats_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// taken is a sink that counts.
type taken struct {
	mu sync.Mutex
	n  int
}

func (s *taken) Deliver(driver.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return true
}

func (s *taken) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (*taken) Gap(int)    {}
func (*taken) Load() int  { return 0 }
func (*taken) Fail(error) {}

// A Drain of a subscription and one of its Bus end the registration at the same
// time. Neither of them may go on before its messages have arrived.
func TestASecondEndWaitsForTheMessages(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	d, err := nats.OpenBus(ctx, nats.Config{URL: proxy.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(ctx) })
	var got taken
	before := server.Subscriptions()
	r, err := d.Subscribe(ctx, driver.Subscription{Kind: driver.Event, Pattern: "a", Sink: &got})
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hold(natstest.ToClient)
	other := open(t, nats.Config{URL: server.URL()})
	publish(t, other, "a", "1")
	if err := other.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	first := make(chan int)
	go func() {
		if err := r.End(ctx); err != nil {
			t.Error(err)
		}
		first <- got.count()
	}()
	await(t, func() bool { return server.Subscriptions() == before })
	short, cancelShort := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancelShort()
	if err := r.End(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second End has returned %v, although a message is on its way", err)
	}
	proxy.Heal()
	if n := <-first; n != 1 {
		t.Errorf("%d messages have arrived with the first End, want 1", n)
	}
}

// stopped is a sink that takes nothing, and adds up the losses that it gets.
type stopped struct {
	busySink
	lost atomic.Int64
}

func (*stopped) Deliver(driver.Message) bool { return false }
func (s *stopped) Gap(n int)                 { s.lost.Add(int64(n)) }

// The events on their way to the last member of a group that has stopped are counted, also
// if the server does not confirm the end of its registration in time (S4).
func TestEventsForAGroupWithoutMembersAreCounted(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	proxy := natstest.StartProxy(t, server.URL())
	d, err := nats.OpenBus(t.Context(), nats.Config{URL: proxy.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	if err := d.Attach(struct{ driver.Front }{}); err != nil {
		t.Fatal(err)
	}
	var s stopped
	r, err := d.Subscribe(t.Context(), driver.Subscription{Kind: driver.Event, Pattern: "a", Group: "g", Sink: &s})
	if err != nil {
		t.Fatal(err)
	}
	proxy.Hold(natstest.ToClient)
	other := open(t, nats.Config{URL: server.URL()})
	for range 3 {
		publish(t, other, "a", "1")
	}
	if err := other.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.End(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("End returns %v", err)
	}
	proxy.Heal()
	await(t, func() bool { return s.lost.Load() == 3 })
}
