package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// hooked lets a test replace operations.
type hooked struct {
	driver.Driver
	scope   driver.Scope
	acquire func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error)
	renew   func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal
	release func(ctx context.Context, d driver.Driver, g driver.Grant) error
	inspect func(ctx context.Context, d driver.Driver, key string) (driver.State, error)
}

func (h *hooked) Info() driver.Info { i := h.Driver.Info(); i.Scope = h.scope; return i }
func (h *hooked) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if h.acquire != nil {
		return h.acquire(ctx, h.Driver, r)
	}
	return h.Driver.Acquire(ctx, r)
}
func (h *hooked) Renew(ctx context.Context, g []driver.Grant) []driver.Renewal {
	if h.renew != nil {
		return h.renew(ctx, h.Driver, g)
	}
	return h.Driver.Renew(ctx, g)
}
func (h *hooked) Release(ctx context.Context, g driver.Grant) error {
	if h.release != nil {
		return h.release(ctx, h.Driver, g)
	}
	return h.Driver.Release(ctx, g)
}
func (h *hooked) Inspect(ctx context.Context, key string) (driver.State, error) {
	if h.inspect != nil {
		return h.inspect(ctx, h.Driver, key)
	}
	return h.Driver.Inspect(ctx, key)
}
func (h *hooked) Close(context.Context) error { return nil }

func raw(t *testing.T, d driver.Driver, c lock.Config) *lock.Locker {
	t.Helper()
	l, err := lock.New(d, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type observer func(lock.Event)

func (o observer) Observe(e lock.Event) { o(e) }

// returns reports whether fn returns within d of fake time.
func returns(d time.Duration, fn func()) bool {
	done := make(chan struct{})
	go func() { fn(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

func TestCloseEndsLeasesThatATickHasInHand(t *testing.T) {
	for _, listening := range []bool{true, false} {
		t.Run(fmt.Sprint("listening=", listening), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := raw(t, memory.NewLock(), lock.Config{TTL: time.Second, Observer: observer(func(e lock.Event) {
					if _, ok := e.(lock.Lost); ok {
						time.Sleep(10 * time.Millisecond) // writes a log line
					}
				})})
				var leases []*lock.Lease
				for i := range 5 {
					lease := acquire(t, l, fmt.Sprint("renewed", i))
					if listening {
						lease.Context().Done()
					}
					leases = append(leases, lease)
				}
				first := acquire(t, l, "expires", lock.NoRenew(), lock.TTL(334693877)) // in the instant of the first renewals
				_ = first
				time.Sleep(325 * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				if !returns(time.Minute, func() { t.Log(l.Close(ctx)) }) {
					t.Error("Close hangs")
				}
				time.Sleep(time.Minute)
				for _, lease := range leases {
					if err := lease.Context().Err(); !errors.Is(context.Cause(lease.Context()), lock.ErrLost) {
						t.Errorf("%s: %v", lease.Key(), err)
					} else {
						var lost *lock.LostError
						errors.As(context.Cause(lease.Context()), &lost)
						t.Log(lease.Key(), lost.Cause)
					}
					_ = lease.Release()
				}
			})
		})
	}
}

func TestASecondCloseReturnsWhenAllIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := raw(t, memory.NewLock(), lock.Config{})
		stubborn := acquire(t, l, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		t.Log(l.Close(ctx))
		if !returns(time.Minute, func() { t.Log(l.Close(context.Background())) }) {
			t.Error("the second Close hangs although the first has returned")
		}
		_ = stubborn.Release()
	})
}

func TestALeaseWithoutRenewalHasItsOwnTTL(t *testing.T) {
	for _, c := range []struct{ first, second time.Duration }{{time.Second, time.Hour}, {time.Hour, time.Second}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				a, b := process(t, f, lock.Config{}), process(t, f, lock.Config{})
				held := acquire(t, a, "k")
				ctx, cancel := context.WithCancel(t.Context())
				go func() { _, _ = b.Acquire(ctx, "k", lock.NoRenew(), lock.TTL(c.first)) }()
				synctest.Wait()
				got := make(chan *lock.Lease)
				go func() { got <- acquire(t, b, "k", lock.NoRenew(), lock.TTL(c.second)) }()
				synctest.Wait()
				cancel()
				synctest.Wait()
				release(t, held)
				lease := <-got
				left, want := time.Until(lease.Deadline()), c.second-driver.Margin(c.second)
				if left < want-10*time.Millisecond || left > want {
					t.Errorf("asked for NoRenew and %v, has %v", c.second, left)
				}
				start := time.Now()
				<-lease.Context().Done()
				t.Logf("lost after %v: %v", time.Since(start), context.Cause(lease.Context()))
				_ = lease.Release()
			})
		})
	}
}

