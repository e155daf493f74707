package nats_test

import (
	"context"
	"encoding/binary"
	"testing"

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
// handed over. What is more than the bound is lost, and is reported at its place.
func TestMessagesThatWaitInTheClientAreBounded(t *testing.T) {
	const size, n = 4 << 10, 4000
	for name, group := range map[string]string{"each": "", "group": "g"} {
		t.Run(name, func(t *testing.T) {
			server := natstest.Start(t, natstest.Options{})
			d, err := nats.OpenBus(t.Context(), nats.Cramped(nats.Config{URL: server.URL()}, 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close(context.Background()) }()
			s := &stuck{release: make(chan struct{}), last: make(chan struct{}), t: t}
			if _, err := d.Subscribe(t.Context(), driver.Subscription{Pattern: "n", Group: group, Sink: s}); err != nil {
				t.Fatal(err)
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
