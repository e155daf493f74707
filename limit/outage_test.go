package limit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock"
	lockdriver "github.com/megaframework/mega/lock/driver"
)

// remote is a driver in memory that acts like one with a network.
type remote struct {
	driver.Driver
	mu    sync.Mutex                                                                           // guards the field below
	fault func(ctx context.Context, take func() (driver.Answer, error)) (driver.Answer, error) // nil for none
}

func newRemote() *remote { return &remote{Driver: memory.NewLimit()} }

func (r *remote) Info() driver.Info { return driver.Info{Name: "remote", Scope: driver.Fleet} }

func (r *remote) set(fault func(context.Context, func() (driver.Answer, error)) (driver.Answer, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

func (r *remote) Take(ctx context.Context, q driver.Request) (driver.Answer, error) {
	r.mu.Lock()
	fault := r.fault
	r.mu.Unlock()
	take := func() (driver.Answer, error) { return r.Driver.Take(ctx, q) }
	if fault == nil {
		return take()
	}
	return fault(ctx, take)
}

// List fails as Take does, and is not called otherwise.
func (r *remote) List(ctx context.Context, _ string) ([]driver.State, error) {
	_, err := r.fault(ctx, nil)
	return nil, err
}

// Settle fails as Take does, while there is a fault.
func (r *remote) Settle(ctx context.Context, s driver.Settlement) error {
	if r.fault == nil {
		return errors.Join(ctx.Err(), r.Driver.Settle(ctx, s))
	}
	_, err := r.fault(ctx, nil)
	return err
}

var errBroken = errors.New("broken pipe")

// refuse fails at once.
func refuse(context.Context, func() (driver.Answer, error)) (driver.Answer, error) {
	return driver.Answer{}, errBroken
}

// hang does not answer.
func hang(ctx context.Context, _ func() (driver.Answer, error)) (driver.Answer, error) {
	<-ctx.Done()
	return driver.Answer{}, ctx.Err()
}

// loseReply executes the call and loses the answer.
func loseReply(_ context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
	_, _ = take()
	return driver.Answer{}, errBroken
}

// far runs f on fake time with a Limiter on a remote driver.
func far(t *testing.T, f func(t *testing.T, l *limit.Limiter, r *remote, events func() []limit.Event)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []limit.Event
		r := newRemote()
		l := open(t, r, limit.Config{Observer: observe(func(e limit.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e)
		})})
		f(t, l, r, func() []limit.Event {
			mu.Lock()
			defer mu.Unlock()
			return seen
		})
	})
}

func TestAListThatIsNotAnsweredNamesItsOwnTimeout(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(func(ctx context.Context, _ func() (driver.Answer, error)) (driver.Answer, error) {
			<-ctx.Done()
			return driver.Answer{}, ctx.Err()
		})
		_, err := l.List(t.Context(), "orders")
		if !errors.Is(err, limit.ErrUnavailable) || !strings.Contains(err.Error(), `list "orders": `) || !strings.Contains(err.Error(), "no answer within 10s") {
			t.Errorf("got %v", err)
		}
	})
}

// A hub of another version never answers, and the reason names both versions. L24
func TestACallThatIsNotAnsweredHasTheReasonOfTheDriver(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(func(ctx context.Context, _ func() (driver.Answer, error)) (driver.Answer, error) {
			<-ctx.Done()
			return driver.Answer{}, fmt.Errorf("the hub has version 9, this process version 2: %w", ctx.Err())
		})
		_, err := l.Allow(t.Context(), "orders", limit.Limit{Rates: []limit.Rate{limit.PerMinute(5)}})
		if !errors.Is(err, limit.ErrUnavailable) || !strings.HasSuffix(err.Error(), "no answer within 1s: the hub has version 9, this process version 2") {
			t.Errorf("got %v", err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of the own timeout is the end of the context: %v", err)
		}
	})
}

// mute is a driver whose backend does not answer the calls that begin before back
// is closed.
type mute struct {
	driver.Driver
	back chan struct{}
}

func (m mute) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	if err := m.silence(ctx); err != nil {
		return driver.Answer{}, err
	}
	return m.Driver.Take(ctx, r)
}

func (m mute) Withdraw(ctx context.Context, r driver.Request) error {
	if err := m.silence(ctx); err != nil {
		return err
	}
	return m.Driver.Withdraw(ctx, r)
}

func (m mute) silence(ctx context.Context) error {
	select {
	case <-m.back:
		return nil
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

// W11: calls that wait for their turn in the process do not wait for the outages of
// the calls ahead of them. The later ones meet the first one as it withdraws.
func TestClosedFailsWithinASecondInALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, mute{newRemote(), nil}, limit.Config{})
		var calls sync.WaitGroup
		for range 3 {
			for range 5 {
				calls.Go(func() {
					start := time.Now()
					if _, err := l.Wait(t.Context(), "k", rates(limit.PerSecond(1))); !errors.Is(err, limit.ErrUnavailable) {
						t.Errorf("got %v", err)
					}
					if took := time.Since(start); took > time.Second {
						t.Errorf("Wait took %v", took)
					}
				})
			}
			time.Sleep(700 * time.Millisecond)
		}
		calls.Wait()
	})
}