// slowRenew applies a renewal at once and answers when its time is over.
func hungReply(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
	d.Renew(ctx, g)
	<-ctx.Done()
	rs := make([]driver.Renewal, len(g))
	for i := range rs {
		rs[i].Err = ctx.Err()
	}
	return rs
}

func TestAShorterExtendEndsInTimeWithoutAnAnswer(t *testing.T) {
	for _, scope := range []driver.Scope{driver.Process, driver.Fleet} {
		t.Run(scope.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory.NewLock()
				h := &hooked{Driver: m, scope: scope, renew: hungReply}
				a, b := raw(t, h, lock.Config{TTL: 30 * time.Second}), raw(t, &hooked{Driver: m, scope: scope}, lock.Config{})
				lease := acquire(t, a, "k")
				var at atomic.Pointer[time.Time]
				stop := context.AfterFunc(lease.Context(), func() { now := time.Now(); at.Store(&now) })
				defer stop()
				start := time.Now()
				go func() { _ = lease.Extend(t.Context(), 100*time.Millisecond) }()
				next := acquire(t, b, "k")
				granted := time.Now()
				time.Sleep(5 * time.Second)
				ended := *at.Load()
				t.Logf("granted to another after %v, context ended after %v", granted.Sub(start), ended.Sub(start))
				if ended.After(granted) {
					t.Errorf("the context of the old holder ended %v after another was granted the key", ended.Sub(granted))
				}
				release(t, next)
				_ = lease.Release()
				_ = a.Close(t.Context())
				_ = b.Close(t.Context())
			})
		})
	}
}

func TestALateExtendLeavesNoGhost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewLock()
		h := &hooked{Driver: m, scope: driver.Fleet, renew: func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
			r := d.Renew(ctx, g)
			if !g[0].NoRenew {
				time.Sleep(500 * time.Millisecond) // the answer is slow
			}
			return r
		}}
		a, b := raw(t, h, lock.Config{}), raw(t, &hooked{Driver: m, scope: driver.Fleet}, lock.Config{})
		lease := acquire(t, a, "k", lock.NoRenew(), lock.TTL(2*time.Second))
		time.Sleep(1700 * time.Millisecond)
		t.Log("extend:", lease.Extend(t.Context(), 24*time.Hour))
		synctest.Wait()
		s, _ := b.Inspect(t.Context(), "k")
		if len(s.Holders) != 0 {
			t.Errorf("nobody has a lease, but the key is locked for %v", s.Holders[0].Left)
		}
		t.Log("release:", lease.Release())
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_ = b.Close(t.Context())
	})
}

func TestALossByTimeLeavesNoGhost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewLock()
		var deaf atomic.Bool
		deaf.Store(true)
		h := &hooked{Driver: m, scope: driver.Fleet, renew: func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
			if deaf.Load() {
				return hungReply(ctx, d, g)
			}
			return d.Renew(ctx, g)
		}}
		a, b := raw(t, h, lock.Config{TTL: 10 * time.Second}), raw(t, &hooked{Driver: m, scope: driver.Fleet}, lock.Config{})
		lease := acquire(t, a, "k")
		<-lease.Context().Done()
		lost := time.Now()
		deaf.Store(false)
		t.Log("release:", lease.Release())
		next := acquire(t, b, "k", lock.Wait(lock.Forever))
		if took := time.Since(lost); took > time.Second {
			t.Errorf("the lease was lost and released, the backend is back, and others waited %v", took)
		}
		release(t, next)
		_ = a.Close(t.Context())
		_ = b.Close(t.Context())
	})
}

func TestAFailedExtendIsFollowedByARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewLock()
		var n atomic.Int64
		h := &hooked{Driver: m, scope: driver.Fleet, renew: func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
			if n.Add(1) == 1 {
				return []driver.Renewal{{Err: errors.New("connection reset")}}
			}
			return d.Renew(ctx, g)
		}}
		a := process(t, h, lock.Config{TTL: 30 * time.Second})
		lease := acquire(t, a, "k")
		t.Log("extend:", lease.Extend(t.Context(), time.Second))
		time.Sleep(5 * time.Second)
		if err := lease.Context().Err(); err != nil {
			t.Errorf("after %d renewals: %v", n.Load(), context.Cause(lease.Context()))
		}
		_ = lease.Release()
		// and one whose context is over before anything was sent
		n.Store(1)
		other := acquire(t, a, "other")
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		before := other.Deadline()
		t.Log("extend:", other.Extend(dead, 100*time.Millisecond))
		if got := other.Deadline(); got.Before(before) {
			t.Logf("a dead context shortened it by %v", before.Sub(got))
		}
		_ = other.Release()
	})
}

func TestTheCauseIsThereWithTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		lease := acquire(t, l, "k", lock.NoRenew(), lock.TTL(time.Second))
		time.Sleep(2 * time.Second)
		ctx := lease.Context()
		if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("first Cause: %v; second: %v", cause, context.Cause(ctx))
		}
		_ = lease.Release()
		// the same at the instant of the deadline, with a Done channel
		for range 20 {
			lease := acquire(t, l, "k", lock.NoRenew(), lock.TTL(time.Second))
			ctx := lease.Context()
			ctx.Done()
			time.Sleep(time.Until(lease.Deadline()))
			if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
				t.Errorf("with Done: first Cause: %v; second: %v", cause, context.Cause(ctx))
			}
			_ = lease.Release()
			time.Sleep(time.Second)
		}
	})
}

func TestAForcedGrantIsNotHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, b := process(t, f, lock.Config{}), process(t, f, lock.Config{})
		lease := acquire(t, a, "k")
		got := make(chan *lock.Lease)
		go func() { got <- acquire(t, a, "k") }() // waits to be handed it
		synctest.Wait()
		if _, err := b.ForceRelease(t.Context(), "k", "deploy"); err != nil {
			t.Fatal(err)
		}
		other := acquire(t, b, "k")
		if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release of what was forced away: %v", err)
		}
		select {
		case second := <-got:
			if other.Context().Err() == nil && second.Context().Err() == nil {
				t.Errorf("two leases are live: fence %d and, handed on after the force, %d", other.Fence(), second.Fence())
			}
			_ = second.Release()
		case <-time.After(time.Nanosecond):
		}
		release(t, other)
		select {
		case second := <-got:
			_ = second.Release()
		case <-time.After(time.Second):
		}
	})
}

func TestAPushDuringARenewalIsHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewLock()
		var n atomic.Int64
		h := &hooked{Driver: m, scope: driver.Fleet, renew: func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
			r := d.Renew(ctx, g)
			if n.Add(1) == 1 {
				time.Sleep(100 * time.Millisecond)
			}
			return r
		}}
		a, b := process(t, h, lock.Config{TTL: 30 * time.Second}), process(t, &hooked{Driver: m, scope: driver.Fleet}, lock.Config{})
		lease := acquire(t, a, "k")
		done := lease.Context().Done()
		for n.Load() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := b.ForceRelease(t.Context(), "k", "deploy"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-done
		if took := time.Since(start); took > time.Second {
			t.Errorf("the push was swallowed: the context ended %v after the force", took)
		}
		_ = lease.Release()
	})
}

func TestALossInsideDoesNotHideTheOneOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		err := l.With(t.Context(), "outer", func(ctx context.Context) error {
			err := l.With(ctx, "inner", func(ctx context.Context) error {
				_, _ = l.ForceRelease(t.Context(), "inner", "one")
				<-ctx.Done()
				return nil
			})
			_, _ = l.ForceRelease(t.Context(), "outer", "two")
			<-ctx.Done()
			return err
		})
		var lost *lock.LostError
		errors.As(err, &lost)
		t.Log(err)
		if lost.Key != "outer" {
			t.Errorf("the loss of outer is hidden: %v", err)
		}
	})
}

