package lock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// renewals records what a driver is asked to renew, and may fail.
type renewals struct {
	hooked
	mu   sync.Mutex // guards the fields below
	seen []driver.Grant
	fail error
}

func newRenewals() *renewals {
	r := &renewals{hooked: hooked{Driver: newFleet(), scope: driver.Fleet}}
	r.renew = func(ctx context.Context, d driver.Driver, grants []driver.Grant) []driver.Renewal {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, grants...)
		if r.fail != nil {
			return []driver.Renewal{{Err: r.fail}}
		}
		return d.Renew(ctx, grants)
	}
	return r
}

func (r *renewals) last() driver.Grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[len(r.seen)-1]
}

func (r *renewals) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

func (r *renewals) failWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func TestEachExtendRaisesTheRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRenewals()
		l := process(t, d, lock.Config{TTL: 9 * time.Second})
		lease := acquire(t, l, "k")
		time.Sleep(4 * time.Second)
		if g := d.last(); g.Rev != 0 {
			t.Errorf("the first renewal has revision %d", g.Rev)
		}
		for want := uint64(1); want <= 3; want++ {
			if err := lease.Extend(t.Context(), time.Duration(want)*3*time.Second); err != nil {
				t.Fatal(err)
			}
			if g := d.last(); g.Rev != want {
				t.Errorf("extension %d has revision %d", want, g.Rev)
			}
			time.Sleep(3 * time.Second)
			if g := d.last(); g.Rev != want || g.TTL != time.Duration(want)*3*time.Second {
				t.Errorf("the renewal after extension %d has revision %d and TTL %v", want, g.Rev, g.TTL)
			}
		}
		release(t, lease)
	})
}

func TestARenewalAfterAFailedExtendOvertakesItsLateCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRenewals()
		l := process(t, d, lock.Config{TTL: 9 * time.Second})
		lease := acquire(t, l, "k")
		d.failWith(driver.ErrUnavailable)
		if err := lease.Extend(t.Context(), time.Hour); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatal(err)
		}
		late := d.last()
		d.failWith(nil)
		time.Sleep(time.Second)
		if g := d.last(); g.TTL != 9*time.Second || g.Rev <= late.Rev {
			t.Errorf("after an extension with revision %d that failed, %v is renewed with revision %d", late.Rev, g.TTL, g.Rev)
		}
		if r := d.Driver.Renew(t.Context(), []driver.Grant{late})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		if s, err := l.Inspect(t.Context(), "k"); err != nil || s.Holders[0].Left > 9*time.Second {
			t.Errorf("a late copy has lengthened the grant: %+v, %v", s.Holders, err)
		}
		release(t, lease)
	})
}

// answersRenewalsAfter returns a driver whose renewals take effect at once, and are
// answered after d.
func answersRenewalsAfter(d time.Duration) *hooked {
	h := &hooked{Driver: memory.NewLock(), scope: driver.Process}
	h.renew = func(ctx context.Context, under driver.Driver, g []driver.Grant) []driver.Renewal {
		renewals := under.Renew(ctx, g)
		time.Sleep(d)
		return renewals
	}
	return h
}

// The late answer to an Extend does not end the cooldown of its released lease.
func TestAnExtendDuringTheReleaseKeepsTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := answersRenewalsAfter(100 * time.Millisecond)
		l := process(t, d, lock.Config{})
		lease := acquire(t, l, "k", lock.Cooldown(time.Minute))
		go func() { _ = lease.Extend(t.Context(), time.Minute) }()
		synctest.Wait()
		release(t, lease)
		time.Sleep(time.Second)
		if again, err := l.TryAcquire(t.Context(), "k"); err == nil {
			t.Error("the key is free during its cooldown")
			release(t, again)
		}
	})
}

// The late answer to an Extend does not end the cooldown of a forgotten lease either.
func TestAnExtendOfAForgottenLeaseKeepsTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := answersRenewalsAfter(900 * time.Millisecond)
		l := process(t, d, lock.Config{TTL: 9 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := l.Acquire(ctx, "k", lock.Cooldown(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second) // the first renewal is over
		cancel()                    // the lease is taken back in a second
		time.Sleep(500 * time.Millisecond)
		if err := lease.Extend(t.Context(), 9*time.Second); !errors.Is(err, lock.ErrLost) {
			t.Errorf("extend: %v; want ErrLost", err)
		}
		time.Sleep(time.Second)
		if again, err := l.TryAcquire(t.Context(), "k"); err == nil {
			t.Error("the key is free during its cooldown")
			release(t, again)
		}
	})
}

// A released lease is not renewed again, also when the answer to its last renewal comes
// after the release (L5).
func TestTheRenewalInFlightIsTheLastOfAReleasedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRenewals()
		renew := d.renew
		d.renew = func(ctx context.Context, under driver.Driver, g []driver.Grant) []driver.Renewal {
			renewals := renew(ctx, under, g)
			time.Sleep(500 * time.Millisecond)
			return renewals
		}
		l := process(t, d, lock.Config{TTL: 9 * time.Second})
		lease := acquire(t, l, "k")
		for d.count() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		release(t, lease)
		time.Sleep(time.Minute)
		if n := d.count(); n != 1 {
			t.Errorf("%d renewals", n)
		}
	})
}