// W11: nor do they wait for the units of a share ahead of them, or for each call that
// an outage allows.
func TestClosedFailsWithinASecondBehindOtherOutages(t *testing.T) {
	for name, policy := range map[string]limit.Outage{"open": limit.Open, "share": limit.Share(0.5)} {
		for kind, fault := range map[string]func(context.Context, func() (driver.Answer, error)) (driver.Answer, error){"refuse": refuse, "hang": hang} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
					r.set(fault)
					ctx, stop := context.WithCancel(t.Context())
					var ahead, calls sync.WaitGroup
					for range 5 {
						ahead.Go(func() {
							_, _ = l.Wait(ctx, "k", limit.Limit{Rates: []limit.Rate{limit.PerHour(2)}, Outage: policy})
						})
					}
					synctest.Wait()
					for range 40 {
						calls.Go(func() {
							start := time.Now()
							if _, err := l.Wait(ctx, "k", rates(limit.PerSecond(1))); !errors.Is(err, limit.ErrUnavailable) {
								t.Errorf("got %v", err)
							}
							if took := time.Since(start); took > time.Second {
								t.Errorf("Wait took %v", took)
							}
						})
						time.Sleep(130 * time.Millisecond)
					}
					calls.Wait()
					stop()
					ahead.Wait()
				})
			})
		}
	}
}

// W11: a call that has waited for minutes fails a second after the backend, and a new
// one is not limited by what the backend or the share has said before.
func TestClosedFailsWithinASecondBehindAShareThatWaits(t *testing.T) {
	for kind, fault := range map[string]func(context.Context, func() (driver.Answer, error)) (driver.Answer, error){"refuse": refuse, "hang": hang} {
		t.Run(kind, func(t *testing.T) {
			far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
				m := rates(limit.PerHour(2))
				share := limit.Limit{Rates: m.Rates, Outage: limit.Share(0.5)}
				wait(t, l, m, limit.Cost(2))
				r.set(refuse)
				if !allow(t, l, share).Degraded { // the share is used up, too
					t.Error("the backend has answered")
				}
				r.set(nil)
				time.Sleep(3 * time.Second)
				ctx, stop := context.WithCancel(t.Context())
				var ahead, calls sync.WaitGroup
				ahead.Go(func() { _, _ = l.Wait(ctx, "k", share) })
				synctest.Wait()
				var failed time.Time
				calls.Go(func() {
					if _, err := l.Wait(ctx, "k", m); !errors.Is(err, limit.ErrUnavailable) {
						t.Errorf("got %v", err)
					}
					failed = time.Now()
				})
				time.Sleep(5 * time.Minute)
				r.set(fault)
				begin := time.Now()
				time.Sleep(2500 * time.Millisecond) // the call ahead asks once a second
				if _, err := l.Wait(ctx, "k", m, limit.MaxWait(10*time.Second)); !errors.Is(err, limit.ErrUnavailable) {
					t.Errorf("a new call: got %v", err)
				}
				time.Sleep(10 * time.Second)
				stop()
				calls.Wait()
				if took := failed.Sub(begin); took > 3*time.Second { // the request of the call ahead, its second, and the call's own
					t.Errorf("the call failed %v after the backend", took)
				}
				ahead.Wait()
			})
		})
	}
}

// A call asks for itself, in what is left of its second, when the backend has not
// answered the end of the call ahead.
func TestACallBehindAFailedOneIsServedWhenTheBackendAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		l := open(t, mute{newRemote(), back}, limit.Config{})
		m := rates(limit.PerSecond(100))
		if _, err := l.Wait(t.Context(), "k", m); !errors.Is(err, limit.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		time.Sleep(100 * time.Millisecond)
		close(back) // the withdrawal, which has begun before, fails 900 ms later
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				if _, err := l.Wait(t.Context(), "k", m); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		calls.Wait()
	})
}

// The calls behind one that has met the outage wait when the backend answers it.
func TestTheEndOfAnOutageEndsItInALine(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := rates(limit.PerMinute(1))
		wait(t, l, m)
		r.set(refuse)
		share := limit.Limit{Rates: m.Rates, Outage: limit.Share(1)}
		if !wait(t, l, share).Degraded() {
			t.Error("the backend has answered")
		}
		var calls sync.WaitGroup
		calls.Go(func() {
			if p, err := l.Wait(t.Context(), "k", share); err != nil || p.Degraded() {
				t.Errorf("got %+v, %v", p, err)
			}
		})
		synctest.Wait()
		r.set(nil)
		time.Sleep(3 * time.Second)
		calls.Go(func() {
			if _, err := l.Wait(t.Context(), "k", m); err != nil {
				t.Error(err)
			}
		})
		calls.Wait()
	})
}