func TestACleanUpGoesOnWhileTheBackendMayKeepTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewLock()
		var away atomic.Bool
		h := &hooked{Driver: m, scope: driver.Fleet,
			renew: func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
				return hungReply(ctx, d, g)
			},
			release: func(ctx context.Context, d driver.Driver, g driver.Grant) error {
				if away.Load() {
					return errors.New("no route to host")
				}
				return d.Release(ctx, g)
			}}
		a, b := process(t, h, lock.Config{TTL: 10 * time.Second}), process(t, &hooked{Driver: m, scope: driver.Fleet}, lock.Config{})
		lease := acquire(t, a, "k")
		time.Sleep(9 * time.Second)
		away.Store(true)
		start := time.Now()
		t.Log(lease.Release())
		time.Sleep(2500 * time.Millisecond)
		away.Store(false)
		next := acquire(t, b, "k", lock.Wait(lock.Forever))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the backend was away for 2.5s after the release, others waited %v", took)
		}
		release(t, next)
	})
}

func TestAnExtendOfThePredecessorChangesNoSuccessor(t *testing.T) {
	for _, ttl := range []time.Duration{3 * time.Second, 24 * time.Hour} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testExtendOfThePredecessor(t, ttl) })
		})
	}
}

func testExtendOfThePredecessor(t *testing.T, ttl time.Duration) {
	t.Helper()
	m := memory.NewLock()
	var slow atomic.Bool
	h := &hooked{Driver: m, scope: driver.Fleet, renew: func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
		r := d.Renew(ctx, g)
		if slow.Swap(false) {
			time.Sleep(20 * time.Millisecond)
		}
		return r
	}}
	a := process(t, h, lock.Config{})
	lease := acquire(t, a, "k")
	got := make(chan *lock.Lease)
	go func() { got <- acquire(t, a, "k") }()
	synctest.Wait()
	slow.Store(true)
	go func() { t.Log("extend:", lease.Extend(t.Context(), ttl)) }()
	time.Sleep(time.Millisecond)
	release(t, lease)
	second := <-got
	time.Sleep(time.Minute)
	s, _ := a.Inspect(t.Context(), "k")
	if len(s.Holders) != 1 || s.Holders[0].Left > 10*time.Second {
		t.Errorf("a lease with a TTL of 10s has these holders a minute after it began: %+v", s.Holders)
	}
	release(t, second)
}

func TestThePositionCountsThoseInFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewLock()
		f := func() *hooked {
			return &hooked{Driver: m, scope: driver.Fleet, inspect: func(ctx context.Context, d driver.Driver, key string) (driver.State, error) {
				time.Sleep(time.Millisecond) // a round trip
				return d.Inspect(ctx, key)
			}}
		}
		a, b, c := process(t, f(), lock.Config{}), process(t, f(), lock.Config{}), process(t, f(), lock.Config{})
		held := acquire(t, a, "k")
		go func() {
			_, err := b.Acquire(t.Context(), "k", lock.Wait(time.Second))
			var busy *lock.NotAcquiredError
			if !errors.As(err, &busy) || busy.Position != 1 {
				t.Errorf("the first of two waiters was number %d", busy.Position)
			}
		}()
		synctest.Wait()
		go func() {
			r := driver.Request{Key: "k", Token: "other-process-token-22", TTL: time.Minute, Wait: -1, Slots: 1, Fences: 1, Holder: driver.Holder{Host: "elsewhere", PID: 7}}
			_, _ = m.Acquire(t.Context(), r)
		}()
		time.Sleep(10 * time.Millisecond) // else b and c, which are one process here, send the same request
		_, err := c.Acquire(t.Context(), "k", lock.Wait(500*time.Millisecond))
		if busy, ok := errors.AsType[*lock.NotAcquiredError](err); !ok || busy.Position != 3 {
			t.Errorf("the last of three waiters got %+v", err)
		}
		time.Sleep(2 * time.Second)
		release(t, held)
	})
}

