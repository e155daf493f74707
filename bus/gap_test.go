package bus_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
)

// A mark in the middle and the drops around it are one, also when the oldest
// messages are dropped.
func TestMarksMergeWhereTheMessagesBetweenAreDropped(t *testing.T) {
	ordered := []bus.SubOption{bus.Concurrency(2), bus.OrderBy(func(*bus.Msg) string { return "" })}
	for _, c := range []struct {
		opts   []bus.SubOption
		policy bus.Policy
		gap    int
		want   []string
	}{
		{nil, bus.DropNewest, 7, []string{"0", "1", "2 after 7", "3", "8 after 4"}},
		{nil, bus.DropOldest, 7, []string{"0", "5 after 11", "6", "7"}},
		{nil, bus.DropOldest, -1, []string{"0", "5 after -1", "6", "7"}},
		{ordered, bus.DropNewest, 7, []string{"0", "1", "2 after 7", "3", "8 after 4"}},
		{ordered, bus.DropOldest, 7, []string{"0", "5 after 11", "6", "7"}},
		{ordered, bus.DropOldest, -1, []string{"0", "5 after -1", "6", "7"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, r := newRemoteBus(t, bus.Config{})
			l := newGatedLog()
			subscribe(t, b, "a", l.handler, append(c.opts, bus.Buffer(3, 1<<20), bus.OnFull(c.policy))...)
			publish(t, b, "a", "0")
			synctest.Wait()
			publish(t, b, "a", "1")
			r.sinks[0].Gap(c.gap)
			for i := range 6 {
				publish(t, b, "a", fmt.Sprint(2+i))
				synctest.Wait() // OrderBy has placed it
			}
			close(l.gate)
			synctest.Wait()
			if c.policy == bus.DropNewest {
				publish(t, b, "a", "8")
				synctest.Wait()
			}
			l.want(t, c.want...)
		})
	}
}

// A failing OnGap is called after pauses that grow to a minute, and messages go
// on.
func TestTheBackOffOfOnGapGrowsToAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		var calls []time.Time
		var l log
		subscribe(t, b, "a", l.handler,
			bus.OnGap(func(context.Context, int) error {
				calls = append(calls, time.Now())
				return errors.New("the store is away")
			}))
		r.sinks[0].Gap(1)
		for i := range 3 {
			synctest.Wait()
			publish(t, b, "a", fmt.Sprint(i))
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		l.want(t, "0", "1", "2")
		pause := time.Second
		for i := 1; i < len(calls); i++ {
			d := calls[i].Sub(calls[i-1])
			if d < pause || d > min(pause*5/4, time.Minute) {
				t.Errorf("pause %d is %v, want %v and up to a quarter more", i, d, pause)
			}
			pause = min(2*pause, time.Minute)
		}
		if len(calls) < 12 || len(calls) > 16 {
			t.Errorf("%d calls in 10 minutes", len(calls))
		}
	})
}

// While the backend is away a gap of unknown size waits, a drop does not, and
// a Drain waits for neither.
func TestOnGapAndTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		var calls []int
		var l log
		s := subscribe(t, b, "a", l.handler,
			bus.OnGap(func(_ context.Context, n int) error { calls = append(calls, n); return nil }))
		want := func(when string, want ...int) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(calls, want) {
				t.Errorf("%s: called with %v, want %v", when, calls, want)
			}
		}
		r.front.Disconnected(errors.New("cut"))
		r.sinks[0].Gap(3)
		want("a known loss", 3)
		r.sinks[0].Gap(-1)
		publish(t, b, "a", "1")
		want("an outage", 3)
		l.want(t)
		r.front.Connected()
		want("connected", 3, -1)
		l.want(t, "1")
		r.front.Disconnected(errors.New("cut"))
		r.sinks[0].Gap(-1)
		publish(t, b, "a", "2")
		synctest.Wait()
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		want("draining", 3, -1, -1)
		l.want(t, "1", "2")
	})
}

