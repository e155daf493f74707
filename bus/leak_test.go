package bus_test

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestSubscriptionsAndRequestsLeaveNothing(t *testing.T) {
	b := newBus(t, bus.Config{})
	respond(t, b, "echo", func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil })
	round := func(n int) {
		for i := range n {
			ctx, cancel := context.WithCancel(t.Context()) // as of a request
			s, err := b.Subscribe(ctx, "a.>", func(context.Context, *bus.Msg) error { return nil }, bus.Concurrency(1+i%2))
			if err != nil {
				t.Fatal(err)
			}
			publish(t, b, "a.b", "data", bus.Header("k", "v"))
			if _, err := b.Request(ctx, "echo", nil); err != nil {
				t.Fatal(err)
			}
			cancel()
			<-s.Done()
		}
	}
	round(100)
	before, goroutines := heap(), suite.Goroutines(0)
	round(suite.Scaled(20_000))
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if n := suite.Goroutines(goroutines + 3); n > goroutines+3 { // a runner may be about to end
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if st := b.Stats(); len(st.Subs) != 1 || st.InFlight != 0 {
		t.Errorf("stats are %+v", st)
	}
}

func TestIdleSubscriptionsHaveNoGoroutine(t *testing.T) {
	b := newBus(t, bus.Config{})
	before := runtime.NumGoroutine()
	var l log
	subs := make([]*bus.Sub, suite.Scaled(1000))
	for i := range subs {
		subs[i] = subscribe(t, b, "a", l.handler)
	}
	publish(t, b, "a", "")
	for _, s := range subs {
		for s.Stats().Handled == 0 || s.Stats().Running > 0 {
			runtime.Gosched()
		}
	}
	for runtime.NumGoroutine() > before { // ends by the test's timeout, or because they do
		runtime.Gosched()
	}
}

func TestKeysLeaveNothing(t *testing.T) {
	b := newBus(t, bus.Config{})
	s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return nil }, bus.Concurrency(4),
		bus.OrderBy(func(m *bus.Msg) string { return strings.Repeat(string(m.Data), 100) }))
	round := func(n int) {
		for i := range n {
			publish(t, b, "a", strconv.Itoa(i))
			for s.Stats().Pending > 1000 {
				runtime.Gosched()
			}
		}
		for s.Stats().Handled != s.Stats().Received {
			runtime.Gosched()
		}
	}
	round(100)
	before := heap()
	round(max(suite.Scaled(20_000), 5000)) // fewer would not show
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}