func TestClosedFailsWithinASecond(t *testing.T) {
	for name, fault := range map[string]func(context.Context, func() (driver.Answer, error)) (driver.Answer, error){"refuse": refuse, "hang": hang} {
		t.Run(name, func(t *testing.T) {
			far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
				r.set(fault)
				m, start := rates(limit.PerSecond(1)), time.Now()
				if _, err := l.Allow(t.Context(), "k", m); !errors.Is(err, limit.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took > time.Second {
					t.Errorf("Allow took %v", took)
				}
				start = time.Now()
				if _, err := l.Wait(t.Context(), "k", m); !errors.Is(err, limit.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took > time.Second {
					t.Errorf("Wait took %v", took)
				}
			})
		})
	}
}

func TestAListThatFailedIsNotEmpty(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(refuse)
		if states, err := l.List(t.Context(), ""); !errors.Is(err, limit.ErrUnavailable) || !errors.Is(err, errBroken) {
			t.Errorf("got %v, %v", states, err)
		}
	})
}

func TestASettleThatFailedIsNotCounted(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		p := wait(t, l, rates(limit.PerHour(2)), limit.Cost(2))
		r.set(hang)
		if err := p.Settle(t.Context(), 1); !errors.Is(err, limit.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		r.set(nil)
		if err := p.Settle(t.Context(), 1); err != nil || l.Stats().Settled != 0 {
			t.Errorf("again: got %v, %d counted", err, l.Stats().Settled)
		}
		ended, cancel := context.WithCancel(t.Context())
		p = wait(t, l, rates(limit.PerMinute(2)), limit.Cost(2))
		cancel()
		if err := p.Settle(ended, 1); err != nil || l.Stats().Settled != 1 {
			t.Errorf("with an ended context: got %v, %d counted", err, l.Stats().Settled)
		}
	})
}

func TestCallsThatAnOutageRefusesAreReported(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, events func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerHour(1)}}
		r.set(hang)
		_, allowed := l.Allow(t.Context(), "k", m)
		_, waited := l.Wait(t.Context(), "k", m, limit.Cost(1))
		_, _ = l.Allow(t.Context(), "k", m, limit.Cost(0))
		if !errors.Is(allowed, limit.ErrUnavailable) || !errors.Is(waited, limit.ErrUnavailable) {
			t.Fatalf("got %v and %v", allowed, waited)
		}
		n := 0
		for _, e := range events() {
			if e, ok := e.(limit.Refused); ok {
				n++
				if !errors.Is(e.Err, limit.ErrUnavailable) || e.Key != "k" || e.Cost != 1 {
					t.Errorf("got %+v", e)
				}
			}
		}
		if s := l.Stats(); n != 2 || s.Refused != 2 || s.Local != 0 {
			t.Errorf("%d events, %+v", n, s)
		}
	})
}

func TestOutageIsReportedOnceAndEndsByItself(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, events func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerHour(1)}, Outage: limit.Open}
		r.set(hang)
		for range 5 {
			if got := allow(t, l, m); !got.Allowed || !got.Degraded {
				t.Errorf("got %+v", got)
			}
			time.Sleep(time.Second)
		}
		if l.Unavailable() == nil || !l.Stats().Unavailable {
			t.Error("the outage is not shown")
		}
		start := time.Now()
		if p := wait(t, l, m); !p.Degraded() || p.Cancel(t.Context()) != nil || time.Since(start) != 0 {
			t.Errorf("got %+v after %v", p, time.Since(start))
		}
		r.set(nil)
		time.Sleep(2 * time.Second)
		if got := allow(t, l, m); !got.Allowed || got.Degraded {
			t.Errorf("got %+v", got)
		}
		if got := allow(t, l, m); got.Allowed {
			t.Errorf("got %+v", got)
		}
		var lost, back []limit.Event
		for _, e := range events() {
			switch e := e.(type) {
			case limit.Unavailable:
				lost = append(lost, e)
			case limit.Available:
				back = append(back, e)
				if e.Degraded != 6 || e.After == 0 {
					t.Errorf("got %+v", e)
				}
			}
		}
		if len(lost) != 1 || len(back) != 1 {
			t.Errorf("reported %v and %v", lost, back)
		}
		if s := l.Stats(); s.Degraded != 6 || s.Settled != 0 || s.Unavailable { // the degraded permit had no units of the backend
			t.Errorf("got %+v", s)
		}
	})
}

