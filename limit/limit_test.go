package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock"
	lockdriver "github.com/megaframework/mega/lock/driver"
)

// inTime runs f on fake time with a Limiter in memory.
func inTime(t *testing.T, c limit.Config, f func(t *testing.T, l *limit.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, memory.NewLimit(), c)
		f(t, l)
	})
}

func open(t *testing.T, d driver.Driver, c limit.Config) *limit.Limiter {
	t.Helper()
	l, err := limit.New(d, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func rates(r ...limit.Rate) limit.Limit { return limit.Limit{Rates: r} }

func allow(t *testing.T, l *limit.Limiter, m limit.Limit, opts ...limit.Option) limit.Result {
	t.Helper()
	r, err := l.Allow(t.Context(), "k", m, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wait(t *testing.T, l *limit.Limiter, m limit.Limit, opts ...limit.Option) *limit.Permit {
	t.Helper()
	p, err := l.Wait(t.Context(), "k", m, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAllowReportsWhatIsLeft(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerSecond(3), limit.PerMinute(100))
		got := allow(t, l, m, limit.Cost(2))
		want := limit.Result{Allowed: true, Remaining: 1, ResetAfter: time.Second, By: limit.PerSecond(3)}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		time.Sleep(400 * time.Millisecond)
		got = allow(t, l, m, limit.Cost(2))
		want = limit.Result{Remaining: 1, RetryAfter: 600 * time.Millisecond, ResetAfter: 600 * time.Millisecond, By: limit.PerSecond(3)}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got := allow(t, l, m, limit.Cost(0)); !got.Allowed || got.Remaining != 1 {
			t.Errorf("a look: got %+v", got)
		}
	})
}

func TestArgumentsOutOfBoundsAreInvalid(t *testing.T) {
	good := rates(limit.PerSecond(5))
	many := make([]limit.Rate, limit.MaxRates+1)
	for i := range many {
		many[i] = limit.Rate{N: 1, Per: time.Duration(i+1) * time.Second}
	}
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		for _, tt := range []struct {
			name, key string
			m         limit.Limit
			opts      []limit.Option
			code      string
		}{
			{"an empty key", "", good, nil, "limit.invalid_key"},
			{"a space in the key", "a b", good, nil, "limit.invalid_key"},
			{"a long key", strings.Repeat("k", limit.MaxKey+1), good, nil, "limit.invalid_key"},
			{"no rate", "k", limit.Limit{}, nil, "limit.invalid_option"},
			{"too many rates", "k", rates(many...), nil, "limit.invalid_option"},
			{"N of 0", "k", rates(limit.PerSecond(0)), nil, "limit.invalid_option"},
			{"a large N", "k", rates(limit.PerSecond(limit.MaxN + 1)), nil, "limit.invalid_option"},
			{"a short Per", "k", rates(limit.Rate{N: 1, Per: limit.MinPer - 1}), nil, "limit.invalid_option"},
			{"a long Per", "k", rates(limit.Rate{N: 1, Per: limit.MaxPer + 1}), nil, "limit.invalid_option"},
			{"a Per twice", "k", rates(limit.PerSecond(1), limit.PerSecond(2)), nil, "limit.invalid_option"},
			{"a cost above N", "k", good, []limit.Option{limit.Cost(6)}, "limit.invalid_option"},
			{"a cost above the smallest N", "k", rates(limit.PerSecond(9), limit.PerMinute(5)), []limit.Option{limit.Cost(6)}, "limit.invalid_option"},
			{"a cost below 0", "k", good, []limit.Option{limit.Cost(-1)}, "limit.invalid_option"},
			{"a slack below 0", "k", limit.Limit{Rates: good.Rates, Slack: -1}, nil, "limit.invalid_option"},
			{"a long slack", "k", limit.Limit{Rates: good.Rates, Slack: limit.MaxSlack + 1}, nil, "limit.invalid_option"},
			{"Concurrent below 0", "k", limit.Limit{Rates: good.Rates, Concurrent: -1}, nil, "limit.invalid_option"},
			{"a large Concurrent", "k", limit.Limit{Rates: good.Rates, Concurrent: lock.MaxSlots + 1}, nil, "limit.invalid_option"},
			{"a share of 0", "k", limit.Limit{Rates: good.Rates, Outage: limit.Share(0)}, nil, "limit.invalid_option"},
			{"a share above 1", "k", limit.Limit{Rates: good.Rates, Outage: limit.Share(1.1)}, nil, "limit.invalid_option"},
			{"an outage above 1", "k", limit.Limit{Rates: good.Rates, Outage: 1.1}, nil, "limit.invalid_option"},
			{"an outage below Open", "k", limit.Limit{Rates: good.Rates, Outage: -0.5}, nil, "limit.invalid_option"},
		} {
			_, allowErr := l.Allow(t.Context(), tt.key, tt.m, tt.opts...)
			_, waitErr := l.Wait(t.Context(), tt.key, tt.m, tt.opts...)
			for _, err := range []error{allowErr, waitErr} {
				var code interface{ Code() string }
				if !errors.Is(err, limit.ErrInvalid) || !errors.As(err, &code) || code.Code() != tt.code {
					t.Errorf("%s: got %v, want %s", tt.name, err, tt.code)
				}
			}
		}
		p := wait(t, l, good)
		for name, err := range map[string]error{
			"MaxWait of Allow":  second(l.Allow(t.Context(), "k", good, limit.MaxWait(1))),
			"MaxWait below 0":   second(l.Wait(t.Context(), "k", good, limit.MaxWait(-1))),
			"Cost 0 of Wait":    second(l.Wait(t.Context(), "k", good, limit.Cost(0))),
			"no function":       l.With(t.Context(), "k", good, nil),
			"no reason":         l.Pause(t.Context(), "k", time.Second, ""),
			"a long reason":     l.Pause(t.Context(), "k", time.Second, strings.Repeat("r", limit.MaxReason+1)),
			"no pause":          l.Pause(t.Context(), "k", 0, "reason"),
			"a long pause":      l.Pause(t.Context(), "k", limit.MaxPause+1, "reason"),
			"a space in Peek":   second(l.Peek(t.Context(), "a b", good)),
			"no rate in Peek":   second(l.Peek(t.Context(), "k", limit.Limit{})),
			"an empty key":      l.Reset(t.Context(), ""),
			"a negative actual": p.Settle(t.Context(), -1),
			"a large actual":    p.Settle(t.Context(), limit.MaxN+1),
		} {
			if !errors.Is(err, limit.ErrInvalid) {
				t.Errorf("%s: got %v, want ErrInvalid", name, err)
			}
		}
		if states, err := l.List(t.Context(), ""); err != nil || len(states) != 1 || states[0].Rates[0].Used != 1 {
			t.Errorf("got %+v, %v, want the one valid call", states, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestArgumentsAtTheirBoundsAreValid(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, _ *lock.Locker) {
		longest := strings.Repeat("k", limit.MaxKey)
		for name, m := range map[string]limit.Limit{
			"the smallest": rates(limit.Rate{N: 1, Per: limit.MinPer}),
			"the largest":  {Rates: []limit.Rate{{N: limit.MaxN, Per: limit.MaxPer}}, Slack: limit.MaxSlack, Concurrent: lock.MaxSlots, Outage: limit.Share(1)},
			"open":         {Rates: []limit.Rate{limit.PerSecond(1)}, Outage: limit.Open},
		} {
			p, err := l.Wait(t.Context(), longest, m, limit.Cost(m.Rates[0].N))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if err := p.Settle(t.Context(), limit.MaxN); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := l.Reset(t.Context(), longest); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := l.Pause(t.Context(), longest, limit.MaxPause, strings.Repeat("r", limit.MaxReason)); err != nil {
			t.Error(err)
		}
	})
}

func TestACallWhoseContextHasEndedChangesNothing(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerSecond(1))
		wait(t, l, m)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, err := range map[string]error{
			"Allow":   second(l.Allow(ended, "other", m)),
			"Wait":    second(l.Wait(ended, "other", m)),
			"Pause":   l.Pause(ended, "other", time.Second, "reason"),
			"Reset":   l.Reset(ended, "k"),
			"Peek":    second(l.Peek(ended, "k", m)),
			"Inspect": second(l.Inspect(ended, "k")),
			"List":    second(l.List(ended, "")),
		} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if states, err := l.List(t.Context(), ""); err != nil || len(states) != 1 || states[0].Rates[0].Used != 1 {
			t.Errorf("got %+v, %v, want one unit of k used", states, err)
		}
	})
}

func TestAWaiterIsShownWithItsBegin(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerSecond(1))
		if s, err := l.Inspect(t.Context(), "k"); err != nil || s.Waiters == nil || s.Rates == nil {
			t.Errorf("got %+v, %v, want empty lists", s, err)
		}
		wait(t, l, m)
		began := time.Now()
		var waits sync.WaitGroup
		waits.Go(func() { wait(t, l, m) })
		time.Sleep(time.Second / 2)
		s, err := l.Inspect(t.Context(), "k")
		if err != nil || len(s.Waiters) != 1 || !s.Waiters[0].Since.Equal(began) || s.Waiters[0].PID != os.Getpid() {
			t.Errorf("got %+v, %v, want a waiter of this process since %v", s.Waiters, err, began)
		}
		waits.Wait()
	})
}