// Every end of a subscription is legal while OnGap runs, and in it.
func TestASubscriptionEndsInOnGap(t *testing.T) {
	for name, end := range map[string]func(context.Context, *bus.Sub) error{
		"stop":  func(_ context.Context, s *bus.Sub) error { s.Stop(); return nil },
		"drain": func(ctx context.Context, s *bus.Sub) error { return s.Drain(ctx) },
		"fail":  func(_ context.Context, s *bus.Sub) error { s.Stop(); return errors.New("no") },
		"panic": func(_ context.Context, s *bus.Sub) error { s.Stop(); panic("no") },
		"message": func(ctx context.Context, s *bus.Sub) error {
			defer s.Stop()
			if _, ok := bus.MsgFrom(ctx); ok {
				return errors.New("there is a message")
			}
			return ctx.Err()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var o observed
			b, r := newRemoteBus(t, bus.Config{Observer: &o})
			subs := make(chan *bus.Sub, 1)
			s := subscribe(t, b, "a", ignore, bus.OnGap(func(ctx context.Context, _ int) error { return end(ctx, <-subs) }))
			subs <- s
			r.sinks[0].Gap(-1)
			synctest.Wait()
			select {
			case <-s.Done():
			default:
				t.Errorf("%s: the subscription has not ended", name)
			}
			failed := of[bus.GapFailed](&o)
			if wants := name == "fail" || name == "panic"; wants != (len(failed) == 1) || wants && failed[0].Again != 0 {
				t.Errorf("%s: reported %+v", name, failed)
			}
			time.Sleep(time.Hour)
		})
	}
}

// An OnGap that ends its goroutine has failed, and the subscription goes on.
func TestAnOnGapThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		calls := 0
		var l log
		subscribe(t, b, "a", l.handler,
			bus.OnGap(func(context.Context, int) error {
				if calls++; calls == 1 {
					runtime.Goexit()
				}
				return nil
			}))
		r.sinks[0].Gap(-1)
		publish(t, b, "a", "1")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		l.want(t, "1")
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
}

// A responder's OnGap is no handler of a request.
func TestOnGapOfAResponder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		respond(t, b, "b", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("state"), nil })
		var l log
		respond(t, b, "*", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil }, bus.OnGap(func(ctx context.Context, _ int) error {
			if err := bus.ReplyHeader(ctx, "k", "v"); !errors.Is(err, bus.ErrInvalid) {
				t.Errorf("reply header: %v", err)
			}
			m, err := b.Request(ctx, "b", nil)
			if err == nil {
				l.add(string(m.Data))
			}
			return err
		}))
		r.sinks[1].Gap(1)
		synctest.Wait()
		l.want(t, "state")
	})
}

// A handler that has ended its goroutine does not count as one that runs, or
// twice as one that has returned.
func TestOnGapWaitsForHandlersAfterOneThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		var l log
		hold := make(chan struct{})
		subscribe(t, b, "a", func(ctx context.Context, m *bus.Msg) error {
			if string(m.Data) == "1" {
				runtime.Goexit()
			}
			<-hold
			return l.handler(ctx, m)
		}, bus.Concurrency(2), bus.OnGap(func(context.Context, int) error { l.add("gap"); return nil }))
		publish(t, b, "a", "1")
		synctest.Wait()
		publish(t, b, "a", "2")
		r.sinks[0].Gap(1)
		synctest.Wait()
		close(hold)
		synctest.Wait()
		l.want(t, "2", "gap")
	})
}

func TestAnOnGapThatHangsIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b, r := newRemoteBus(t, bus.Config{Observer: &o, StuckAfter: time.Second})
		hold := make(chan struct{})
		subscribe(t, b, "a.*", ignore, bus.OnGap(func(context.Context, int) error { <-hold; return nil }))
		r.sinks[0].Gap(1)
		time.Sleep(1500 * time.Millisecond)
		if told := of[bus.Stuck](&o); len(told) != 1 || told[0].Subject != "a.*" {
			t.Errorf("reported %+v", told)
		}
		close(hold)
	})
}