// Each outage is reported with the calls that were allowed during it alone.
func TestTheEndOfAnOutageCountsItsCalls(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, events func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(1)}, Outage: limit.Open}
		r.set(func(context.Context, func() (driver.Answer, error)) (driver.Answer, error) {
			r.set(nil)
			return driver.Answer{}, driver.ErrUnavailable
		})
		if got := allow(t, l, m); !got.Degraded { // without an outage
			t.Errorf("got %+v", got)
		}
		time.Sleep(2 * time.Second)
		for _, calls := range []int{3, 2} {
			r.set(refuse)
			for range calls {
				allow(t, l, m)
				synctest.Wait() // the watch has seen the outage
			}
			r.set(nil)
			time.Sleep(2 * time.Second)
		}
		var counts []uint64
		for _, e := range events() {
			if e, ok := e.(limit.Available); ok {
				counts = append(counts, e.Degraded)
			}
		}
		if !slices.Equal(counts, []uint64{3, 2}) {
			t.Errorf("got %v, want [3 2]", counts)
		}
	})
}

// A driver may tell a waiter to ask again later than the waiter has time.
func TestAWaitEndsAtItsDeadline(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		var asked []time.Duration
		start := time.Now()
		r.set(func(context.Context, func() (driver.Answer, error)) (driver.Answer, error) {
			asked = append(asked, time.Since(start))
			return driver.Answer{Wait: time.Second, Again: time.Minute}, nil
		})
		var behind sync.WaitGroup
		behind.Go(func() {
			time.Sleep(time.Second / 2)
			_, err := l.Wait(t.Context(), "k", rates(limit.PerSecond(1)), limit.MaxWait(time.Second))
			if took := time.Since(start); !errors.Is(err, limit.ErrLimited) || took != 1500*time.Millisecond {
				t.Errorf("the call behind it: got %v after %v", err, took)
			}
		})
		_, err := l.Wait(t.Context(), "k", rates(limit.PerSecond(1)), limit.MaxWait(2*time.Second))
		if !errors.Is(err, limit.ErrLimited) || !slices.Equal(asked, []time.Duration{0, 2 * time.Second}) {
			t.Errorf("got %v, asked after %v, want a last request at the deadline", err, asked)
		}
		behind.Wait()
	})
}

func TestShareAllowsAPartInEachProcess(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerMinute(10), limit.PerHour(100)}, Outage: limit.Share(0.35)}
		r.set(refuse)
		for i := range 5 {
			if got := allow(t, l, m); got.Allowed != (i < 3) || !got.Degraded {
				t.Errorf("call %d: got %+v", i, got)
			}
		}
		start := time.Now()
		p, err := l.Wait(t.Context(), "k", m)
		if err != nil || !p.Degraded() || time.Since(start) != time.Minute {
			t.Errorf("got %+v, %v after %v", p, err, time.Since(start))
		}
		one := limit.Limit{Rates: []limit.Rate{limit.PerMinute(10)}, Outage: limit.Share(0.01)}
		got, err := l.Allow(t.Context(), "other", one, limit.Cost(10))
		if err != nil || !got.Allowed {
			t.Errorf("got %+v, %v, want at least one", got, err)
		}
		hundredths := limit.Limit{Rates: []limit.Rate{limit.PerMinute(100)}, Outage: limit.Share(0.29)} // 28.999… in floating point
		if got, err := l.Allow(t.Context(), "parts", hundredths, limit.Cost(1)); err != nil || got.Remaining != 28 {
			t.Errorf("got %+v, %v, want 28 of 29 left", got, err)
		}
	})
}

// The next call does not wait for the end of a call of which the lost backend knows
// nothing.
func TestCallsThatGiveUpLeaveTheShareToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, mute{newRemote(), nil}, limit.Config{})
		m := limit.Limit{Rates: []limit.Rate{{N: 2, Per: 200 * time.Millisecond}}, Outage: limit.Share(0.5)}
		allow(t, l, m)
		time.Sleep(3 * time.Second)
		var allowed atomic.Int32
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(120*time.Millisecond, cancel).Stop()
				if _, err := l.Wait(ctx, "k", m); err == nil {
					allowed.Add(1)
				}
				cancel()
			})
			time.Sleep(50 * time.Millisecond)
		}
		calls.Wait()
		if n := allowed.Load(); n < 45 || n > 51 {
			t.Errorf("%d calls were allowed in 10 s, want 50: the share is one in 200 ms", n)
		}
	})
}

func TestCallOfAPresentBackendIsNotDegraded(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, events func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(1)}, Outage: limit.Open}
		var once sync.Once
		r.set(func(ctx context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
			broken := false
			once.Do(func() { broken = true })
			if broken {
				return driver.Answer{}, errBroken
			}
			return take()
		})
		if got := allow(t, l, m); !got.Degraded { // this call has failed
			t.Errorf("got %+v", got)
		}
		synctest.Wait()
		for _, e := range events() {
			if _, lost := e.(limit.Unavailable); lost {
				t.Errorf("an outage was reported: %+v", e)
			}
		}
		if got := allow(t, l, m); got.Degraded {
			t.Errorf("got %+v", got)
		}
	})
}

