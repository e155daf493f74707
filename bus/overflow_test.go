package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
)

// gatedLog is a log whose handler waits to be let through.
type gatedLog struct {
	log
	gate chan struct{}
}

func newGatedLog() *gatedLog { return &gatedLog{gate: make(chan struct{})} }

func (l *gatedLog) handler(ctx context.Context, m *bus.Msg) error {
	<-l.gate
	text := string(m.Data)
	if m.Missed != 0 {
		text += fmt.Sprintf(" after %d", m.Missed)
	}
	l.add(text)
	return nil
}

func publishAll(tb testing.TB, b *bus.Bus, subject string, from, to int) {
	tb.Helper()
	for i := from; i <= to; i++ {
		publish(tb, b, subject, fmt.Sprint(i))
	}
}

func TestAFullBufferDropsTheNewest(t *testing.T) {
	for _, opts := range [][]bus.SubOption{
		{},
		{bus.OrderBy(func(*bus.Msg) string { return "" })},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			l := newGatedLog()
			s := subscribe(t, b, "a", l.handler, append(opts, bus.Buffer(3, 1<<20))...)
			publish(t, b, "a", "0")
			synctest.Wait() // it is being handled
			publishAll(t, b, "a", 1, 13)
			if st := s.Stats(); st.Dropped != 10 || st.Pending != 3 || st.Running != 1 {
				t.Errorf("stats are %+v", st)
			}
			close(l.gate)
			synctest.Wait()
			publishAll(t, b, "a", 14, 15)
			synctest.Wait()
			l.want(t, "0", "1", "2", "3", "14 after 10", "15")
			checkSum(t, s.Stats())
		})
	}
}

// Without Buffer, 65 536 messages wait for a handler, and 64 MiB (S10).
func TestBufferHas65536MessagesAnd64MiBByDefault(t *testing.T) {
	for name, c := range map[string]struct{ size, room int }{
		"messages": {0, 65_536},
		"bytes":    {1 << 20, 64},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				release := make(chan struct{})
				s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { <-release; return nil })
				publish(t, b, "a", "first")
				synctest.Wait() // it is being handled
				data := strings.Repeat("x", c.size)
				for range c.room {
					publish(t, b, "a", data)
				}
				if st := s.Stats(); st.Dropped != 0 || st.Pending != c.room {
					t.Errorf("%d messages wait, and %d were dropped, want room for %d", st.Pending, st.Dropped, c.room)
				}
				if publish(t, b, "a", "one more"); s.Stats().Dropped != 1 {
					t.Errorf("%d were dropped, want 1", s.Stats().Dropped)
				}
				close(release)
			})
		})
	}
}

func TestAFullBufferDropsTheOldest(t *testing.T) {
	for _, opts := range [][]bus.SubOption{
		{},
		{bus.OrderBy(func(*bus.Msg) string { return "" })},
		{bus.Concurrency(2), bus.OrderBy(func(*bus.Msg) string { return "" })},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			l := newGatedLog()
			s := subscribe(t, b, "a", l.handler, append(opts, bus.Buffer(3, 1<<20), bus.OnFull(bus.DropOldest))...)
			for i := range 14 {
				publish(t, b, "a", fmt.Sprint(i))
				// A message whose key is being computed is not dropped, so the key of
				// each is computed before the next one arrives.
				synctest.Wait()
			}
			close(l.gate)
			synctest.Wait()
			l.want(t, "0", "11 after 10", "12", "13")
			checkSum(t, s.Stats())
		})
	}
}