// A key that cannot be computed in front of a mark does not hide the mark.
func TestAGapBehindAMessageWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		var calls []int
		hold := make(chan struct{})
		subscribe(t, b, "a", ignore, bus.Concurrency(2), bus.OnGap(func(_ context.Context, n int) error { calls = append(calls, n); return nil }),
			bus.OrderBy(func(*bus.Msg) string { <-hold; panic("no key") }))
		publish(t, b, "a", "1")
		synctest.Wait()
		r.sinks[0].Gap(5)
		synctest.Wait()
		close(hold)
		synctest.Wait()
		if !slices.Equal(calls, []int{5}) {
			t.Errorf("called with %v", calls)
		}
	})
}
func ignore(context.Context, *bus.Msg) error { return nil }

// early is a driver that delivers a message before its Subscribe has returned.
type early struct{ driver.Driver }

func (d early) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	r, err := d.Driver.Subscribe(ctx, s)
	s.Sink.Deliver(driver.Message{Kind: s.Kind, Subject: s.Pattern, Data: []byte("1")})
	time.Sleep(time.Second)
	return r, err
}

// The gap of AfterGap is before the first message, also before one that comes while
// the subscription is being made.
func TestTheRepairOfAReplacedSubscriptionPrecedesItsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := busOn(t, early{memoryBus()}, bus.Config{})
		var l log
		subscribe(t, b, "a", l.handler, bus.AfterGap(), bus.OnGap(func(_ context.Context, missed int) error {
			l.add(fmt.Sprint("gap ", missed))
			return nil
		}))
		publish(t, b, "a", "2")
		synctest.Wait()
		l.want(t, "gap -1", "1", "2")
	})
}

// The end of a drained subscription is final: nothing ends it once more, and OnGap, which has
// failed and would be called again, is not called any more (S8).
func TestNothingHappensAfterADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b, r := newRemoteBus(t, bus.Config{Observer: &o})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := 0
		s, err := b.Subscribe(ctx, "a", ignore, bus.OnGap(func(context.Context, int) error {
			calls++
			return errors.New("the store is away")
		}))
		if err != nil {
			t.Fatal(err)
		}
		r.sinks[0].Gap(1)
		synctest.Wait()
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := calls
		for _, end := range []func(){
			s.Stop,
			func() { r.sinks[0].Fail(errors.New("permission withdrawn")) },
			cancel,
			func() { r.sinks[0].Gap(-1) },
			func() { time.Sleep(time.Hour) },
		} {
			end()
			synctest.Wait()
			if err := errors.Join(s.Drain(t.Context()), s.Err()); err != nil {
				t.Error(err)
			}
		}
		if ended := of[bus.Ended](&o); before != 1 || calls != before || r.ends != 1 || len(ended) != 0 {
			t.Errorf("OnGap is called %d times before the end and %d after it; the registration has ended %d times, reported %+v", before, calls-before, r.ends, ended)
		}
	})
}

// What a subscription has lost until its end may be known later. It counts in the numbers of
// the Bus, and the observer gets it (S4).
func TestLossThatIsKnownAfterTheEndOfASubscriptionIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b, r := newRemoteBus(t, bus.Config{Observer: &o})
		var l log
		s := subscribe(t, b, "a", l.handler)
		r.sinks[0].Gap(1)
		synctest.Wait()
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.sinks[0].Gap(5)
		r.sinks[0].Gap(-1)
		synctest.Wait()
		st := b.Stats()
		if n := len(st.Subs); n > 0 || st.Total.Missed != 6 || st.Total.Gaps != 1 {
			t.Errorf("%d subscriptions; in all %d messages and %d gaps, want 6 and 1", n, st.Total.Missed, st.Total.Gaps)
		}
		lost := 0
		for _, m := range of[bus.Missed](&o) {
			lost += m.Count
		}
		if lost != 1+5-1 {
			t.Errorf("the observer has counted %d, want 5", lost)
		}
		publish(t, b, "a", "x")
		synctest.Wait()
		l.want(t) // no handler has started after the end
	})
}
