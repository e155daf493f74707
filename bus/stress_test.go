package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

// Everything at once, at random: at the end the numbers add up, and nothing is
// left.
func TestEverythingAtOnceAddsUp(t *testing.T) {
	var o observed
	b := newBus(t, bus.Config{Observer: &o, StuckAfter: time.Minute, CheckData: true})
	respond(t, b, "echo.>", func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil })
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range suite.Scaled(400) {
				oneOfMany(t, b)
			}
		})
	}
	workers.Wait()
	if err := b.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	st := b.Stats()
	if st.InFlight != 0 || len(st.Subs) != 0 || st.Unreported != 0 {
		t.Errorf("stats are %+v", st)
	}
	if failed := len(of[bus.HandlerFailed](&o)); uint64(failed) != st.Total.Failed {
		t.Errorf("told of %d failures of %d", failed, st.Total.Failed)
	}
	checkSum(t, st.Total)
}

// oneOfMany makes a subscription of some kind, uses it, and ends it somehow.
func oneOfMany(t *testing.T, b *bus.Bus) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opts := []bus.SubOption{
		bus.Concurrency(1 + rand.IntN(3)),
		bus.Buffer(1+rand.IntN(20), 1<<20),
		bus.Group([]string{"", "g", "h"}[rand.IntN(3)]),
		bus.OnFull([]bus.Policy{bus.DropNewest, bus.DropOldest}[rand.IntN(2)]),
	}
	if rand.IntN(2) == 0 {
		opts = append(opts, bus.OrderBy(func(m *bus.Msg) string { return m.Subject }))
	}
	s, err := b.Subscribe(ctx, []string{"a.*", "a.>", "a.1"}[rand.IntN(3)], disorderly(b), opts...)
	if err != nil {
		t.Error(err)
		return
	}
	for i := range 20 {
		publish(t, b, fmt.Sprint("a.", i%3), "data")
	}
	if _, err := b.Request(ctx, "echo.x", []byte("x")); err != nil && !isRemote(err, "bus.overloaded") {
		t.Error(err)
	}
	switch rand.IntN(3) {
	case 0:
		s.Stop()
	case 1:
		cancel()
	case 2:
		if err := s.Drain(ctx); err != nil {
			t.Error(err)
		}
	}
	<-s.Done()
}

// disorderly is a handler that does what handlers do, and what they should not.
func disorderly(b *bus.Bus) bus.Handler {
	return func(ctx context.Context, m *bus.Msg) error {
		switch rand.IntN(20) {
		case 0:
			return errors.New("no")
		case 1:
			panic("out of paper")
		case 2:
			runtime.Goexit()
		case 3:
			_, err := b.Request(ctx, "echo.y", m.Data)
			return err
		case 4:
			return b.Publish(ctx, "b."+m.Subject, m.Data, bus.Expires(time.Microsecond))
		case 5:
			runtime.Gosched()
		}
		return nil
	}
}

// The failures without a panic are a counter of the metrics.
func TestFailuresLessPanicsNeverDecrease(t *testing.T) {
	const messages = 20_000
	b := newBus(t, bus.Config{})
	s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { panic("ouch") }, bus.Concurrency(4), bus.Buffer(messages, 64<<20))
	for range messages {
		publish(t, b, "a", "")
	}
	for {
		now := s.Stats()
		if errs := now.Failed - now.Panicked; errs != 0 {
			t.Fatalf("%d errors, and all have panicked", int64(errs))
		}
		if now.Handled == messages {
			return
		}
	}
}