func TestWaitServesInOrderAndNeverEarly(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m, start := rates(limit.Rate{N: 2, Per: time.Second}), time.Now()
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 7 {
			all.Go(func() {
				wait(t, l, m)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				if at := time.Since(start); at < time.Duration(i/2)*time.Second {
					t.Errorf("call %d was served after %v", i, at)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
		if took := time.Since(start); took > 3*time.Second+10*time.Millisecond {
			t.Errorf("took %v, want 3 s", took)
		}
		if s := l.Stats(); s.Allowed != 7 || s.Waiting != 0 || s.Wait.Count() != 7 || s.Wait.Sum.Round(time.Second) != 9*time.Second {
			t.Errorf("got %+v", s)
		}
	})
}

func TestTooLateIsRefusedAtOnceAndConsumesNothing(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerSecond(1))
		wait(t, l, m)
		start := time.Now()
		_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(900*time.Millisecond))
		var late *limit.LimitedError
		if !errors.As(err, &late) || late.RetryAfter != time.Second || late.Rate != m.Rates[0] || late.Code() != "limit.limited" {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		if _, err := l.Wait(ctx, "k", m); !errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("refused after %v", took)
		}
		allow(t, l, m)                            // its refusal is remembered (W12)
		wait(t, l, m, limit.MaxWait(time.Second)) // just in time
		if took := time.Since(start); took != time.Second {
			t.Errorf("granted after %v", took)
		}
	})
}

func TestACallBehindAnotherIsTooLateWithItsEstimate(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerSecond(1))
		wait(t, l, m)
		var first sync.WaitGroup
		first.Go(func() { wait(t, l, m) })
		synctest.Wait()
		start := time.Now()
		_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(500*time.Millisecond))
		late, ok := errors.AsType[*limit.LimitedError](err)
		if took := time.Since(start); !ok || late.RetryAfter != time.Second || took != 0 {
			t.Errorf("got %+v after %v, want a retry after 1s at once", err, took)
		}
		first.Wait()
	})
}

// slow is a driver whose answers take a while.
type slow struct {
	driver.Driver
	by time.Duration
}

func (s slow) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	time.Sleep(s.by)
	return s.Driver.Take(ctx, r)
}

// A MaxWait bounds the wait for units. Calls that come together are answered one after
// the other, which is no lack of units.
func TestCallsThatComeTogetherDoNotRefuseEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, slow{memory.NewLimit(), 10 * time.Millisecond}, limit.Config{})
		m := rates(limit.PerMinute(15))
		var allowed atomic.Int64
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(time.Duration(i)*time.Millisecond))
				if err == nil {
					allowed.Add(1)
				} else if late, ok := errors.AsType[*limit.LimitedError](err); !ok || late.RetryAfter < 59*time.Second {
					t.Errorf("got %+v, want a retry after a minute", err)
				}
			})
		}
		all.Wait()
		if n := allowed.Load(); n != 15 {
			t.Errorf("%d of 20 calls were allowed, want 15", n)
		}
	})
}

// A call behind another one whose request is under way learns with its answer that it
// is too late.
func TestACallBehindARequestIsTooLateWithItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, slow{memory.NewLimit(), 10 * time.Millisecond}, limit.Config{})
		m := rates(limit.PerMinute(1))
		wait(t, l, m)
		var first sync.WaitGroup
		first.Go(func() { wait(t, l, m) })
		synctest.Wait()
		start := time.Now()
		_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(0))
		late, ok := errors.AsType[*limit.LimitedError](err)
		if took := time.Since(start); !ok || late.RetryAfter < 59*time.Second || took != 10*time.Millisecond {
			t.Errorf("got %+v after %v, want a retry after a minute with the answer", err, took)
		}
		first.Wait()
	})
}

// counted is a driver that counts the requests.
type counted struct {
	slow
	n *atomic.Int64
}