func TestLostReplyIsAskedForAgain(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		var once sync.Once
		r.set(func(ctx context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
			a, err := take()
			once.Do(func() { a, err = driver.Answer{}, errBroken })
			return a, err
		})
		wait(t, l, rates(limit.PerMinute(2)))
		if s, err := l.Inspect(t.Context(), "k"); err != nil || s.Rates[0].Used != 1 {
			t.Errorf("got %+v, %v, want one unit used", s, err)
		}
	})
}

func TestUnseenGrantIsReturned(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		ctx, cancel := context.WithCancel(t.Context())
		r.set(func(ctx context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
			_, _ = take()
			cancel()
			<-ctx.Done()
			return driver.Answer{}, ctx.Err()
		})
		if _, err := l.Wait(ctx, "k", rates(limit.PerMinute(1))); !errors.Is(err, context.Canceled) || !errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v", err)
		}
		r.set(nil)
		synctest.Wait()
		if got := allow(t, l, rates(limit.PerMinute(1))); !got.Allowed {
			t.Errorf("got %+v, want the unit back", got)
		}
	})
}

// So is one that has followed its Outage meanwhile, also with a call behind it.
func TestUnseenGrantIsReturnedAfterAShare(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerHour(2)}, Outage: limit.Share(0.5)}
		r.set(refuse)
		if !wait(t, l, m).Degraded() { // the share of this process
			t.Error("the backend has answered")
		}
		r.set(nil)
		time.Sleep(3 * time.Second)
		r.set(loseReply)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				if _, err := l.Wait(ctx, "k", m); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
			synctest.Wait()
		}
		cancel()
		calls.Wait()
		synctest.Wait()
		if s, err := r.Inspect(t.Context(), "k", m.Rates); err != nil || s.Rates[0].Used != 0 || len(s.Waiters) != 0 {
			t.Errorf("the backend has %+v, %v, want nothing", s, err)
		}
	})
}

// A ticket at the backend ends with its call, also if the call has followed its Outage
// since. W7
func TestATicketIsWithdrawnAfterAShare(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerHour(4)}, Outage: limit.Share(0.5)}
		wait(t, l, m, limit.Cost(4))
		ctx, cancel := context.WithCancel(t.Context())
		var waiter sync.WaitGroup
		r.set(refuse)
		if !allow(t, l, m).Degraded { // one of two units of the share
			t.Error("the backend has answered")
		}
		r.set(nil)
		time.Sleep(3 * time.Second)
		waiter.Go(func() {
			if _, err := l.Wait(ctx, "k", m, limit.Cost(2)); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		r.set(loseReply) // the backend hears of the ticket once more
		time.Sleep(2500 * time.Millisecond)
		cancel()
		waiter.Wait()
		synctest.Wait()
		if s, err := r.Inspect(t.Context(), "k", m.Rates); err != nil || len(s.Waiters) != 0 {
			t.Errorf("the backend has the tickets %+v, %v", s.Waiters, err)
		}
		if got := allow(t, l, m); !got.Allowed || !got.Degraded {
			t.Errorf("got %+v, want the other unit of the share", got)
		}
	})
}

// delayed makes the first request fail, and returns a function that lets it arrive.
func delayed(r *remote) (arrive func() (driver.Answer, error)) {
	var late func() (driver.Answer, error)
	r.set(func(_ context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
		if late == nil {
			late = take
			return driver.Answer{}, errBroken
		}
		return take()
	})
	return func() (driver.Answer, error) { return late() }
}

// A copy of a request that arrives after its refusal takes no units (W6).
func TestLateCopyOfARefusedRequestConsumesNothing(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := rates(limit.Rate{N: 1, Per: 2 * time.Second})
		wait(t, l, m)
		late := delayed(r)
		if _, err := l.Wait(t.Context(), "k", m, limit.MaxWait(time.Second)); !errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v", err)
		}
		time.Sleep(3 * time.Second)
		if a, err := late(); err != nil || a.Granted {
			t.Errorf("the copy: got %+v, %v", a, err)
		}
		if got := allow(t, l, m); !got.Allowed {
			t.Errorf("got %+v, want the unit", got)
		}
	})
}

// So does a copy of one that the share of the process has made wait meanwhile.
func TestLateCopyOfARequestAfterAShareConsumesNothing(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{{N: 1, Per: 4 * time.Second}}, Outage: limit.Share(1)}
		r.set(refuse)
		if !wait(t, l, m).Degraded() {
			t.Error("the backend has answered")
		}
		r.set(nil)
		time.Sleep(2 * time.Second)
		if wait(t, l, m).Degraded() { // the backend has its next unit after the share
			t.Error("the backend has not answered")
		}
		late := delayed(r)
		if _, err := l.Wait(t.Context(), "k", m, limit.MaxWait(3*time.Second)); !errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v", err)
		}
		time.Sleep(4 * time.Second)
		if a, err := late(); err != nil || a.Granted {
			t.Errorf("the copy: got %+v, %v", a, err)
		}
	})
}