// A walk over the whole queue for each of the waiters that give up together would hold up
// the calls for all other keys: two minutes for 100 000 of them.
func TestAPositionBeyondTheMaximumIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, b := process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, a, "k")
		crowd, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for ahead := range driver.MaxPosition + 1 {
			if ahead >= driver.MaxPosition-1 {
				_, err := b.Acquire(t.Context(), "k", lock.Wait(time.Millisecond))
				want := []int{driver.MaxPosition, 0}[ahead-(driver.MaxPosition-1)]
				if busy, ok := errors.AsType[*lock.NotAcquiredError](err); !ok || busy.Position != want {
					t.Errorf("behind %d waiters: got %v, want the position %d", ahead, err, want)
				}
			}
			all.Go(func() { _, _ = b.Acquire(crowd, "k", lock.Wait(lock.Forever)) })
			synctest.Wait()
		}
		end()
		all.Wait()
		release(t, held)
	})
}

func TestThePositionBehindALeaseOfTheSameProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewLock()
		f := func() *hooked { return &hooked{Driver: m, scope: driver.Fleet} }
		a := process(t, f(), lock.Config{})
		held := acquire(t, a, "k")
		go func() {
			r := driver.Request{Key: "k", Token: "other-process-token-22", TTL: time.Minute, Wait: -1, Slots: 1, Fences: 1, Holder: driver.Holder{Host: "elsewhere", PID: 7}}
			_, _ = m.Acquire(t.Context(), r)
		}()
		synctest.Wait()
		// would be handed the hold, before the other process
		_, err := a.Acquire(t.Context(), "k", lock.Wait(50*time.Millisecond), lock.Label("me"))
		var busy *lock.NotAcquiredError
		if !errors.As(err, &busy) || busy.Position != 1 {
			t.Errorf("who would have been served first was number %d", busy.Position)
		}
		release(t, held)
	})
}

func TestASilentBackendIsBrokenNotBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewLock()
		h := &hooked{Driver: m, scope: driver.Fleet,
			acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				ctx, cancel := context.WithTimeout(ctx, driver.CallTimeout)
				defer cancel()
				<-ctx.Done()
				return driver.Grant{}, fmt.Errorf("%w: no answer", driver.ErrUnavailable)
			},
			inspect: func(ctx context.Context, d driver.Driver, key string) (driver.State, error) {
				<-ctx.Done()
				return driver.State{}, ctx.Err()
			},
			release: func(ctx context.Context, d driver.Driver, g driver.Grant) error { <-ctx.Done(); return ctx.Err() },
		}
		l := raw(t, h, lock.Config{})
		_, err := l.Acquire(t.Context(), "k", lock.Wait(500*time.Millisecond))
		if errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("a backend that never answered: %v", err)
		}
		_, err = l.Acquire(t.Context(), "k", lock.Wait(500*time.Millisecond), lock.FIFO())
		t.Log("fifo:", err)
		_, err = l.Inspect(context.Background(), "k")
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Inspect on a context without end: %v", err)
		}
		_ = l.Close(t.Context())
	})
}

func TestAGrantThatArrivesDuringCloseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewLock()
		h := &hooked{Driver: m, scope: driver.Fleet, acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			time.Sleep(10 * time.Millisecond) // the answer is on its way
			return g, err
		}}
		for _, opt := range []lock.Option{lock.FIFO(), lock.Label("queued")} {
			l := raw(t, h, lock.Config{TTL: time.Second})
			var ended time.Time
			fin := make(chan struct{})
			start := time.Now()
			go func() {
				defer close(fin)
				err := l.With(t.Context(), "k", func(ctx context.Context) error {
					t.Log("fn runs")
					select {
					case <-ctx.Done():
						ended = time.Now()
					case <-time.After(time.Hour):
						t.Errorf("fn's context has not ended after an hour: Err %v", ctx.Err())
					}
					return nil
				}, opt)
				t.Log("with:", err)
			}()
			time.Sleep(5 * time.Millisecond)
			dead, cancel := context.WithCancel(t.Context())
			cancel()
			if !returns(time.Minute, func() { t.Log("close:", l.Close(dead)) }) {
				t.Error("Close hangs")
			}
			<-fin
			t.Log(ended.Sub(start))
		}
	})
}

