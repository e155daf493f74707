package bus_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
)

// observed records its events.
type observed struct {
	mu     sync.Mutex
	events []bus.Event
}

func (o *observed) Observe(e bus.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// of returns the events of one type.
func of[E bus.Event](o *observed) (all []E) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if e, ok := e.(E); ok {
			all = append(all, e)
		}
	}
	return all
}

func TestHandlerFailuresAreReportedAndIsolated(t *testing.T) {
	for name, opts := range map[string][]bus.SubOption{
		"serial":   {},
		"parallel": {bus.Concurrency(3)},
		"in lanes": {bus.Concurrency(3), bus.OrderBy(func(m *bus.Msg) string { return string(m.Data) })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o observed
				b := newBus(t, bus.Config{Observer: &o})
				failure := errors.New("no stock")
				s := subscribe(t, b, "a", func(_ context.Context, m *bus.Msg) error {
					switch string(m.Data) {
					case "1":
						return failure
					case "2":
						panic("out of paper")
					case "3":
						runtime.Goexit()
					case "4":
						panic(failure)
					}
					return nil
				}, append(opts, bus.Name("ledger"), bus.Group("g"))...)
				for range 20 {
					publishAll(t, b, "a", 0, 4)
				}
				synctest.Wait()
				failed := of[bus.HandlerFailed](&o)
				if st := s.Stats(); len(failed) != 80 || st.Failed != 80 || st.Panicked != 60 || st.Handled != 100 {
					t.Errorf("reported %d, stats are %+v", len(failed), st)
				}
				for _, f := range failed {
					checkFailure(t, f, failure)
				}
			})
		})
	}
}

func checkFailure(t *testing.T, f bus.HandlerFailed, failure error) {
	t.Helper()
	if f.Name != "ledger" || f.Pattern != "a" || f.Group != "g" || f.Msg.Subject != "a" || !strings.Contains(f.Site, "main_test.go:") {
		t.Errorf("told of %+v", f)
	}
	p, panicked := errors.AsType[*bus.PanicError](f.Err)
	switch string(f.Msg.Data) {
	case "1":
		if !errors.Is(f.Err, failure) || panicked {
			t.Errorf("an error is told as %v", f.Err)
		}
	case "2":
		if !panicked || p.Value != "out of paper" || !strings.Contains(string(p.Stack), "observer_test.go") {
			t.Errorf("a panic is told as %v", f.Err)
		}
	case "3":
		if !panicked || p.Value != nil {
			t.Errorf("a Goexit is told as %v", f.Err)
		}
	case "4":
		if !panicked || !errors.Is(f.Err, failure) {
			t.Errorf("a panic with an error is told as %v", f.Err)
		}
	}
}

func TestAnObserverThatHangsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var told atomic.Int64
		b := newBus(t, bus.Config{Observer: observer(func(bus.Event) {
			told.Add(1)
			<-hang
		})})
		s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return errors.New("no") })
		publishAll(t, b, "a", 1, 100)
		synctest.Wait()
		if st := s.Stats(); st.Handled != 100 || told.Load() != 1 {
			t.Errorf("reported %d, stats are %+v", told.Load(), st)
		}
		close(hang)
		synctest.Wait()
		if told.Load() != 100 {
			t.Errorf("reported %d", told.Load())
		}
	})
}

func TestEventsThatTheObserverIsTooSlowForAreCounted(t *testing.T) {
	hold := make(chan struct{})
	var told atomic.Int64
	b, r := newRemoteBus(t, bus.Config{Observer: observer(func(bus.Event) { <-hold; told.Add(1) })})
	const waiting, more = 1 << 16, 10
	r.front.Refused("a", bus.ErrRefused)
	for b.Stats().Unreported == 0 { // the observer has the first ones by then
		r.front.Refused("a", bus.ErrRefused)
	}
	for range more {
		r.front.Refused("a", bus.ErrRefused)
	}
	st := b.Stats()
	if reported := st.Refused - st.Unreported; st.Unreported != 1+more || reported <= waiting || reported > 2*waiting {
		t.Errorf("%d events, of which %d are not reported", st.Refused, st.Unreported)
	}
	close(hold)
	for want := int64(st.Refused - st.Unreported); told.Load() < want; {
		runtime.Gosched()
	}
	if err := b.Close(); err != nil || uint64(told.Load()) != st.Refused-st.Unreported {
		t.Errorf("the observer got %d of %d events: %v", told.Load(), st.Refused-st.Unreported, err)
	}
}