// L12: a renewal without an answer leaves the time for a second one, which may take as
// long as the lease lives.
func TestALeaseSurvivesOneFailedRenewal(t *testing.T) {
	const ttl = 600 * time.Millisecond
	var serves atomic.Bool
	for name, renew := range map[string]func(ctx context.Context, n int) error{
		"the first has no answer": func(ctx context.Context, n int) error {
			if n == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		},
		"the first is refused, the second is slow": func(ctx context.Context, n int) error {
			if n == 2 {
				select {
				case <-time.After(ttl / 2):
					serves.Store(true)
				case <-ctx.Done():
				}
			}
			if !serves.Load() {
				return driver.ErrUnavailable
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newRenewals()
				answer := d.renew
				d.renew = func(ctx context.Context, under driver.Driver, g []driver.Grant) []driver.Renewal {
					renewals := answer(ctx, under, g) // it takes effect
					if err := renew(ctx, d.count()); err != nil {
						return []driver.Renewal{{Err: err}}
					}
					return renewals
				}
				lease := acquire(t, process(t, d, lock.Config{TTL: ttl}), "k")
				time.Sleep(time.Minute)
				if err := lease.Err(); err != nil {
					t.Error(err)
				}
				_ = lease.Release()
			})
		})
	}
}

// A renewal that fails after the release is no failure of a lease.
func TestALateFailureOfARenewalIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRenewals()
		d.failWith(driver.ErrUnavailable)
		fail := d.renew
		d.renew = func(ctx context.Context, under driver.Driver, g []driver.Grant) []driver.Renewal {
			renewals := fail(ctx, under, g)
			time.Sleep(500 * time.Millisecond)
			return renewals
		}
		r := &recorder{}
		lease := acquire(t, process(t, d, lock.Config{TTL: 9 * time.Second, Observer: r}), "k")
		for d.count() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		release(t, lease)
		time.Sleep(time.Second)
		if events := eventsOf[lock.RenewFailed](r); len(events) != 0 {
			t.Errorf("reported %+v", events)
		}
	})
}

// The backend may not have executed an Extend to a shorter TTL: the clean-up of the lease
// goes on until its old one has passed (L5).
func TestTheCleanUpAfterAFailedExtendGoesOnUntilTheOldTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRenewals()
		var away atomic.Bool
		away.Store(true)
		d.release = func(ctx context.Context, d driver.Driver, g driver.Grant) error {
			if away.Load() {
				return driver.ErrUnavailable
			}
			return d.Release(ctx, g)
		}
		l := process(t, d, lock.Config{TTL: time.Minute})
		lease := acquire(t, l, "k", lock.NoRenew())
		d.failWith(driver.ErrUnavailable)
		if err := lease.Extend(t.Context(), time.Second); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release: %v", err)
		}
		time.Sleep(2 * time.Second)
		away.Store(false)
		d.failWith(nil)
		time.Sleep(20 * time.Second)
		release(t, acquire(t, l, "k", lock.Wait(0)))
	})
}

// With an ended context nothing is sent; a lease that is over is lost whatever the context.
func TestAnExtendWithAnEndedContextSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRenewals()
		lease := acquire(t, process(t, d, lock.Config{}), "k")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Extend(ctx, time.Minute); !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrUnavailable) || d.count() != 0 {
			t.Errorf("got %v after %d calls", err, d.count())
		}
		release(t, lease)
		if err := lease.Extend(ctx, time.Minute); !errors.Is(err, lock.ErrLost) {
			t.Errorf("after the release: %v", err)
		}
	})
}

// An Extend takes a second for its own call, and ends with its context also while it waits
// for the renewal in flight.
func TestAnExtendIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRenewals()
		d.renew = func(ctx context.Context, _ driver.Driver, _ []driver.Grant) []driver.Renewal {
			<-ctx.Done()
			return []driver.Renewal{{Err: ctx.Err()}}
		}
		lease := acquire(t, process(t, d, lock.Config{TTL: 30 * time.Second}), "k")
		start := time.Now()
		if err := lease.Extend(t.Context(), time.Minute); !errors.Is(err, lock.ErrUnavailable) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want ErrUnavailable after 1s", err, time.Since(start))
		}
		time.Sleep(100 * time.Millisecond) // the next renewal has begun
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start = time.Now()
		if err := lease.Extend(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 50*time.Millisecond {
			t.Errorf("got %v after %v, want the end of its context after 50ms", err, time.Since(start))
		}
		release(t, lease)
	})
}

// Under NoRenew an Extend moves the end once, here and at the backend.
func TestAnExtendWithoutRenewalMovesTheEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		l := process(t, f, lock.Config{TTL: 10 * time.Second})
		lease := acquire(t, l, "k", lock.NoRenew())
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		time.Sleep(30 * time.Second)
		if s, err := f.Inspect(t.Context(), "k"); err != nil || len(s.Holders) != 1 || lease.Err() != nil {
			t.Errorf("after 30s: held by %+v, %v; %v", s.Holders, err, lease.Err())
		}
		<-lease.Context().Done()
		if lived := time.Since(start); lived > time.Minute || lived < 58*time.Second {
			t.Errorf("the lease lived for %v", lived)
		}
		_ = lease.Release()
	})
}

func TestAnExtendWaitsForTheRenewalInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{}, 2)
		d := &hooked{Driver: newFleet(), scope: driver.Fleet}
		d.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
			begun <- struct{}{}
			time.Sleep(100 * time.Millisecond)
			return d.Renew(ctx, g)
		}
		l := process(t, d, lock.Config{TTL: 9 * time.Second})
		lease := acquire(t, l, "k")
		<-begun
		start := time.Now()
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 200*time.Millisecond {
			t.Errorf("it took %v, want the time of the renewal and its own", took)
		}
		release(t, lease)
	})
}

func TestAnExtendWhoseContextEndsReturnsBothErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, &hooked{Driver: newFleet(), scope: driver.Fleet, renew: hungReply}, lock.Config{})
		lease := acquire(t, l, "k")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := lease.Extend(ctx, time.Minute); !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		release(t, lease)
	})
}