// The share of a process has refused a call, and not the backend: nothing is remembered.
func TestARefusalByTheShareIsNotRemembered(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{limit.PerHour(1)}, Outage: limit.Share(1)}
		r.set(refuse)
		if !wait(t, l, m).Degraded() {
			t.Error("the backend has answered")
		}
		synctest.Wait()
		r.set(nil)
		refused := 0
		for ; l.Unavailable() != nil; refused++ {
			if _, err := l.Wait(t.Context(), "k", m, limit.MaxWait(0)); !errors.Is(err, limit.ErrLimited) {
				t.Errorf("got %v", err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if wait(t, l, m, limit.MaxWait(0)).Degraded() || refused == 0 {
			t.Errorf("the backend has not answered after %d refusals by the share", refused)
		}
	})
}

func TestUnknownOutcomeOfAllowIsConsumed(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(loseReply)
		if _, err := l.Allow(t.Context(), "k", rates(limit.PerMinute(1))); !errors.Is(err, limit.ErrUnavailable) || !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
		r.set(nil)
		if got := allow(t, l, rates(limit.PerMinute(1))); got.Allowed {
			t.Errorf("got %+v", got)
		}
	})
}

func TestCallersEndIsNotAnOutage(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(hang)
		for _, policy := range []limit.Outage{limit.Closed, limit.Open, limit.Share(1)} {
			m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(1)}, Outage: policy}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := l.Allow(ctx, "k", m)
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, limit.ErrUnavailable) {
				t.Errorf("%v: got %v", policy, err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err = l.Wait(ctx, "k", m)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, limit.ErrLimited) || errors.Is(err, limit.ErrUnavailable) {
				t.Errorf("%v: Wait returned %v", policy, err)
			}
		}
		if l.Unavailable() != nil {
			t.Error("the backend counts as lost")
		}
	})
}

// Nor is it a failure of a call that the backend has refused to answer before.
func TestTheEndOfACallThatAsksAgainIsNotAnOutage(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(refuse)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		_, err := l.Wait(ctx, "k", rates(limit.PerHour(1)))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, limit.ErrLimited) || errors.Is(err, limit.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

// One request has failed, and the next one is not answered within the second: whether
// the limit is used up is not known. W11
func TestASecondWithoutAnAnswerIsNotALimit(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		var n atomic.Int32
		r.set(func(ctx context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
			switch n.Add(1) {
			case 1:
				return refuse(ctx, take)
			case 2:
				return take() // the question whether the backend is lost
			}
			return hang(ctx, take)
		})
		_, err := l.Wait(t.Context(), "k", rates(limit.PerHour(1)))
		if !errors.Is(err, limit.ErrUnavailable) || errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

// A backend that does not answer may use up the deadline of each call. W11
func TestCallsWithShortDeadlinesFindALoss(t *testing.T) {
	brief := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	for name, call := range map[string]func(ctx context.Context, l *limit.Limiter) error{
		"Allow": func(ctx context.Context, l *limit.Limiter) error {
			_, err := l.Allow(ctx, "k", rates(limit.PerHour(1)))
			return err
		},
		"Wait": func(ctx context.Context, l *limit.Limiter) error {
			_, err := l.Wait(ctx, "k", rates(limit.PerHour(1)))
			return err
		},
		"List": func(ctx context.Context, l *limit.Limiter) error { _, err := l.List(ctx, ""); return err },
	} {
		t.Run(name, func(t *testing.T) {
			far(t, func(t *testing.T, l *limit.Limiter, r *remote, events func() []limit.Event) {
				r.set(hang)
				if err := call(brief(t), l); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				time.Sleep(2 * time.Second) // the probe has failed
				if !errors.Is(l.Unavailable(), limit.ErrUnavailable) || len(events()) == 0 {
					t.Fatalf("the loss is not found: %v, %v", l.Unavailable(), events())
				}
				m := rates(limit.PerHour(1))
				m.Outage = limit.Open
				if got, err := l.Allow(brief(t), "k", m); err != nil || !got.Allowed || !got.Degraded {
					t.Errorf("Open: got %+v, %v", got, err)
				}
				for _, closed := range []func(context.Context, *limit.Limiter) error{
					func(ctx context.Context, l *limit.Limiter) error {
						_, err := l.Allow(ctx, "k", rates(limit.PerHour(1)))
						return err
					},
					func(ctx context.Context, l *limit.Limiter) error {
						_, err := l.Wait(ctx, "k", rates(limit.PerHour(1)))
						return err
					},
				} {
					if err := closed(brief(t), l); !errors.Is(err, limit.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, limit.ErrLimited) {
						t.Errorf("Closed: got %v", err)
					}
				}
			})
		})
	}
}

// Its time is over before the call ahead of it has met the outage.
func TestACallBehindAnotherInAnOutageIsNotLimited(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(hang)
		m := rates(limit.PerSecond(1))
		if _, err := l.Allow(t.Context(), "other", m); !errors.Is(err, limit.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * time.Second)
		var first sync.WaitGroup
		first.Go(func() { _, _ = l.Wait(t.Context(), "k", m) })
		synctest.Wait()
		if _, err := l.Wait(t.Context(), "k", m, limit.MaxWait(500*time.Millisecond)); !errors.Is(err, limit.ErrUnavailable) || errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v", err)
		}
		first.Wait()
	})
}