func TestASingleQueuedMessageIsDroppedAsTheOldest(t *testing.T) {
	for name, opts := range map[string][]bus.SubOption{
		"messages": {bus.Buffer(1, 1<<20)},
		"bytes":    {bus.Buffer(10, 1)},
		"in lanes": {bus.Buffer(1, 1<<20), bus.Concurrency(2), bus.OrderBy(func(*bus.Msg) string { return "" })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				l := newGatedLog()
				s := subscribe(t, b, "a", l.handler, append(opts, bus.OnFull(bus.DropOldest))...)
				for i := range 4 {
					publish(t, b, "a", fmt.Sprint(i))
					synctest.Wait()
				}
				if st := s.Stats(); st.Running != 1 || st.Pending != 1 {
					t.Errorf("stats are %+v", st)
				}
				close(l.gate)
				synctest.Wait()
				l.want(t, "0", "3 after 2")
			})
		})
	}
}

func TestAFullBufferEndsTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o})
		l := newGatedLog()
		s := subscribe(t, b, "a", l.handler, bus.Buffer(3, 1<<20), bus.OnFull(bus.Terminate), bus.Name("ledger"))
		publish(t, b, "a", "0")
		synctest.Wait()
		publishAll(t, b, "a", 1, 13)
		if !errors.Is(s.Err(), bus.ErrTerminated) {
			t.Errorf("it ended with %v", s.Err())
		}
		close(l.gate)
		<-s.Done()
		l.want(t, "0")
		checkSum(t, s.Stats())
		synctest.Wait()
		ended := of[bus.Ended](&o)
		if len(ended) != 1 || ended[0].Name != "ledger" || !errors.Is(ended[0].Err, bus.ErrTerminated) {
			t.Errorf("reported %+v", ended)
		}
	})
}

func TestABufferIsBoundedInBytesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		l := newGatedLog()
		s := subscribe(t, b, "a", l.handler, bus.Buffer(1000, 100))
		publish(t, b, "a", "0")
		synctest.Wait()
		publish(t, b, "a", strings.Repeat("x", 500)) // a single one always fits
		publish(t, b, "a", "dropped")
		close(l.gate)
		synctest.Wait()
		l.gate = make(chan struct{}) // nobody reads it: all is handled
		publish(t, b, "a", "held")
		synctest.Wait()
		for range 5 {
			publish(t, b, "a", strings.Repeat("x", 30), bus.Header("k", "1234"))
		}
		if st := s.Stats(); st.Dropped != 1+3 || st.Pending != 2 || st.PendingBytes != 70 {
			t.Errorf("stats are %+v", st)
		}
		close(l.gate)
		synctest.Wait()
		if st := s.Stats(); st.Pending != 0 || st.PendingBytes != 0 {
			t.Errorf("stats are %+v", st)
		}
		if got := l.all(); len(got) != 5 || !strings.HasPrefix(got[1], strings.Repeat("x", 500)) {
			t.Errorf("handled %.20q", got)
		}
	})
}

func TestMessagesThatWaitForTheirKeyFillTheBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		l := newGatedLog()
		s := subscribe(t, b, "a", l.handler, bus.Concurrency(2), bus.OrderBy(func(*bus.Msg) string { return "" }), bus.Buffer(10, 30))
		for range 6 {
			publish(t, b, "a", "0123456789")
			synctest.Wait() // it is in its lane
		}
		if st := s.Stats(); st.Dropped != 2 || st.Pending != 3 || st.PendingBytes != 30 {
			t.Errorf("stats are %+v", st)
		}
		close(l.gate)
	})
}

// Handled messages free their bytes, on every path through the queue.
func TestHandledMessagesFreeTheirBytes(t *testing.T) {
	byKey := bus.OrderBy(func(m *bus.Msg) string { return m.Subject })
	for name, opts := range map[string][]bus.SubOption{
		"serial":      {},
		"parallel":    {bus.Concurrency(2)},
		"in lanes":    {bus.Concurrency(2), byKey},
		"drop oldest": {bus.OnFull(bus.DropOldest)},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			s := subscribe(t, b, "a", ignore, append(opts, bus.Buffer(10, 20))...)
			for range 100 {
				publish(t, b, "a", "0123456789")
				synctest.Wait()
			}
			if st := s.Stats(); st.Handled != 100 || st.Pending != 0 || st.PendingBytes != 0 {
				t.Errorf("%s: stats are %+v", name, st)
			}
		})
	}
}