// observer is a function as an Observer.
type observer func(bus.Event)

func (o observer) Observe(e bus.Event) { o(e) }

func TestAnObserverMayUseTheBusAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bus.Bus
		b = newBus(t, bus.Config{Observer: observer(func(e bus.Event) {
			if f := e.(bus.HandlerFailed); f.Msg.Subject == "a" {
				publish(t, b, "failures", string(f.Msg.Data))
				panic("observer")
			}
		})})
		var l log
		subscribe(t, b, "failures", l.handler)
		subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return errors.New("no") })
		publishAll(t, b, "a", 1, 3)
		synctest.Wait()
		l.want(t, "1", "2", "3")
	})
}

func TestStuckHandlerIsReportedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o, StuckAfter: time.Second})
		release := make(chan struct{})
		subscribe(t, b, "a.*", func(_ context.Context, m *bus.Msg) error {
			if m.Subject == "a.stuck" {
				<-release
			} else {
				time.Sleep(900 * time.Millisecond)
			}
			return nil
		}, bus.Name("ledger"))
		for range 5 {
			publish(t, b, "a.slow", "")
		}
		time.Sleep(10 * time.Second)
		if told := of[bus.Stuck](&o); len(told) != 0 {
			t.Errorf("told of slow handlers: %+v", told)
		}
		publish(t, b, "a.stuck", "")
		time.Sleep(1300 * time.Millisecond)
		told := of[bus.Stuck](&o)
		if len(told) != 1 || told[0].Name != "ledger" || told[0].Subject != "a.stuck" || told[0].For < time.Second || !strings.Contains(told[0].Site, "main_test.go:") {
			t.Errorf("reported %+v", told)
		}
		time.Sleep(2 * time.Second)
		if told := of[bus.Stuck](&o); len(told) != 3 {
			t.Errorf("reported %d times in three seconds", len(told))
		}
		close(release)
		time.Sleep(10 * time.Second)
		if told := of[bus.Stuck](&o); len(told) != 3 {
			t.Errorf("told of a handler that has returned: %+v", told)
		}
	})
}

// Handlers that begin and return all the time do not put the report off.
func TestAStuckHandlerIsReportedBesideBusyOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o, StuckAfter: time.Second})
		release := make(chan struct{})
		subscribe(t, b, "stuck", func(context.Context, *bus.Msg) error { <-release; return nil })
		subscribe(t, b, "busy", ignore)
		publish(t, b, "stuck", "")
		for range 15 {
			publish(t, b, "busy", "")
			time.Sleep(100 * time.Millisecond)
		}
		if told := of[bus.Stuck](&o); len(told) != 1 || told[0].Subject != "stuck" {
			t.Errorf("reported %+v", told)
		}
		close(release)
	})
}

func TestAHandlerIsStuckAfterHalfAMinuteByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o})
		subscribe(t, b, "a", func(context.Context, *bus.Msg) error { time.Sleep(time.Minute); return nil })
		publish(t, b, "a", "")
		time.Sleep(40 * time.Second)
		if told := of[bus.Stuck](&o); len(told) != 1 || told[0].For < 30*time.Second {
			t.Errorf("reported %+v", told)
		}
		time.Sleep(time.Minute)
	})
}

func TestAHandlerThatChangesItsDataIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o, CheckData: true})
		own := errors.New("own")
		subscribe(t, b, "a", func(_ context.Context, m *bus.Msg) error { m.Data[0] = 'x'; return own })
		subscribe(t, b, "b", func(_ context.Context, m *bus.Msg) error { return own })
		subscribe(t, b, "c", ignore)
		for _, subject := range []string{"a", "b", "c"} {
			publish(t, b, subject, "data")
			synctest.Wait()
		}
		failed := of[bus.HandlerFailed](&o)
		if len(failed) != 2 || !errors.Is(failed[0].Err, own) || !strings.Contains(failed[0].Err.Error(), "changed the data") || failed[1].Err != own {
			t.Errorf("reported %+v", failed)
		}
	})
}