func (c counted) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	c.n.Add(1)
	return c.slow.Take(ctx, r)
}

// Calls that come together are refused with the answer to the first of them, if no
// unit is free (W12).
func TestCallsThatComeTogetherAreRefusedByOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		l := open(t, counted{slow{memory.NewLimit(), 5 * time.Millisecond}, &n}, limit.Config{})
		m := rates(limit.PerMinute(1))
		wait(t, l, m)
		before, start := n.Load(), time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(0))
				if late, ok := errors.AsType[*limit.LimitedError](err); !ok || late.RetryAfter < 59*time.Second || late.Rate != limit.PerMinute(1) {
					t.Errorf("got %+v, want a retry after a minute", err)
				}
			})
		}
		all.Wait()
		if asked, took := n.Load()-before, time.Since(start); asked != 1 || took != 5*time.Millisecond {
			t.Errorf("%d requests in %v, want 1 in 5ms", asked, took)
		}
	})
}

// A call behind a request without an answer is bounded.
func TestACallBehindARequestWithoutAnAnswerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, slow{memory.NewLimit(), time.Minute}, limit.Config{})
		m := rates(limit.PerMinute(15))
		var first sync.WaitGroup
		first.Go(func() { _, _ = l.Wait(t.Context(), "k", m) })
		synctest.Wait()
		start := time.Now()
		_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(0))
		if took := time.Since(start); err == nil || took != 1100*time.Millisecond {
			t.Errorf("got %v after %v, want an error after 1.1 s", err, took)
		}
		first.Wait()
	})
}

// excessive is a driver that returns more rates than Inspect asks for.
type excessive struct{ driver.Driver }

func (e excessive) Inspect(ctx context.Context, key string, rates []driver.Rate) (driver.State, error) {
	return e.Driver.Inspect(ctx, key, append(slices.Clone(rates), limit.PerHour(1)))
}

func TestPeekNamesADriverThatReturnsOtherRates(t *testing.T) {
	l := open(t, excessive{memory.NewLimit()}, limit.Config{})
	_, err := l.Peek(t.Context(), "k", rates(limit.PerMinute(1)))
	if !errors.Is(err, limit.ErrUnavailable) || !strings.Contains(err.Error(), "the driver memory returned 2 rates, want 1") {
		t.Errorf("got %v, want an error that names the driver", err)
	}
}

// silent is a backend that does not answer.
type silent struct{ driver.Driver }

func (s silent) Info() driver.Info {
	i := s.Driver.Info()
	i.Scope = driver.Fleet
	return i
}

func (s silent) Take(ctx context.Context, _ driver.Request) (driver.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	<-ctx.Done()
	return driver.Answer{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
}

// A call behind another one is allowed with the answer of the outage, whatever its
// MaxWait (W11).
func TestCallsThatComeTogetherFollowTheirPolicyInAnOutage(t *testing.T) {
	for policy, want := range map[limit.Outage]int{limit.Open: 6, limit.Share(0.5): 4} {
		for _, gap := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, silent{memory.NewLimit()}, limit.Config{})
				m := rates(limit.PerMinute(8))
				m.Outage = policy
				var allowed atomic.Int64
				var all sync.WaitGroup
				for i := range 6 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * gap)
						p, err := l.Wait(t.Context(), "k", m, limit.MaxWait(0))
						if err == nil && p.Degraded() {
							allowed.Add(1)
						} else if late, ok := errors.AsType[*limit.LimitedError](err); !ok || policy == limit.Open || late.RetryAfter < 59*time.Second {
							t.Errorf("%v: got %v", policy, err)
						}
					})
				}
				start := time.Now()
				all.Wait()
				if took := time.Since(start); int(allowed.Load()) != want || took > 2100*time.Millisecond {
					t.Errorf("%v, %v apart: %d of 6 calls were allowed in %v, want %d", policy, gap, allowed.Load(), took, want)
				}
			})
		}
	}
}

// A bound that is further away than a clock can count is none.
func TestVeryLongWaitIsNoBound(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		far, cancel := context.WithDeadline(t.Context(), time.Now().AddDate(500, 0, 0))
		defer cancel()
		time.Sleep(time.Minute) // the process is not new
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for ctx, opts := range map[context.Context][]limit.Option{far: nil, t.Context(): {limit.MaxWait(math.MaxInt64)}} {
					if _, err := l.Wait(ctx, "k", rates(limit.PerSecond(1)), opts...); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

// Ten thousand calls wait for one key, and their callers give up in the middle.
func TestThousandsWaitForOneKey(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		const calls = 10_000
		m := rates(limit.PerSecond(1000))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var served atomic.Int64
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				if i%2 == 0 { // every second one has not enough time
					_, err := l.Wait(ctx, "k", m)
					if err == nil {
						served.Add(1)
					} else if !errors.Is(err, limit.ErrLimited) {
						t.Error(err)
					}
					return
				}
				if _, err := l.Wait(t.Context(), "k", m); err != nil {
					t.Error(err)
				}
				served.Add(1)
			})
		}
		all.Wait()
		s := l.Stats()
		if n := served.Load(); n < 3*calls/4-1000 || n > 3*calls/4+1000 || s.Waiting != 0 || s.Allowed != uint64(n) {
			t.Errorf("%d were served, %+v", n, s)
		}
		if state, err := l.Peek(t.Context(), "k", m); err != nil || len(state.Waiters) != 0 {
			t.Errorf("got %+v, %v, want nobody waiting", state, err)
		}
	})
}

// A request for many units has its turn, although many small ones come later.
func TestLargeRequestIsNotStarved(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerSecond(10))
		ctx, stop := context.WithCancel(t.Context())
		var small sync.WaitGroup
		for range 20 {
			small.Go(func() {
				for ctx.Err() == nil {
					if _, err := l.Wait(ctx, "k", m, limit.MaxWait(time.Minute)); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(3 * time.Second)
		start := time.Now()
		wait(t, l, m, limit.Cost(10))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it waited %v behind 20 callers of one unit", took)
		}
		stop()
		small.Wait()
	})
}

