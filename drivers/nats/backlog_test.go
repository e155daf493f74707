package nats_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// stuck is a sink that takes the first message when it is released, and
// counts.
type stuck struct {
	release       chan struct{}
	first         bool
	next          uint64 // the number of the next message
	taken, missed uint64
	last          chan struct{}
	t             *testing.T
}

func (s *stuck) Deliver(m driver.Message) bool {
	if !s.first {
		s.first = true
		<-s.release
	}
	n := binary.BigEndian.Uint64(m.Data)
	if n != s.next {
		s.t.Errorf("message %d follows, want %d: the gap is at another place", n, s.next)
	}
	s.next = n + 1
	s.taken++
	if len(m.Data) == 8 {
		close(s.last)
	}
	return true
}

func (s *stuck) Gap(lost int) {
	s.next += uint64(lost)
	s.missed += uint64(lost)
}

func (s *stuck) Load() int { return 0 }

func (s *stuck) Fail(err error) { s.t.Error(err) }

// The client has no bound of its own for messages that arrive faster than they are
// handed over. What is more than the bound is lost, and is reported at its place, in a
// group to one of its members.
func TestMessagesThatWaitInTheClientAreBounded(t *testing.T) {
	const size, n = 4 << 10, 4000
	for group, members := range map[string]int{"": 1, "g": 2} {
		t.Run(fmt.Sprintf("group %q", group), func(t *testing.T) {
			server := natstest.Start(t, natstest.Options{})
			d, err := nats.OpenBus(t.Context(), nats.Cramped(nats.Config{URL: server.URL()}, 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close(context.Background()) }()
			s := &stuck{release: make(chan struct{}), last: make(chan struct{}), t: t}
			for range members {
				if _, err := d.Subscribe(t.Context(), driver.Subscription{Pattern: "n", Group: group, Sink: s}); err != nil {
					t.Fatal(err)
				}
			}
			other := foreign(t, server.URL())
			data := make([]byte, size)
			for i := range uint64(n) {
				binary.BigEndian.PutUint64(data, i)
				if i == n-1 {
					data = data[:8]
				}
				if err := other.Publish("ev.n", data); err != nil {
					t.Fatal(err)
				}
			}
			if err := other.Flush(); err != nil {
				t.Fatal(err)
			}
			if err := d.Flush(t.Context()); err != nil { // the client has all of them
				t.Fatal(err)
			}
			close(s.release)
			<-s.last
			if s.taken+s.missed != n || s.taken > 1<<20/size+100 || s.missed == 0 {
				t.Errorf("%d messages taken and %d missed of %d", s.taken, s.missed, n)
			}
		})
	}
}

// shed is a sink that records how far its subscription has come.
type shed struct {
	mu    sync.Mutex // guards the fields below
	begun bool
	next  uint64 // the number after the last message that was taken or reported as lost
}

func (s *shed) Deliver(m driver.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.next = true, binary.BigEndian.Uint64(m.Data)+1
	return true
}

func (s *shed) Gap(lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		s.next += uint64(lost)
	}
}

func (s *shed) Load() int { return 0 }

func (s *shed) Fail(error) {}

func (s *shed) state() (begun bool, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun, s.next
}

// busySink is a sink that takes messages more slowly than they arrive.
type busySink struct{}

func (busySink) Deliver(driver.Message) bool { time.Sleep(100 * time.Microsecond); return true }
func (busySink) Gap(int)                     {}
func (busySink) Load() int                   { return 0 }
func (busySink) Fail(error)                  {}

// A message has to be followed by others to be lost, or nobody would report it.
func TestMessageThatWaitsAloneIsTaken(t *testing.T) {
	const n = 300 // more than from one look at the queue to the next
	server := natstest.Start(t, natstest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d, err := nats.OpenBus(ctx, nats.Cramped(nats.Config{URL: server.URL()}, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close(context.Background()) }()
	var s shed
	if _, err := d.Subscribe(ctx, driver.Subscription{Pattern: "n", Sink: &s}); err != nil {
		t.Fatal(err)
	}
	other := foreign(t, server.URL())
	for i := range uint64(n) {
		if err := other.Publish("ev.n", binary.BigEndian.AppendUint64(nil, i)); err != nil {
			t.Fatal(err)
		}
		await(t, func() bool { _, next := s.state(); return next > i })
	}
}

// A subscription that ends in order while others of its pattern stay learns of all
// messages before its end that were lost in the client (S4).
func TestSubscriptionThatEndsLearnsOfTheMessagesThatWereLostInTheClient(t *testing.T) {
	const rounds = 5
	server := natstest.Start(t, natstest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	d, err := nats.OpenBus(ctx, nats.Cramped(nats.Config{URL: server.URL()}, 16<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close(context.Background()) }()
	subscribe := func(s driver.Sink) driver.Registration {
		r, err := d.Subscribe(ctx, driver.Subscription{Pattern: "n", Sink: s})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	subscribe(busySink{}) // stays
	var sent atomic.Uint64
	over, flooded := make(chan struct{}), make(chan struct{})
	other := foreign(t, server.URL())
	go func() {
		defer close(flooded)
		for i := uint64(0); ; i++ {
			select {
			case <-over:
				return
			default:
			}
			if err := other.Publish("ev.n", binary.BigEndian.AppendUint64(nil, i)); err != nil {
				t.Error(err)
				return
			}
			if i%1000 == 0 && other.Flush() == nil {
				sent.Store(i + 1)
			}
		}
	}()
	for range rounds {
		var s shed
		r := subscribe(&s)
		await(t, func() bool { begun, _ := s.state(); return begun })
		before := sent.Load()
		if err := r.End(ctx); err != nil {
			t.Error(err)
		}
		if _, next := s.state(); next < before {
			t.Errorf("it knows of the messages before %d, want %d at least", next, before)
		}
	}
	close(over)
	<-flooded
}
