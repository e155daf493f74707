package limit_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// Calls that share a context give up together: one of them has the ticket, which
// it leaves to another one that is about to give up, too.
func TestCallsThatGiveUpTogetherLeaveNoTicket(t *testing.T) {
	for range 50 {
		inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
			m := rates(limit.PerMinute(1))
			allow(t, l, m)
			ctx, cancel := context.WithCancel(t.Context())
			var calls sync.WaitGroup
			for range 8 {
				calls.Go(func() {
					if _, err := l.Wait(ctx, "k", m); !errors.Is(err, context.Canceled) {
						t.Errorf("got %v", err)
					}
				})
			}
			synctest.Wait()
			cancel()
			calls.Wait()
			if s, err := l.Inspect(t.Context(), "k"); err != nil || len(s.Waiters) > 0 {
				t.Fatalf("%+v, %v", s, err)
			}
		})
	}
}

// A call that panics, or ends its goroutine, leaves its place in the queue, its
// ticket and its slot.
func TestACallThatDoesNotReturnLeavesItsPlace(t *testing.T) {
	for name, end := range map[string]func(){"a panic": func() { panic("no identity") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locker, err := lock.New(memory.NewLock(), lock.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = locker.Close(t.Context()) }()
				fails := true
				l := open(t, memory.NewLimit(), limit.Config{Locker: locker, Identify: func(context.Context, *limit.Holder) {
					if fails {
						fails = false
						end()
					}
				}})
				m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(10)}, Concurrent: 1}
				var call sync.WaitGroup
				call.Go(func() {
					defer func() { _ = recover() }()
					_, _ = l.Wait(t.Context(), "k", m)
				})
				call.Wait()
				p, err := l.Wait(t.Context(), "k", m, limit.MaxWait(time.Second))
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Cancel(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestARoundTripThatPanicsGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := openWithSlots(t)
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(10)}, Concurrent: 1}
		base := tripper(func(*http.Request) (*http.Response, error) { panic("no header") })
		transport := limit.Transport(l, base, func(*http.Request) string { return "k" }, m)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://partner/", nil)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = transport.RoundTrip(r)
		}()
		p, err := l.Wait(t.Context(), "k", m, limit.MaxWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Cancel(t.Context())
	})
}

// kept is a driver at a backend that other processes use, too.
type kept struct{ *remote }

func (kept) Close(context.Context) error { return nil }

// A Limiter that closes withdraws the tickets of its calls: other processes would wait
// for them. W7
func TestCloseLeavesNoTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		l := open(t, kept{r}, limit.Config{})
		m := rates(limit.PerHour(1))
		wait(t, l, m)
		var waiter sync.WaitGroup
		waiter.Go(func() {
			if _, err := l.Wait(t.Context(), "k", m); !errors.Is(err, limit.ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		waiter.Wait()
		if s, err := r.Inspect(t.Context(), "k", m.Rates); err != nil || len(s.Waiters) != 0 {
			t.Errorf("the backend has the tickets %+v, %v", s.Waiters, err)
		}
		if n := l.Stats().Refused; n != 0 {
			t.Errorf("%d calls count as refused", n)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