func TestWaitersThatGiveUpCostNothing(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerSecond(1))
		wait(t, l, m)
		start, gaveUp := time.Now(), errors.New("gave up")
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		for _, policy := range []limit.Outage{limit.Closed, limit.Open, limit.Share(1), limit.Open, limit.Closed} { // without an outage
			m := m
			m.Outage = policy
			all.Go(func() {
				_, err := l.Wait(ctx, "k", m)
				if !errors.Is(err, context.Canceled) || !errors.Is(err, gaveUp) || !errors.Is(err, limit.ErrLimited) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		all.Go(func() {
			if wait(t, l, m); time.Since(start) != time.Second {
				t.Errorf("granted after %v", time.Since(start))
			}
		})
		time.Sleep(500 * time.Millisecond)
		cancel(gaveUp)
		all.Wait()
		if s, err := l.Inspect(t.Context(), "k"); err != nil || len(s.Waiters) != 0 || s.Rates[0].Used != 1 {
			t.Errorf("got %+v, %v", s, err)
		}
		ctx, cancel2 := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel2()
		_, _ = l.Wait(ctx, "k", m)
		if r := allow(t, l, m); r.Allowed || r.RetryAfter != time.Second {
			t.Errorf("got %+v, want nobody ahead", r)
		}
	})
}

func TestSettleAndCancelReturnUnits(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerMinute(10))
		p := wait(t, l, m, limit.Cost(8))
		if r := allow(t, l, m, limit.Cost(5)); r.Allowed {
			t.Error("allowed too much")
		}
		if err := p.Settle(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		if err := p.Cancel(t.Context()); err != nil { // settled already
			t.Fatal(err)
		}
		if r := allow(t, l, m, limit.Cost(5)); !r.Allowed || r.Remaining != 2 { // the refusal is forgotten (W12)
			t.Errorf("got %+v", r)
		}
		ctx, cancel := context.WithCancel(t.Context())
		p = wait(t, l, m, limit.Cost(2))
		cancel()
		if err := p.Cancel(ctx); err != nil { // also after the end of the context
			t.Fatal(err)
		}
		if r := allow(t, l, m, limit.Cost(2)); !r.Allowed {
			t.Errorf("got %+v", r)
		}
	})
}

func TestReturnedUnitsWakeTheFirstWaiter(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerHour(1))
		p := wait(t, l, m)
		start := time.Now()
		var all sync.WaitGroup
		all.Go(func() { wait(t, l, m) })
		const later = 10*time.Minute + 300*time.Millisecond // between two requests of the waiter
		time.Sleep(later)
		if err := p.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if took := time.Since(start); took != later {
			t.Errorf("granted after %v", took)
		}
	})
}

// A call behind others is not refused with an estimate from before a change.
func TestChangesEndTheEstimateOfALine(t *testing.T) {
	m := rates(limit.PerMinute(2))
	for name, change := range map[string]func(context.Context, *limit.Limiter, *limit.Permit) error{
		"reset":  func(ctx context.Context, l *limit.Limiter, _ *limit.Permit) error { return l.Reset(ctx, "k") },
		"cancel": func(ctx context.Context, _ *limit.Limiter, p *limit.Permit) error { return p.Cancel(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
				p := wait(t, l, m, limit.Cost(2))
				var first sync.WaitGroup
				first.Go(func() { wait(t, l, m) })
				synctest.Wait()
				if err := change(t.Context(), l, p); err != nil {
					t.Fatal(err)
				}
				wait(t, l, m, limit.MaxWait(time.Second))
				first.Wait()
			})
		})
	}
}

// The estimate is on its way during the Reset.
func TestAnEstimateFromBeforeAResetRefusesNobody(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := rates(limit.PerMinute(2))
		allow(t, l, m, limit.Cost(2))
		r.set(func(_ context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
			a, err := take()
			time.Sleep(100 * time.Millisecond)
			return a, err
		})
		var first sync.WaitGroup
		first.Go(func() { wait(t, l, m) })
		synctest.Wait()
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond) // the call ahead asks again
		wait(t, l, m, limit.MaxWait(time.Second))
		first.Wait()
	})
}

func TestSlackLengthensTheWindow(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(1)}, Slack: 50 * time.Millisecond}
		allow(t, l, m)
		if r := allow(t, l, m); r.Allowed || r.RetryAfter != 1050*time.Millisecond || r.By != m.Rates[0] {
			t.Errorf("got %+v", r)
		}
		if s, err := l.Peek(t.Context(), "k", m); err != nil || s.Rates[0].Used != 1 || s.Rates[0].Rate != m.Rates[0] {
			t.Errorf("got %+v, %v", s, err)
		}
	})
}

func TestPauseAndReset(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerSecond(10))
		if err := l.Pause(t.Context(), "k", time.Hour, "the partner said so"); err != nil {
			t.Fatal(err)
		}
		if r := allow(t, l, m); r.Allowed || r.RetryAfter != time.Hour || r.By != (limit.Rate{}) {
			t.Errorf("got %+v", r)
		}
		_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(time.Minute))
		var late *limit.LimitedError
		if !errors.As(err, &late) || late.RetryAfter != time.Hour {
			t.Errorf("got %v", err)
		}
		if s, err := l.Peek(t.Context(), "k", m); err != nil || s.Paused == nil || s.Paused.Reason != "the partner said so" || s.Paused.By.PID == 0 {
			t.Errorf("got %+v, %v", s, err)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if r := allow(t, l, m); !r.Allowed {
			t.Errorf("got %+v", r)
		}
	})
}

func TestConcurrentNeedsALockerAndAFunction(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 2}
		if _, err := l.Wait(t.Context(), "k", m); !errors.Is(err, limit.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
		if _, err := l.Allow(t.Context(), "k", m); !errors.Is(err, limit.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	})
}

// openWithSlots returns a Limiter in memory, and its Locker.
func openWithSlots(t *testing.T) (*limit.Limiter, *lock.Locker) {
	t.Helper()
	locker, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return open(t, memory.NewLimit(), limit.Config{Locker: locker}), locker
}

// withSlots runs f with both, on fake time.
func withSlots(t *testing.T, f func(t *testing.T, l *limit.Limiter, locker *lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, locker := openWithSlots(t)
		f(t, l, locker)
	})
}

func TestConcurrentBoundsTheWork(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, locker *lock.Locker) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 2}
		var mu sync.Mutex
		inside, most := 0, 0
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				err := l.With(t.Context(), "k", m, func(ctx context.Context, _ *limit.Permit) error {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					inside--
					mu.Unlock()
					return ctx.Err()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if most != 2 {
			t.Errorf("%d at once, want 2", most)
		}
		if held := locker.Held(); len(held) != 0 {
			t.Errorf("%q are held", held)
		}
	})
}