func TestOutagesHaveNames(t *testing.T) {
	for want, o := range map[string]limit.Outage{"closed": limit.Closed, "open": limit.Open, "share(0.25)": limit.Share(0.25)} {
		if o.String() != want {
			t.Errorf("got %q, want %q", o, want)
		}
	}
}

func TestAnOutageThatEndedInATimeoutIsNotALimit(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(func(context.Context, func() (driver.Answer, error)) (driver.Answer, error) {
			return driver.Answer{}, fmt.Errorf("%w: dial: %w", driver.ErrUnavailable, context.DeadlineExceeded)
		})
		_, err := l.Wait(t.Context(), "k", rates(limit.PerMinute(1)))
		if !errors.Is(err, limit.ErrUnavailable) || errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

// broken is a driver of locks whose requests all fail.
type broken struct {
	lockdriver.Driver
	err error
}

func (b broken) Acquire(context.Context, lockdriver.Request) (lockdriver.Grant, error) {
	return lockdriver.Grant{}, b.err
}

func TestAnErrorOfTheLockerIsAnErrorOfTheLimit(t *testing.T) {
	for from, to := range map[error]error{
		lock.ErrUnavailable: limit.ErrUnavailable, lock.ErrUnsupported: limit.ErrUnsupported, lock.ErrClosed: limit.ErrClosed,
	} {
		synctest.Test(t, func(t *testing.T) {
			locker, err := lock.New(broken{memory.NewLock(), from}, lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = locker.Close(t.Context()) }()
			l := open(t, memory.NewLimit(), limit.Config{Locker: locker})
			m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
			_, err = l.Wait(t.Context(), "k", m)
			coded, ok := errors.AsType[interface {
				error
				Code() string
			}](err)
			if !errors.Is(err, to) || !errors.Is(err, from) || !ok || !strings.HasPrefix(coded.Code(), "limit.") {
				t.Errorf("got %v, want %v with %v", err, to, from)
			}
		})
	}
}

// W11: a call that has waited long for its turn fails after a second without an
// answer, and not because of one request.
func TestACallThatHasWaitedLongOutlivesAMoment(t *testing.T) {
	once := func(r *remote) func(context.Context, func() (driver.Answer, error)) (driver.Answer, error) {
		return func(context.Context, func() (driver.Answer, error)) (driver.Answer, error) {
			r.set(nil)
			return driver.Answer{}, errBroken
		}
	}
	for name, policy := range map[string]limit.Outage{"open": limit.Open, "share": limit.Share(0.5)} {
		t.Run("behind "+name, func(t *testing.T) {
			far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
				m := rates(limit.Rate{N: 2, Per: 10 * time.Second})
				other := limit.Limit{Rates: m.Rates, Outage: policy}
				wait(t, l, m)
				wait(t, l, m)
				var calls sync.WaitGroup
				for _, m := range []limit.Limit{other, m, other, m} {
					calls.Go(func() {
						if _, err := l.Wait(t.Context(), "k", m, limit.Cost(2)); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				for range 2 { // the second moment is another outage of the queue
					time.Sleep(5 * time.Second)
					r.set(once(r))
					time.Sleep(10 * time.Second)
				}
				calls.Wait()
			})
		})
	}
}

// The same behind a call that is cancelled, and whose withdrawal fails.
func TestACallThatHasWaitedLongOutlivesAFailedWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deaf{newRemote()}
		l := open(t, d, limit.Config{})
		m := rates(limit.Rate{N: 1, Per: 10 * time.Second})
		wait(t, l, m)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := l.Wait(ctx, "k", m); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		calls.Go(func() {
			if _, err := l.Wait(t.Context(), "k", m); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(5 * time.Second)
		asks := make(chan struct{})
		d.set(func(ctx context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
			d.set(nil)
			close(asks)
			return hang(ctx, take)
		})
		<-asks
		cancel()
		calls.Wait()
	})
}

// deaf is a remote driver whose withdrawals fail.
type deaf struct{ *remote }

func (deaf) Withdraw(context.Context, driver.Request) error { return errBroken }

// cut is a driver whose Withdraw fails as Take does.
type cut struct{ *remote }

func (c cut) Withdraw(ctx context.Context, q driver.Request) error {
	c.mu.Lock()
	fault := c.fault
	c.mu.Unlock()
	if fault == nil {
		return c.remote.Withdraw(ctx, q)
	}
	_, err := fault(ctx, nil)
	return err
}

// W11: the second of a call begins with the withdrawal of the one ahead, which is not
// answered.
func TestClosedFailsWithinASecondBehindAWithdrawal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		l := open(t, cut{r}, limit.Config{})
		m := rates(limit.PerHour(1))
		wait(t, l, m)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := l.Wait(ctx, "k", m); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		time.Sleep(300 * time.Millisecond)
		r.set(hang)
		cancel() // nobody is behind it: its ticket is withdrawn
		synctest.Wait()
		start := time.Now()
		if _, err := l.Wait(t.Context(), "k", m); !errors.Is(err, limit.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Wait took %v", took)
		}
		time.Sleep(2 * time.Second)
		if l.Unavailable() == nil {
			t.Error("the backend does not count as lost")
		}
		calls.Wait()
	})
}