// A loss before a message without a key is reported with the next message.
func TestALossBeforeAMessageWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		l := newGatedLog()
		close(l.gate)
		subscribe(t, b, "a", l.handler, bus.OrderBy(func(m *bus.Msg) string {
			if len(m.Data) == 0 {
				panic("no key")
			}
			return ""
		}))
		r.sinks[0].Gap(3)
		publish(t, b, "a", "")
		publish(t, b, "a", "1")
		synctest.Wait()
		l.want(t, "1 after 3")
	})
}

// The runner takes what is queued in batches; how much room there is does not
// depend on it.
func TestRunningBatchCountsByItsRemainder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		step := make(chan struct{})
		s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { <-step; return nil }, bus.Buffer(10, 1<<20))
		publishAll(t, b, "a", 1, 11)
		synctest.Wait()
		publishAll(t, b, "a", 12, 20) // one is being handled, ten wait
		before := s.Stats().Dropped
		for i := range 10 {
			step <- struct{}{}
			synctest.Wait()
			publish(t, b, "a", "fits")
			if st := s.Stats(); st.Dropped != before || st.Pending != 10 {
				t.Fatalf("after %d: %+v, dropped %d before", i+1, st, before)
			}
		}
		publish(t, b, "a", "does not")
		if st := s.Stats(); st.Dropped != before+1 {
			t.Errorf("%+v", st)
		}
		close(step)
	})
}

func TestDropsAreReportedAtOnceAndThenOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o})
		l := newGatedLog()
		s := subscribe(t, b, "a.*", l.handler, bus.Buffer(1, 1<<20))
		publish(t, b, "a.0", "")
		synctest.Wait()
		publish(t, b, "a.0", "") // fills it
		publish(t, b, "a.first", "")
		synctest.Wait()
		for range 25 {
			publish(t, b, "a.x", "")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		var counts []uint64
		for _, d := range of[bus.Dropped](&o) {
			if d.Pattern != "a.*" || !strings.Contains(d.Site, "main_test.go:") {
				t.Errorf("reported %+v", d)
			}
			counts = append(counts, d.Count)
		}
		if len(counts) != 4 || counts[0] != 1 || sum(counts) != s.Stats().Dropped {
			t.Errorf("reported %v of %d", counts, s.Stats().Dropped)
		}
		publish(t, b, "a.later", "")
		synctest.Wait()
		if told := of[bus.Dropped](&o); len(told) != 5 || told[4].Subject != "a.later" {
			t.Errorf("reported %+v", told)
		}
		close(l.gate)
	})
}

func TestRemainingDropsAreReportedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o})
		l := newGatedLog()
		s := subscribe(t, b, "a", l.handler, bus.Buffer(1, 1<<20))
		publish(t, b, "a", "")
		synctest.Wait()
		publishAll(t, b, "a", 1, 9)
		s.Stop()
		synctest.Wait()
		var counts []uint64
		for _, d := range of[bus.Dropped](&o) {
			counts = append(counts, d.Count)
		}
		if sum(counts) != 8 {
			t.Errorf("reported %v, want 8 in all", counts)
		}
		close(l.gate)
	})
}

func sum(ns []uint64) (total uint64) {
	for _, n := range ns {
		total += n
	}
	return total
}

// checkSum checks what holds at rest.
func checkSum(t *testing.T, s bus.SubStats) {
	t.Helper()
	if s.Received != s.Handled+s.Dropped+s.Expired+s.Discarded || s.Pending+s.Running != 0 {
		t.Errorf("the numbers do not add up: %+v", s)
	}
}

func TestAStuckHandlerHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var healthy log
		l := newGatedLog()
		subscribe(t, b, "a", l.handler, bus.Buffer(10, 1<<20))
		subscribe(t, b, "a", healthy.handler)
		publishAll(t, b, "a", 1, 1000)
		synctest.Wait()
		if n := len(healthy.all()); n != 1000 {
			t.Errorf("the healthy one has %d of 1000", n)
		}
		close(l.gate)
	})
}

func TestExpiredMessagesAreNotHandled(t *testing.T) {
	for name, opts := range map[string][]bus.SubOption{
		"serial":   {},
		"parallel": {bus.Concurrency(2)},
		"in lanes": {bus.Concurrency(2), bus.OrderBy(func(*bus.Msg) string { return "" })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				l := newGatedLog()
				s := subscribe(t, b, "a", l.handler, opts...)
				publish(t, b, "a", "1")
				publish(t, b, "a", "2")
				synctest.Wait()
				publish(t, b, "a", "expires", bus.Expires(time.Second))
				publish(t, b, "a", "lasts", bus.Expires(time.Hour))
				time.Sleep(time.Second)
				close(l.gate)
				synctest.Wait()
				if got := slices.Sorted(slices.Values(l.all())); !slices.Equal(got, []string{"1", "2", "lasts"}) {
					t.Errorf("handled %q", got)
				}
				if st := s.Stats(); st.Expired != 1 {
					t.Errorf("stats are %+v", st)
				}
				checkSum(t, s.Stats())
			})
		})
	}
}

func TestExpiryIsTheHandlersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		start := time.Now()
		var err error
		var at time.Time
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			at, _ = ctx.Deadline()
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			<-inner.Done()
			err = inner.Err()
			return nil
		})
		publish(t, b, "a", "", bus.Expires(time.Minute))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !at.Equal(start.Add(time.Minute)) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the deadline was %v, the error %v", at.Sub(start), err)
		}
		if err := b.Publish(t.Context(), "a", nil, bus.Expires(0)); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("Expires(0): %v", err)
		}
	})
}

func TestTheEarlierDeadlineCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got []time.Duration
		if _, err := b.Subscribe(ctx, "a", func(ctx context.Context, _ *bus.Msg) error {
			at, _ := ctx.Deadline()
			got = append(got, at.Sub(start))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		publish(t, b, "a", "")
		publish(t, b, "a", "", bus.Expires(time.Hour))
		publish(t, b, "a", "", bus.Expires(time.Second))
		synctest.Wait()
		if want := []time.Duration{time.Minute, time.Minute, time.Second}; !slices.Equal(got, want) {
			t.Errorf("the deadlines are %v, want %v", got, want)
		}
	})
}

func TestTheContextOfADeadlineEndsWithItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		kept := make(chan context.Context, 1)
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			kept <- ctx
			if ctx.Done() == nil || ctx.Err() != nil {
				t.Error("it has no end, or has ended already")
			}
			return nil
		})
		publish(t, b, "a", "", bus.Expires(time.Hour))
		synctest.Wait()
		if err := (<-kept).Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("afterwards it is %v", err)
		}
	})
}

func TestAReportOfDropsNamesTheSubjectOfADroppedMessage(t *testing.T) {
	for _, opts := range [][]bus.SubOption{{}, {bus.OrderBy(func(m *bus.Msg) string { return m.Subject })}} {
		synctest.Test(t, func(t *testing.T) {
			var o observed
			b := newBus(t, bus.Config{Observer: &o})
			l := newGatedLog()
			subscribe(t, b, "a.*", l.handler, append(opts, bus.Buffer(1, 1<<20), bus.OnFull(bus.DropOldest))...)
			publish(t, b, "a.running", "")
			synctest.Wait()
			publish(t, b, "a.oldest", "")
			publish(t, b, "a.newest", "")
			synctest.Wait()
			if told := of[bus.Dropped](&o); len(told) != 1 || told[0].Subject != "a.oldest" || told[0].Count != 1 {
				t.Errorf("reported %+v", told)
			}
			close(l.gate)
		})
	}
}