func TestSlotIsGivenBack(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, locker *lock.Locker) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerHour(3)}, Concurrent: 1}
		free := func(after string) {
			t.Helper()
			if held := locker.Held(); len(held) != 0 {
				t.Errorf("after %s: %q are held", after, held)
			}
		}
		func() {
			defer func() { _ = recover() }()
			_ = l.With(t.Context(), "k", m, func(context.Context, *limit.Permit) error { panic("a panic") })
		}()
		free("a panic")
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = l.With(t.Context(), "k", m, func(context.Context, *limit.Permit) error { runtime.Goexit(); return nil })
		}()
		<-over
		free("runtime.Goexit")
		if err := wait(t, l, m).Settle(t.Context(), 1); err != nil {
			t.Error(err)
		}
		free("Settle")
		if _, err := l.Wait(t.Context(), "k", m, limit.MaxWait(time.Minute)); !errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v", err)
		}
		free("a refusal by the rate") // W16
		time.Sleep(2 * time.Second)   // the refusal is forgotten
		err := l.With(t.Context(), "k", m, func(context.Context, *limit.Permit) error {
			t.Error("a function that is not allowed is called")
			return nil
		}, limit.MaxWait(time.Minute))
		if !errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v", err)
		}
		free("a refusal of With")
		if s, err := l.Inspect(t.Context(), "k"); err != nil || s.Rates[0].Used != 3 {
			t.Errorf("got %+v, %v, want 3 units used", s, err)
		}
	})
}

func TestTheWorksErrorIsKeptBesideTheLossOfItsSlot(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, locker *lock.Locker) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
		for _, work := range []error{nil, errors.New("failed")} {
			err := l.With(t.Context(), "k", m, func(context.Context, *limit.Permit) error {
				if _, err := locker.ForceRelease(t.Context(), locker.Held()[0], "the test"); err != nil {
					t.Error(err)
				}
				return work
			})
			if !errors.Is(err, lock.ErrLost) || work != nil && !errors.Is(err, work) || strings.Contains(err.Error(), "nil") {
				t.Errorf("the work returned %v, and With %v", work, err)
			}
		}
		p := wait(t, l, m)
		if _, err := locker.ForceRelease(t.Context(), locker.Held()[0], "the test"); err != nil {
			t.Error(err)
		}
		if err := p.Settle(t.Context(), 1); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Settle returned %v", err)
		}
	})
}

// The work may fail with an error of another lock, or after the end of its context: its
// units are consumed, and a caller that gets ErrLimited would do it again.
func TestWithReturnsTheErrorOfItsFunction(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, _ *lock.Locker) {
		for _, n := range []int{0, 1} {
			m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: n}
			for _, work := range []error{lock.ErrNotAcquired, lock.ErrUnavailable, context.Canceled} {
				ctx, cancel := context.WithCancel(t.Context())
				err := l.With(ctx, "k", m, func(context.Context, *limit.Permit) error {
					cancel()
					return work
				})
				if !errors.Is(err, work) || errors.Is(err, limit.ErrLimited) || errors.Is(err, limit.ErrUnavailable) {
					t.Errorf("Concurrent %d: the work returned %v, and With %v", n, work, err)
				}
			}
		}
	})
}

// A function that outlives its context works in its slot until it returns. W16
func TestAFunctionKeepsItsSlotAfterTheEndOfItsContext(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, _ *lock.Locker) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.With(ctx, "k", m, func(ctx context.Context, _ *limit.Permit) error {
			<-ctx.Done()
			if _, err := l.Wait(t.Context(), "k", m, limit.MaxWait(time.Minute)); !errors.Is(err, limit.ErrLimited) {
				t.Errorf("beside the function: got %v, want ErrLimited", err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("With: %v", err)
		}
		if err := wait(t, l, m, limit.MaxWait(0)).Cancel(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTheLossOfASlotIsReturnedIfTheWorkHasSettled(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, locker *lock.Locker) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
		err := l.With(t.Context(), "k", m, func(_ context.Context, p *limit.Permit) error {
			if _, err := locker.ForceRelease(t.Context(), locker.Held()[0], "the test"); err != nil {
				t.Error(err)
			}
			if err := p.Settle(t.Context(), 1); !errors.Is(err, lock.ErrLost) {
				t.Errorf("Settle returned %v", err)
			}
			return nil
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("With returned %v", err)
		}
	})
}

// The backend of the slots may not have answered yet: then the Locker returns the error of
// the ended context alone.
func TestCloseEndsTheWaitForAnUnansweredSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, err := lock.New(deafLock{memory.NewLock()}, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locker.Close(t.Context()) }()
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
		for name, call := range map[string]func(l *limit.Limiter) error{
			"Wait": func(l *limit.Limiter) error { _, err := l.Wait(t.Context(), "k", m); return err },
			"With": func(l *limit.Limiter) error {
				return l.With(t.Context(), "k", m, func(context.Context, *limit.Permit) error { return nil })
			},
		} {
			l, err := limit.New(memory.NewLimit(), limit.Config{Locker: locker})
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan error, 1)
			go func() { got <- call(l) }()
			synctest.Wait()
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-got; !errors.Is(err, limit.ErrClosed) || errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v, want ErrClosed", name, err)
			}
		}
	})
}

// A Limiter lives as long as its process, with any number of calls (L18).
func TestCallsForASlotLeaveNothing(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, _ *lock.Locker) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
		type key struct{}
		var gone []weak.Pointer[[64]byte]
		call := func(wanted error) {
			v := new([64]byte)
			gone = append(gone, weak.Make(v))
			ctx := context.WithValue(t.Context(), key{}, v)
			p, err := l.Wait(ctx, "k", m, limit.MaxWait(0))
			if err == nil {
				err = p.Cancel(ctx)
			}
			with := l.With(ctx, "k", m, func(context.Context, *limit.Permit) error { return nil }, limit.MaxWait(0))
			if !errors.Is(err, wanted) || !errors.Is(with, wanted) {
				t.Fatalf("got %v and %v, want %v", err, with, wanted)
			}
		}
		for range 10 {
			call(nil)
		}
		held := wait(t, l, m)
		for range 10 {
			call(limit.ErrLimited)
		}
		if err := held.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		runtime.GC()
		left := 0
		for _, v := range gone {
			if v.Value() != nil {
				left++
			}
		}
		if left > 1 { // the stack may have one
			t.Errorf("the contexts of %d of %d calls are left", left, len(gone))
		}
	})
}