// gone is a driver whose backend answers nothing while it is away.
type gone struct {
	driver.Driver
	away *atomic.Bool
}

func (gone) Info() driver.Info { return driver.Info{Name: "gone", Scope: driver.Fleet} }

func (g gone) answer() error {
	if g.away.Load() {
		return errBroken
	}
	return nil
}

func (g gone) Take(context.Context, driver.Request) (driver.Answer, error) {
	return driver.Answer{}, g.answer()
}

func (g gone) Inspect(context.Context, string, []driver.Rate) (driver.State, error) {
	return driver.State{}, g.answer()
}

func (g gone) List(context.Context, string) ([]driver.State, error) { return nil, g.answer() }

func (g gone) Pause(context.Context, string, driver.Pause) error { return g.answer() }

func (g gone) Reset(context.Context, string) error { return g.answer() }

// The first call that fails finds a loss, also where it asks for no units.
func TestEachCallFindsALoss(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, l *limit.Limiter) error{
		"Peek": func(ctx context.Context, l *limit.Limiter) error {
			_, err := l.Peek(ctx, "k", rates(limit.PerHour(1)))
			return err
		},
		"Inspect": func(ctx context.Context, l *limit.Limiter) error { _, err := l.Inspect(ctx, "k"); return err },
		"List":    func(ctx context.Context, l *limit.Limiter) error { _, err := l.List(ctx, ""); return err },
		"Pause":   func(ctx context.Context, l *limit.Limiter) error { return l.Pause(ctx, "k", time.Second, "test") },
		"Reset":   func(ctx context.Context, l *limit.Limiter) error { return l.Reset(ctx, "k") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := gone{memory.NewLimit(), new(atomic.Bool)}
				l := open(t, d, limit.Config{})
				d.away.Store(true)
				if err := call(t.Context(), l); !errors.Is(err, limit.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
				synctest.Wait()
				if err := l.Unavailable(); !errors.Is(err, errBroken) {
					t.Errorf("the cause of the outage is %v", err)
				}
				d.away.Store(false)
				time.Sleep(2 * time.Second)
				if err := l.Unavailable(); err != nil {
					t.Errorf("after the outage Unavailable returns %v", err)
				}
			})
		})
	}
}

// The backend fails at once, and the call has less than the second in which it asks again.
func TestAWaitThatEndsInAnOutageIsNotLimited(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(refuse)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := l.Wait(ctx, "k", rates(limit.PerHour(1)))
		if !errors.Is(err, limit.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, limit.ErrLimited) {
			t.Errorf("got %v", err)
		}
	})
}

// partial is a driver without the key "bad". It records the other keys.
type partial struct {
	driver.Driver
	taken, seen atomic.Value
}

func (p *partial) Info() driver.Info { return driver.Info{Name: "partial", Scope: driver.Fleet} }

func (p *partial) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	if r.Key == "bad" {
		return driver.Answer{}, driver.ErrUnavailable
	}
	p.taken.Store(r.Key)
	return p.Driver.Take(ctx, r)
}

func (p *partial) Inspect(_ context.Context, key string, _ []driver.Rate) (driver.State, error) {
	p.seen.Store(key)
	return driver.State{}, nil
}

// On a Cluster without one of its masters, a process is ready while the master of its
// probes serves: it reports no loss then, either.
func TestPingAsksForTheKeyOfTheProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partial{Driver: memory.NewLimit()}
		l, err := limit.New(p, limit.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close(context.Background()) }()
		if err := l.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := l.Allow(t.Context(), "bad", limit.Limit{Rates: []limit.Rate{limit.PerSecond(1)}}); !errors.Is(err, limit.ErrUnavailable) {
			t.Error(err)
		}
		synctest.Wait()
		if p.taken.Load() == nil || p.taken.Load() != p.seen.Load() {
			t.Errorf("probed %v, pinged %v", p.taken.Load(), p.seen.Load())
		}
	})
}