// The grant of a waiter that has gone is given back if the next waiter asks for
// something else (L22).
func TestAGrantGoesToNoCallOfAnotherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, &hooked{Driver: newFleet(), scope: driver.Fleet,
			acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				if r.NoRenew {
					<-ctx.Done() // the grant is on its way
				}
				return d.Acquire(context.WithoutCancel(ctx), r)
			}}, lock.Config{TTL: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		gone := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, "k", lock.NoRenew())
			gone <- err
		}()
		synctest.Wait()
		lease := acquire(t, l, "k")
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Errorf("a lease that is renewed ended: %v", err)
		}
		release(t, lease)
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestAWaitIsOneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		h := &hooked{Driver: memory.NewLock(), scope: driver.Process, acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			if r.Wait == 0 {
				return driver.Grant{}, driver.ErrNotAcquired
			}
			n++
			if n == 1 {
				time.Sleep(r.Wait * 9 / 10)
				return driver.Grant{}, driver.ErrLost // forced away before it arrived
			}
			time.Sleep(r.Wait)
			return driver.Grant{}, driver.ErrNotAcquired
		}}
		l := process(t, h, lock.Config{})
		start := time.Now()
		_, err := l.Acquire(t.Context(), "k", lock.Wait(time.Second))
		if took := time.Since(start); took > time.Second {
			t.Errorf("a wait of 1s took %v: %v", took, err)
		}
	})
}

func TestAGrantForcedOnItsWayIsBusyForATry(t *testing.T) {
	h := &hooked{Driver: memory.NewLock(), scope: driver.Fleet, acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
		return driver.Grant{}, &driver.LostError{Key: r.Key, Cause: driver.Forced}
	}}
	l := process(t, h, lock.Config{})
	_, err := l.TryAcquire(t.Context(), "k")
	t.Log(err)
	if errors.Is(err, lock.ErrLost) {
		t.Errorf("TryAcquire: %v", err)
	}
}

// However the grants are mixed with forced ones, a call ends after three that
// arrive past their deadlines.
func TestLateGrantsEndACallAfterForcedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := 0
		l := raw(t, &hooked{Driver: memory.NewLock(), scope: driver.Process,
			acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				switch calls++; {
				case calls <= 3:
					return driver.Grant{}, &driver.LostError{Key: r.Key, Cause: driver.Forced}
				case calls > 20:
					cancel()
				}
				g, err := d.Acquire(ctx, r)
				g.Deadline = time.Now().Add(-time.Second)
				return g, err
			}}, lock.Config{})
		if _, err := l.Acquire(ctx, "k"); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v after %d requests", err, calls)
		}
	})
}

// inParts is a hooked driver whose requests have two parts.
type inParts struct{ *hooked }

func (p inParts) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	g, err := p.Acquire(ctx, r)
	return g, nil, err
}

// The request of a waiter that Close ends may have been granted meanwhile: it is
// cleaned up before Close returns (L22).
func TestCloseCleansUpTheRequestsOfItsWaiters(t *testing.T) {
	for name, wrap := range map[string]func(*hooked) driver.Driver{
		"asked in two parts": func(h *hooked) driver.Driver { return inParts{h} },
		"asked in one":       func(h *hooked) driver.Driver { return h },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testCloseOfAWaiter(t, wrap) }) })
	}
}

func testCloseOfAWaiter(t *testing.T, wrap func(*hooked) driver.Driver) {
	t.Helper()
	var asked, released atomic.Value
	l := raw(t, wrap(&hooked{Driver: memory.NewLock(), scope: driver.Fleet,
		acquire: func(ctx context.Context, _ driver.Driver, r driver.Request) (driver.Grant, error) {
			asked.Store(r.Token)
			<-ctx.Done()
			time.Sleep(time.Millisecond) // the backend is about to answer
			return driver.Grant{}, ctx.Err()
		},
		release: func(ctx context.Context, d driver.Driver, g driver.Grant) error {
			released.Store(g.Token)
			return d.Release(ctx, g)
		}}), lock.Config{})
	waited := make(chan error, 1)
	go func() {
		_, err := l.Acquire(context.Background(), "k")
		waited <- err
	}()
	synctest.Wait()
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-waited; !errors.Is(err, lock.ErrClosed) {
		t.Error(err)
	}
	if released.Load() != asked.Load() {
		t.Errorf("asked with token %v, released %v", asked.Load(), released.Load())
	}
}