// The Limiter closes between the grant of the slot and the beginning of the wait for the
// rates. The slot's context ends, so neither fn nor the caller of Wait may have it.
func TestCloseAtTheGrantOfASlotEndsTheCall(t *testing.T) {
	m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
	for name, call := range map[string]func(ctx context.Context, l *limit.Limiter) error{
		"Wait": func(ctx context.Context, l *limit.Limiter) error {
			_, err := l.Wait(ctx, "k", m)
			return err
		},
		"With": func(ctx context.Context, l *limit.Limiter) error {
			return l.With(ctx, "k", m, func(ctx context.Context, _ *limit.Permit) error {
				t.Error("fn is called with a context whose end is ", ctx.Err())
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l *limit.Limiter
				closed := make(chan error, 1)
				locker, err := lock.New(memory.NewLock(), lock.Config{Observer: atGrant(func() {
					go func() { closed <- l.Close(context.Background()) }()
					synctest.Wait()
				})})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = locker.Close(context.Background()) }()
				if l, err = limit.New(memory.NewLimit(), limit.Config{Locker: locker}); err != nil {
					t.Fatal(err)
				}
				if err := call(t.Context(), l); !errors.Is(err, limit.ErrClosed) {
					t.Errorf("got %v, want ErrClosed", err)
				}
				if err := <-closed; err != nil {
					t.Error(err)
				}
				if held := locker.Held(); len(held) != 0 {
					t.Errorf("%q are held", held)
				}
			})
		})
	}
}

// atGrant observes the grants of a Locker.
type atGrant func()

func (f atGrant) Observe(e lock.Event) {
	if _, granted := e.(lock.Acquired); granted {
		f()
	}
}

// deafLock answers no request.
type deafLock struct{ *memory.Lock }

func (deafLock) Info() lockdriver.Info { return lockdriver.Info{Name: "deaf", Scope: lockdriver.Node} }

func (deafLock) Acquire(ctx context.Context, _ lockdriver.Request) (lockdriver.Grant, error) {
	<-ctx.Done()
	return lockdriver.Grant{}, ctx.Err()
}

func (d deafLock) Ask(ctx context.Context, r lockdriver.Request) (g lockdriver.Grant, wait func(context.Context) (lockdriver.Grant, error), err error) {
	g, err = d.Acquire(ctx, r)
	return g, nil, err
}

// The longest keys have slots of their own, though the key of a slot is longer (W15).
func TestTheLongestKeysHaveSlots(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, locker *lock.Locker) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
		longest := strings.Repeat("k", limit.MaxKey-1)
		var permits []*limit.Permit
		for _, key := range []string{longest + "a", longest + "b", longest[:limit.MaxKey-6]} {
			p, err := l.Wait(t.Context(), key, m)
			if err != nil {
				t.Fatal(err)
			}
			permits = append(permits, p)
		}
		_, err := l.Wait(t.Context(), longest+"a", m, limit.MaxWait(time.Second))
		if !errors.Is(err, limit.ErrLimited) || len(locker.Held()) != len(permits) {
			t.Errorf("got %v, and %q are held", err, locker.Held())
		}
		for _, p := range permits {
			if err := p.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestBusySlotsAreALimit(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, _ *lock.Locker) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
		held := wait(t, l, m)
		_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(time.Second))
		if !errors.Is(err, limit.ErrLimited) || !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("got %v", err)
		}
		var next sync.WaitGroup
		next.Go(func() {
			p := wait(t, l, m, limit.MaxWait(time.Second)) // the slot is free in time
			if err := p.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second / 2)
		if err := held.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		next.Wait()
		if s, err := l.Inspect(t.Context(), "k"); err != nil || len(s.Rates) > 0 && s.Rates[0].Used != 0 {
			t.Errorf("got %+v, %v, want no unit used", s, err)
		}
	})
}

// What this process knows to be too late takes no slot, and does not wait for one. W6, W12
func TestARememberedRefusalWaitsForNoSlot(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, _ *lock.Locker) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerMinute(1)}, Concurrent: 1}
		wait(t, l, m)
		allow(t, l, rates(m.Rates...))
		start := time.Now()
		_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(500*time.Millisecond))
		if !errors.Is(err, limit.ErrLimited) || errors.Is(err, lock.ErrNotAcquired) || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestCloseEndsWaiters(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, _ *lock.Locker) {
		m := rates(limit.PerHour(1))
		slots := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
		wait(t, l, m)
		full := func() (limit.Result, error) { return l.Allow(t.Context(), "full", m) }
		_, _ = full()
		_, _ = full() // its refusal is remembered (W12)
		held, err := l.Wait(t.Context(), "s", slots)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := l.Wait(t.Context(), "k", m); !errors.Is(err, limit.ErrClosed) {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Go(func() {
			if _, err := l.Wait(t.Context(), "s", slots); !errors.Is(err, limit.ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		for range 2 {
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		all.Wait()
		if r, err := full(); !errors.Is(err, limit.ErrClosed) {
			t.Errorf("got %+v, %v", r, err)
		}
		if _, err := l.Wait(t.Context(), "k", m); !errors.Is(err, limit.ErrClosed) {
			t.Errorf("got %v", err)
		}
		_ = held.Settle(t.Context(), 1)
	})
}

// A counting driver shows which calls reach the backend.
type counting struct {
	driver.Driver
	mu    sync.Mutex // guards takes
	takes int
}

func (c *counting) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	c.mu.Lock()
	c.takes++
	c.mu.Unlock()
	return c.Driver.Take(ctx, r)
}

func (c *counting) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.takes
	c.takes = 0
	return n
}

func TestRefusalsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &counting{Driver: memory.NewLimit()}
		l := open(t, d, limit.Config{Cache: 2})
		m := rates(limit.Rate{N: 4, Per: 10 * time.Second})
		allow(t, l, m, limit.Cost(3))
		if r := allow(t, l, m, limit.Cost(3)); r.Allowed {
			t.Fatal("allowed")
		}
		d.count()
		for range 3 {
			time.Sleep(300 * time.Millisecond)
			allow(t, l, m, limit.Cost(3))
			allow(t, l, m, limit.Cost(4))
		}
		if n := d.count(); n != 0 {
			t.Errorf("%d calls for what was refused", n)
		}
		if r := allow(t, l, m, limit.Cost(3)); r.RetryAfter != 9100*time.Millisecond || r.By != m.Rates[0] {
			t.Errorf("got %+v", r)
		}
		if r := allow(t, l, rates(limit.Rate{N: 10, Per: 10 * time.Second}), limit.Cost(3)); !r.Allowed || d.count() != 1 {
			t.Errorf("another limit: got %+v", r)
		}
		allow(t, l, m, limit.Cost(1))
		if n := d.count(); n != 1 {
			t.Errorf("%d calls for a smaller cost", n)
		}
		time.Sleep(time.Second)
		allow(t, l, m, limit.Cost(3))
		if n := d.count(); n != 1 {
			t.Errorf("%d calls after a second", n)
		}
		for i := range 10 {
			key := fmt.Sprint("other", i)
			for range 2 {
				if _, err := l.Allow(t.Context(), key, rates(limit.PerHour(1))); err != nil {
					t.Fatal(err)
				}
			}
		}
		d.count()
		for i := range 10 {
			if _, err := l.Allow(t.Context(), fmt.Sprint("other", i), rates(limit.PerHour(1))); err != nil {
				t.Fatal(err)
			}
		}
		if n := d.count(); n < 8 {
			t.Errorf("%d calls, want the memory bounded to 2 keys", n)
		}
	})
}

