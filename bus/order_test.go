package bus_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

func TestOneAfterTheOtherIsHandledInOrder(t *testing.T) {
	b := newBus(t, bus.Config{})
	var last atomic.Int64
	s := subscribe(t, b, "a.*", func(_ context.Context, m *bus.Msg) error {
		n, err := strconv.ParseInt(string(m.Data), 10, 64)
		if err != nil || !last.CompareAndSwap(n-1, n) {
			t.Errorf("%s came after %d", m.Data, last.Load())
		}
		return err
	}, bus.Buffer(bus.MaxBuffer, 1<<40-1))
	n := suite.Scaled(200_000)
	for i := range n {
		publish(t, b, "a."+strconv.Itoa(i%7), strconv.Itoa(i+1))
	}
	if err := s.Drain(t.Context()); err != nil || last.Load() != int64(n) {
		t.Errorf("handled %d of %d: %v", last.Load(), n, err)
	}
}

func TestEachPublishersMessagesStayInOrder(t *testing.T) {
	b := newBus(t, bus.Config{})
	const publishers = 16
	last := make([]int, publishers)
	s := subscribe(t, b, "a.*", func(_ context.Context, m *bus.Msg) error {
		p, err := strconv.Atoi(strings.TrimPrefix(m.Subject, "a."))
		if err != nil {
			return err
		}
		if n, _ := strconv.Atoi(string(m.Data)); n != last[p]+1 {
			t.Errorf("publisher %d: %d after %d", p, n, last[p])
		}
		last[p]++
		return nil
	}, bus.Buffer(bus.MaxBuffer, 1<<40-1))
	n := suite.Scaled(10_000)
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() { publishAll(t, b, fmt.Sprint("a.", p), 1, n) })
	}
	all.Wait()
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	for p, n2 := range last {
		if n2 != n {
			t.Errorf("publisher %d: %d of %d", p, n2, n)
		}
	}
}

func TestConcurrencyIsTheConfiguredNumber(t *testing.T) {
	for name, opt := range map[string]bus.SubOption{"parallel": {}, "in lanes": bus.OrderBy(func(m *bus.Msg) string { return string(m.Data) })} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				var running, most atomic.Int64
				s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error {
					n := running.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Second)
					running.Add(-1)
					return nil
				}, bus.Concurrency(7), opt)
				start := time.Now()
				publishAll(t, b, "a", 1, 70)
				if err := s.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				if most.Load() != 7 || time.Since(start) != 10*time.Second {
					t.Errorf("at most %d at once, in %v", most.Load(), time.Since(start))
				}
			})
		})
	}
}

func TestOrderByKeepsTheOrderOfAKey(t *testing.T) {
	b := newBus(t, bus.Config{})
	const keys = 100
	var mu sync.Mutex
	last, busy := map[string]int{}, map[string]bool{}
	s := subscribe(t, b, "a.*", func(_ context.Context, m *bus.Msg) error {
		n, _ := strconv.Atoi(string(m.Data))
		mu.Lock()
		if busy[m.Subject] || n != last[m.Subject]+1 {
			t.Errorf("%s: %d after %d, while another is handled: %v", m.Subject, n, last[m.Subject], busy[m.Subject])
		}
		last[m.Subject], busy[m.Subject] = n, true
		mu.Unlock()
		for range rand.IntN(3) {
			runtime.Gosched()
		}
		mu.Lock()
		busy[m.Subject] = false
		mu.Unlock()
		return nil
	}, bus.Concurrency(16), bus.OrderBy(func(m *bus.Msg) string {
		if rand.IntN(2) == 0 {
			runtime.Gosched()
		}
		return m.Subject
	}), bus.Buffer(bus.MaxBuffer, 1<<40-1))
	n := suite.Scaled(500)
	for i := range n {
		for k := range keys {
			publish(t, b, fmt.Sprint("a.", k), strconv.Itoa(i+1))
		}
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	checkSum(t, s.Stats())
	if len(last) != keys {
		t.Errorf("%d keys of %d", len(last), keys)
	}
}

func TestAStuckKeyHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var l log
		stuck := make(chan struct{})
		s := subscribe(t, b, "a.*", func(ctx context.Context, m *bus.Msg) error {
			if m.Subject == "a.stuck" {
				<-stuck
			}
			return l.handler(ctx, m)
		}, bus.Concurrency(2), bus.OrderBy(func(m *bus.Msg) string { return m.Subject }))
		for i := range 100 {
			publish(t, b, "a.stuck", fmt.Sprint("stuck ", i))
			publish(t, b, fmt.Sprint("a.", i), "x")
		}
		synctest.Wait()
		if n := len(l.all()); n != 100 || s.Stats().Pending != 99 {
			t.Errorf("%d of 100 others were handled; %+v", n, s.Stats())
		}
		close(stuck)
		synctest.Wait()
		checkSum(t, s.Stats())
	})
}

func TestTheOldestOfAllKeysIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		l := newGatedLog()
		s := subscribe(t, b, "a.*", l.handler, bus.Concurrency(3), bus.Buffer(4, 1<<20), bus.OnFull(bus.DropOldest),
			bus.OrderBy(func(m *bus.Msg) string { return m.Subject }))
		for i := range 12 {
			publish(t, b, fmt.Sprint("a.", i%2), strconv.Itoa(i))
			synctest.Wait() // it is in its lane, behind one that is being handled
		}
		close(l.gate)
		synctest.Wait()
		got := " " + strings.Join(l.all(), " ")
		for _, data := range []string{"8", "9", "10", "11"} {
			if !strings.Contains(got, " "+data) {
				t.Errorf("%s is missing: %q", data, got)
			}
		}
		if st := s.Stats(); st.Dropped != 6 || st.Handled != 6 {
			t.Errorf("stats are %+v", st)
		}
		checkSum(t, s.Stats())
	})
}

func TestOrderByThatFailsCostsItsMessageAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o})
		var l log
		s := subscribe(t, b, "a", l.handler, bus.Concurrency(3), bus.OrderBy(func(m *bus.Msg) string {
			switch string(m.Data) {
			case "2":
				panic("no key")
			case "4":
				runtime.Goexit()
			}
			return "k"
		}))
		for range 10 {
			publishAll(t, b, "a", 1, 5)
		}
		synctest.Wait()
		if st := s.Stats(); len(l.all()) != 30 || st.Panicked != 20 || len(of[bus.HandlerFailed](&o)) != 20 {
			t.Errorf("handled %d, %+v", len(l.all()), st)
		}
		checkSum(t, s.Stats())
	})
}

func TestMembersOfAGroupShareTheMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var mu sync.Mutex
		seen := map[string]int{}
		members := make([]*bus.Sub, 4)
		for i := range members {
			members[i] = subscribe(t, b, "a.*", func(_ context.Context, m *bus.Msg) error {
				mu.Lock()
				defer mu.Unlock()
				seen[string(m.Data)]++
				return nil
			}, bus.Group("workers"))
		}
		var plain, other, elsewhere log
		subscribe(t, b, "a.*", plain.handler)
		subscribe(t, b, "a.*", other.handler, bus.Group("other"))
		subscribe(t, b, "a.>", elsewhere.handler, bus.Group("workers")) // another pattern, another group
		const n = 2000
		publishAll(t, b, "a.b", 1, n)
		synctest.Wait()
		for data, times := range seen {
			if times != 1 {
				t.Errorf("%s was handled %d times", data, times)
			}
		}
		if len(seen) != n || len(plain.all()) != n || len(other.all()) != n || len(elsewhere.all()) != n {
			t.Errorf("the group has %d of %d, the others %d, %d, %d", len(seen), n, len(plain.all()), len(other.all()), len(elsewhere.all()))
		}
		for i, s := range members {
			if got := s.Stats().Handled; got < n/16 {
				t.Errorf("member %d has %d of %d", i, got, n)
			}
		}
	})
}

func TestNothingIsLostWhenMembersDrain(t *testing.T) {
	b := newBus(t, bus.Config{})
	var handled atomic.Int64
	join := func() *bus.Sub {
		return subscribe(t, b, "a", func(context.Context, *bus.Msg) error { handled.Add(1); return nil },
			bus.Group("workers"), bus.Buffer(bus.MaxBuffer, 1<<40-1))
	}
	join()
	n := suite.Scaled(50_000)
	var publisher sync.WaitGroup
	publisher.Go(func() { publishAll(t, b, "a", 1, n) })
	for range suite.Scaled(200) {
		if err := join().Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}
	publisher.Wait()
	if err := b.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if got := handled.Load(); got != int64(n) {
		t.Errorf("handled %d of %d", got, n)
	}
}

func TestGroupPrefersTheLessBusyMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		l := newGatedLog()
		var healthy log
		stuck := subscribe(t, b, "a", l.handler, bus.Group("g"))
		subscribe(t, b, "a", healthy.handler, bus.Group("g"))
		for i := range 100 {
			publish(t, b, "a", fmt.Sprint(i))
			synctest.Wait()
		}
		if got := stuck.Stats().Received; got > 10 {
			t.Errorf("the stuck member got %d of 100", got)
		}
		close(l.gate)
	})
}

// A runner that was idle takes one of several messages; the others get runners
// of their own.
func TestABurstIsSharedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		hold := make(chan struct{})
		s := subscribe(t, b, "a.*", func(_ context.Context, m *bus.Msg) error {
			if m.Subject == "a.slow" {
				<-hold
			}
			return nil
		}, bus.Concurrency(4))
		for n := range suite.Scaled(500) {
			publish(t, b, "a.quick", "")
			for s.Stats().Handled == uint64(5*n) { // until it is idle
				runtime.Gosched()
			}
			for range 4 {
				publish(t, b, "a.slow", "")
			}
			synctest.Wait()
			if st := s.Stats(); st.Running != 4 || st.Pending != 0 {
				t.Fatalf("%d run and %d wait", st.Running, st.Pending)
			}
			for range 4 {
				hold <- struct{}{}
			}
			synctest.Wait()
		}
	})
}

// The keys are found out one after the other, or the order would be lost.
func TestOneRunnerAtATimeFindsOutKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var l log
		busy, key := make(chan struct{}), make(chan struct{})
		subscribe(t, b, "a.*", func(ctx context.Context, m *bus.Msg) error {
			if m.Subject == "a.busy" {
				<-busy
			}
			return l.handler(ctx, m)
		}, bus.Concurrency(2), bus.OrderBy(func(m *bus.Msg) string {
			if string(m.Data) == "1" {
				<-key
			}
			return m.Subject
		}))
		publish(t, b, "a.busy", "0")
		synctest.Wait()
		publish(t, b, "a.x", "1")
		synctest.Wait()
		publish(t, b, "a.x", "2")
		close(busy) // its runner looks for work, and finds the key of 1 unknown
		synctest.Wait()
		l.want(t, "0")
		close(key)
		synctest.Wait()
		l.want(t, "0", "1", "2")
	})
}