func TestARememberedRefusalNamesThePause(t *testing.T) {
	for name, ask := range asking {
		t.Run(name, func(t *testing.T) {
			inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
				m := rates(limit.PerMinute(1))
				if err := l.Pause(t.Context(), "k", time.Minute, "a reason"); err != nil {
					t.Fatal(err)
				}
				ask(t, l, m)
				time.Sleep(300 * time.Millisecond)
				_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(0))
				limited, ok := errors.AsType[*limit.LimitedError](err)
				if !ok || limited.Paused == nil || limited.Paused.Reason != "a reason" || limited.Paused.Left != limited.RetryAfter {
					t.Errorf("got %v", err)
				}
				if l.Stats().Local != 1 {
					t.Error("the backend was asked")
				}
			})
		})
	}
}

// A refusal because the queue is full names no time before which a call is refused (W12).
func TestAFullQueueIsNotRemembered(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := rates(limit.PerMinute(1))
		r.set(func(context.Context, func() (driver.Answer, error)) (driver.Answer, error) {
			return driver.Answer{Full: true, Wait: time.Minute, By: -1}, nil
		})
		_, err := l.Wait(t.Context(), "k", m)
		if limited, ok := errors.AsType[*limit.LimitedError](err); !ok || !limited.Full || limited.Code() != "limit.queue_full" {
			t.Errorf("got %v", err)
		}
		r.set(nil)
		wait(t, l, m, limit.MaxWait(0))
	})
}

// A waiter that gives up was the reason of refusals that this process remembers. W7, W12
func TestTheRefusalsBehindAWaiterEndWithIt(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerMinute(2))
		wait(t, l, m)
		ctx, cancel := context.WithCancel(t.Context())
		var waiter sync.WaitGroup
		waiter.Go(func() {
			if _, err := l.Wait(ctx, "k", m, limit.Cost(2)); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		if got := allow(t, l, m); got.Allowed {
			t.Fatalf("got %+v, which overtakes a ticket", got)
		}
		cancel()
		waiter.Wait()
		if got := allow(t, l, m); !got.Allowed {
			t.Errorf("got %+v, want the unit that nobody waits for", got)
		}
	})
}

// A call that ends between two requests has waited for a part of the time that the
// last answer named.
func TestTheRetryOfACancelledCallCountsFromItsEnd(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerMinute(1))
		wait(t, l, m)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		_, err := l.Wait(ctx, "k", m)
		limited, ok := errors.AsType[*limit.LimitedError](err)
		if want := time.Minute - 300*time.Millisecond; !ok || limited.RetryAfter != want || limited.Waited != 300*time.Millisecond {
			t.Errorf("got %v, want a retry after %v", err, want)
		}
	})
}

func TestACallBehindAnotherNamesThePause(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerMinute(1))
		if err := l.Pause(t.Context(), "k", time.Minute, "a reason"); err != nil {
			t.Fatal(err)
		}
		var first sync.WaitGroup
		first.Go(func() { wait(t, l, m) })
		synctest.Wait()
		_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(time.Second))
		if limited, ok := errors.AsType[*limit.LimitedError](err); !ok || limited.Paused == nil || limited.Paused.Reason != "a reason" {
			t.Errorf("got %v", err)
		}
		first.Wait()
	})
}

func TestANegativeCacheRemembersNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &counting{Driver: memory.NewLimit()}
		l := open(t, d, limit.Config{Cache: -1})
		for range 4 {
			allow(t, l, rates(limit.PerHour(1)))
		}
		if n := d.count(); n != 4 {
			t.Errorf("the backend was asked %d times, want 4", n)
		}
	})
}

func TestAFullMemoryOfRefusalsForgetsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 10
		d := &counting{Driver: memory.NewLimit()}
		l := open(t, d, limit.Config{Cache: most})
		ask := func(keys int) (calls int) {
			for i := range keys {
				if _, err := l.Allow(t.Context(), fmt.Sprint("k", i), rates(limit.PerHour(1))); err != nil {
					t.Fatal(err)
				}
			}
			return d.count()
		}
		ask(most) // allowed
		ask(most) // refused
		if n := ask(most); n != 0 {
			t.Errorf("%d of %d refusals were forgotten", n, most)
		}
		ask(most + 1)
		ask(most + 1)
		if n := ask(most); n == 0 || n == most { // each new one replaces any other
			t.Errorf("%d of %d refusals were forgotten after another one", n, most)
		}
	})
}

// The backend may free the units while its refusal is on its way.
// asking are the calls whose refusals are remembered.
var asking = map[string]func(t *testing.T, l *limit.Limiter, m limit.Limit) (allowed bool){
	"Allow": func(t *testing.T, l *limit.Limiter, m limit.Limit) bool { return allow(t, l, m).Allowed },
	"Wait": func(t *testing.T, l *limit.Limiter, m limit.Limit) bool {
		_, err := l.Wait(t.Context(), "k", m, limit.MaxWait(0))
		if err != nil && !errors.Is(err, limit.ErrLimited) {
			t.Error(err)
		}
		return err == nil
	},
}

func TestARefusalCountsFromBeforeItsCall(t *testing.T) {
	for name, ask := range asking {
		t.Run(name, func(t *testing.T) {
			far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
				m := rates(limit.Rate{N: 1, Per: 500 * time.Millisecond})
				allow(t, l, m)
				r.set(func(_ context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
					a, err := take()
					time.Sleep(100 * time.Millisecond)
					return a, err
				})
				ask(t, l, m)
				time.Sleep(400 * time.Millisecond)
				if !ask(t, l, m) {
					t.Error("refused, want the unit that is free again")
				}
			})
		})
	}
}

// The refusal is on its way during the Reset.
func TestARefusalFromBeforeAResetIsNotRemembered(t *testing.T) {
	for name, ask := range asking {
		t.Run(name, func(t *testing.T) {
			far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
				m := rates(limit.PerHour(1))
				allow(t, l, m)
				r.set(func(_ context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
					a, err := take()
					time.Sleep(100 * time.Millisecond)
					return a, err
				})
				var refused sync.WaitGroup
				refused.Go(func() { ask(t, l, m) })
				synctest.Wait()
				if err := l.Reset(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				refused.Wait()
				if !ask(t, l, m) {
					t.Error("refused after a Reset")
				}
			})
		})
	}
}

func TestWaitingCallsAskSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &counting{Driver: memory.NewLimit()}
		l := open(t, d, limit.Config{})
		m := rates(limit.Rate{N: 1, Per: 10 * time.Second})
		wait(t, l, m)
		d.count()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { _, _ = l.Wait(t.Context(), "k", m, limit.MaxWait(10*time.Second)) })
		}
		all.Wait()
		if n := d.count(); n > 80 {
			t.Errorf("%d calls of 50 waiters in 10 s", n)
		}
	})
}

func TestEventsAndStats(t *testing.T) {
	var mu sync.Mutex
	var events []limit.Event
	observer := observe(func(e limit.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
		panic("dropped")
	})
	inTime(t, limit.Config{Observer: observer}, func(t *testing.T, l *limit.Limiter) {
		m := rates(limit.PerSecond(1))
		p := wait(t, l, m)
		for range 3 {
			allow(t, l, m)
		}
		_, waited := l.Wait(t.Context(), "k", m, limit.MaxWait(0))
		with := l.With(t.Context(), "k", m, func(context.Context, *limit.Permit) error { return nil }, limit.MaxWait(0))
		_ = p.Cancel(t.Context())
		_ = l.Pause(t.Context(), "k", time.Second, "why")
		_ = l.Reset(t.Context(), "k")
		want := []limit.Event{
			limit.Granted{Key: "k", Cost: 1},
			limit.Refused{Key: "k", Cost: 1, By: m.Rates[0], RetryAfter: time.Second},
			limit.Refused{Key: "k", Cost: 1, By: m.Rates[0], RetryAfter: time.Second, Local: true},
			limit.Refused{Key: "k", Cost: 1, By: m.Rates[0], RetryAfter: time.Second, Local: true},
			limit.Refused{Key: "k", Cost: 1, By: m.Rates[0], RetryAfter: time.Second, Local: true, Err: errors.Unwrap(waited)},
			limit.Refused{Key: "k", Cost: 1, By: m.Rates[0], RetryAfter: time.Second, Local: true, Err: errors.Unwrap(with)},
			limit.Settled{Key: "k", Cost: 1},
			limit.Paused{Key: "k", For: time.Second, Reason: "why"},
			limit.WasReset{Key: "k"},
		}
		if !slices.Equal(events, want) {
			t.Errorf("got  %+v\nwant %+v", events, want)
		}
		if s := l.Stats(); s.Driver != "memory" || s.Allowed != 1 || s.Refused != 5 || s.Local != 4 || s.Settled != 1 {
			t.Errorf("got %+v", s)
		}
	})
}

type observe func(limit.Event)

func (f observe) Observe(e limit.Event) { f(e) }

func TestALimitedErrorNamesItsReasons(t *testing.T) {
	for want, e := range map[string]limit.LimitedError{
		"limit: not allowed in time":                                   {Waited: time.Millisecond - 1},
		"limit: not allowed in time, waited 2ms, the queue is full":    {Waited: 1600 * time.Microsecond, Full: true},
		"limit: not allowed in time, rate 3 per 1m0s, retry after 2ms": {Rate: limit.PerMinute(3), RetryAfter: 1600 * time.Microsecond},
		"limit: not allowed in time, paused by host, pid 7 (app): a reason: context canceled": {
			Paused: &limit.Pause{By: limit.Holder{Host: "host", PID: 7, Label: "app"}, Reason: "a reason"}, Err: context.Canceled},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestRatesHaveThePeriodsOfTheirNames(t *testing.T) {
	for want, r := range map[time.Duration]limit.Rate{
		time.Second: limit.PerSecond(2), time.Minute: limit.PerMinute(2), time.Hour: limit.PerHour(2), 24 * time.Hour: limit.PerDay(2),
	} {
		if r != (limit.Rate{N: 2, Per: want}) {
			t.Errorf("got %+v, want 2 per %v", r, want)
		}
	}
}

func TestADefaultLimiterRemembersManyRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &counting{Driver: memory.NewLimit()}
		l := open(t, d, limit.Config{})
		const keys = 100
		for range 3 { // allowed, refused, and refused without a call
			d.count()
			for i := range keys {
				if _, err := l.Allow(t.Context(), fmt.Sprint("k", i), rates(limit.PerHour(1))); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := d.count(); n != 0 {
			t.Errorf("%d of %d refusals were forgotten", n, keys)
		}
	})
}

func TestALimiterNeedsADriver(t *testing.T) {
	if _, err := limit.New(nil, limit.Config{}); err == nil {
		t.Error("a Limiter without a driver")
	}
}

func TestWithReturnsTheErrorOfTheFunction(t *testing.T) {
	inTime(t, limit.Config{}, func(t *testing.T, l *limit.Limiter) {
		failed := errors.New("failed")
		err := l.With(t.Context(), "k", rates(limit.PerSecond(1)), func(_ context.Context, p *limit.Permit) error {
			if p.Cost() != 1 || p.At().IsZero() || p.Degraded() {
				t.Errorf("got %+v", p)
			}
			return failed
		})
		if err != failed {
			t.Errorf("got %v", err)
		}
		err = l.With(t.Context(), "k", rates(limit.PerSecond(1)), func(context.Context, *limit.Permit) error { return nil }, limit.MaxWait(0))
		if !errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v", err)
		}
	})
}

func BenchmarkAllow(b *testing.B) {
	l, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	for name, m := range map[string]limit.Limit{
		"allowed": rates(limit.Rate{N: limit.MaxN, Per: time.Second}),
		"two":     rates(limit.Rate{N: limit.MaxN, Per: time.Second}, limit.PerDay(limit.MaxN)),
		"refused": rates(limit.PerHour(1)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(b.Context(), name, m)
			}
		})
	}
}

// Rates that differ by less than a microsecond beyond the rounding have logs of their
// own, also with a Slack that is no whole number of microseconds.
func TestSlackKeepsRatesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, memory.NewLimit(), limit.Config{})
		m := limit.Limit{Rates: []limit.Rate{{N: 4, Per: 10*time.Millisecond + 500}, {N: 4, Per: 10*time.Millisecond + 1100}}, Slack: 900}
		for i := range 5 {
			if got := allow(t, l, m); got.Allowed != (i < 4) {
				t.Errorf("call %d: got %+v", i, got)
			}
		}
	})
}
