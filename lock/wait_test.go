package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// remote is a backend behind a way that takes time. It can be asked in two parts.
type remote struct {
	hooked
	way  time.Duration // there and back
	lost atomic.Bool   // nothing is answered
}

func newRemote(way time.Duration) *remote {
	r := &remote{hooked: hooked{Driver: newFleet(), scope: driver.Fleet}, way: way}
	r.inspect = func(ctx context.Context, d driver.Driver, key string) (driver.State, error) {
		if err := r.travel(ctx); err != nil {
			return driver.State{}, err
		}
		return d.Inspect(ctx, key)
	}
	r.acquire = func(ctx context.Context, d driver.Driver, q driver.Request) (driver.Grant, error) {
		bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
		defer cancel()
		if err := r.travel(bounded); err != nil {
			return driver.Grant{}, err
		}
		return d.Acquire(ctx, q)
	}
	return r
}

func (r *remote) travel(ctx context.Context) error {
	way := r.way
	if r.lost.Load() {
		way = time.Hour
	}
	select {
	case <-time.After(way):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ask tries once, and counts a busy key as queued.
func (r *remote) Ask(ctx context.Context, q driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	if err := r.travel(ctx); err != nil {
		return driver.Grant{}, nil, err
	}
	try := q
	try.Wait = 0
	g, err := r.Driver.Acquire(ctx, try)
	if q.Wait == 0 || !errors.Is(err, driver.ErrNotAcquired) {
		return g, nil, err
	}
	return driver.Grant{}, func(ctx context.Context) (driver.Grant, error) {
		g, err := r.Driver.Acquire(ctx, q)
		for r.lost.Load() && ctx.Err() == nil {
			time.Sleep(time.Second)
		}
		return g, err
	}, nil
}

// whole hides that a driver can be asked in two parts.
type whole struct{ driver.Driver }

func bothWays(t *testing.T, f func(t *testing.T, r *remote, l *lock.Locker)) {
	for name, wrap := range map[string]func(*remote) driver.Driver{
		"asked in two parts": func(r *remote) driver.Driver { return r },
		"asked in one":       func(r *remote) driver.Driver { return whole{r} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRemote(10 * time.Millisecond)
				f(t, r, process(t, wrap(r), lock.Config{TTL: 30 * time.Second}))
			})
		})
	}
}

func TestAWaitShorterThanTheWayGetsAFreeKey(t *testing.T) {
	bothWays(t, func(t *testing.T, _ *remote, l *lock.Locker) {
		for range 10 {
			release(t, acquire(t, l, "k", lock.Wait(500*time.Microsecond)))
			release(t, acquire(t, l, "k", lock.Wait(0)))
		}
	})
}

func TestAFreeKeyIsNotContendedAndItsEventsHaveItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, inOne := range []bool{false, true} {
			var seen recorder
			r := newRemote(10 * time.Millisecond)
			var d driver.Driver = r
			if inOne {
				d = whole{r}
			}
			l := process(t, d, lock.Config{Observer: &seen})
			lease := acquire(t, l, "k")
			time.Sleep(3 * time.Second)
			release(t, lease)
			if got := eventsOf[lock.Acquired](&seen)[0]; lease.Contended() || got.Contended || got.Waited != r.way || l.Stats().Contended != 0 {
				t.Errorf("got %+v, want %v and a free key", got, r.way)
			}
			if got := eventsOf[lock.Released](&seen)[0]; got.Held != 3*time.Second {
				t.Errorf("got %+v, want 3s", got)
			}
		}
	})
}

func TestAWaitShorterThanTheWayFindsABusyKeyBusy(t *testing.T) {
	bothWays(t, func(t *testing.T, r *remote, l *lock.Locker) {
		other := process(t, &hooked{Driver: r.Driver, scope: driver.Fleet}, lock.Config{})
		held := acquire(t, other, "k", lock.Label("the other"))
		start := time.Now()
		_, err := l.Acquire(t.Context(), "k", lock.Wait(500*time.Microsecond))
		busy, ok := errors.AsType[*lock.NotAcquiredError](err)
		if !ok || len(busy.Holders) != 1 || busy.Holders[0].Fence != held.Fence() || busy.Holders[0].Left <= 0 || busy.Holders[0].Label != "the other" {
			t.Errorf("got %+v", err)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		release(t, held)
	})
}

// L20: the backend takes longer to answer the request than to show the key. A key is busy
// when each of its slots is held.
func TestAShortWaitGetsAFreeSlotOfASlowBackend(t *testing.T) {
	bothWays(t, func(t *testing.T, r *remote, l *lock.Locker) {
		r.way = 300 * time.Millisecond
		r.inspect = nil
		other := process(t, &hooked{Driver: r.Driver, scope: driver.Fleet}, lock.Config{})
		release(t, acquire(t, l, "k", lock.Wait(time.Millisecond)))
		held := acquire(t, other, "pool", lock.Slots(2))
		lease := acquire(t, l, "pool", lock.Slots(2), lock.Wait(time.Millisecond))
		start := time.Now()
		if _, err := l.Acquire(t.Context(), "pool", lock.Slots(2), lock.Wait(time.Millisecond)); !errors.Is(err, lock.ErrNotAcquired) || time.Since(start) > 2*r.way {
			t.Errorf("a third slot of two: %v after %v", err, time.Since(start))
		}
		release(t, lease)
		release(t, held)
	})
}

func TestASilentBackendIsNotBusy(t *testing.T) {
	bothWays(t, func(t *testing.T, r *remote, l *lock.Locker) {
		other := process(t, &hooked{Driver: r.Driver, scope: driver.Fleet}, lock.Config{})
		held := acquire(t, other, "k")
		time.AfterFunc(time.Second, func() { r.lost.Store(true) })
		behind := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, "k")
			behind <- err
		}()
		synctest.Wait()
		_, err := l.Acquire(t.Context(), "k", lock.Wait(5*time.Second))
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("after 4 s of silence: %v, want ErrUnavailable", err)
		}
		if err := <-behind; !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("after 3 s of silence and the end of the context of a waiter: %v, want ErrUnavailable", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, "k")
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("after 3 s of silence and the end of the context: %v, want ErrUnavailable", err)
		}
		r.lost.Store(false)
		release(t, held)
	})
}

// A timeout of the Locker or of its driver is not the end of the caller's context.
func TestABackendThatDoesNotAnswerIsUnavailable(t *testing.T) {
	bothWays(t, func(t *testing.T, r *remote, l *lock.Locker) {
		r.lost.Store(true)
		for range 2 {
			go func() {
				if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want ErrUnavailable alone", err)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		r.lost.Store(false)
	})
}

// The ticket belongs to all waiters of the key.
func TestAWaiterThatGivesUpBeforeAnAnswerEndsNoOtherWait(t *testing.T) {
	bothWays(t, func(t *testing.T, _ *remote, l *lock.Locker) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Millisecond, cancel)
		first := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, "k")
			first <- err
		}()
		synctest.Wait()
		release(t, acquire(t, l, "k"))
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAWaitWhoseHoldersCannotBeLookedUpIsNotBusy(t *testing.T) {
	bothWays(t, func(t *testing.T, r *remote, l *lock.Locker) {
		other := process(t, &hooked{Driver: r.Driver, scope: driver.Fleet}, lock.Config{})
		held := acquire(t, other, "k")
		refused := errors.New("no permission")
		r.inspect = func(context.Context, driver.Driver, string) (driver.State, error) { return driver.State{}, refused }
		_, err := l.Acquire(t.Context(), "k", lock.Wait(3*time.Second))
		if !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, refused) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("got %v, want ErrUnavailable with its cause", err)
		}
		release(t, held)
	})
}

// The hold of its own process was confirmed when it came.
func TestAWaitBehindItsOwnProcessIsBusyAlsoIfTheHoldersCannotBeLookedUp(t *testing.T) {
	bothWays(t, func(t *testing.T, r *remote, l *lock.Locker) {
		r.inspect = func(context.Context, driver.Driver, string) (driver.State, error) {
			return driver.State{}, errors.New("no permission")
		}
		held := acquire(t, l, "k")
		start := time.Now()
		_, err := l.Acquire(t.Context(), "k", lock.Wait(50*time.Millisecond)) // less than a turn: no ticket
		if took := time.Since(start); !errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrUnavailable) || took != 50*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		release(t, held)
	})
}

func TestAContextThatEndsBeforeAnAnswerIsNeitherBusyNorBroken(t *testing.T) {
	bothWays(t, func(t *testing.T, r *remote, l *lock.Locker) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, "k")
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Second)
		release(t, acquire(t, l, "k"))
	})
}

func TestTheEndOfAContextBehindAHolderIsBusy(t *testing.T) {
	bothWays(t, func(t *testing.T, r *remote, l *lock.Locker) {
		other := process(t, &hooked{Driver: r.Driver, scope: driver.Fleet}, lock.Config{})
		held := acquire(t, other, "k")
		for _, wait := range []time.Duration{time.Second, 10 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := l.Acquire(ctx, "k", lock.Wait(lock.Forever))
			if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: %v", wait, err)
			}
			cancel()
		}
		release(t, held)
	})
}

// The driver knows the end of the context, and not its cause.
func TestABusyKeyOfADriverThatWaitsHasTheCauseOfTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the caller has gone")
	d := &hooked{Driver: memory.NewLock(), scope: driver.Process}
	d.acquire = func(ctx context.Context, _ driver.Driver, _ driver.Request) (driver.Grant, error) {
		cancel(cause)
		<-ctx.Done()
		return driver.Grant{}, &driver.NotAcquiredError{Err: ctx.Err()}
	}
	l := process(t, d, lock.Config{})
	if _, err := l.Acquire(ctx, "k"); !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestAGrantPastItsDeadlineGoesBackAtOnce(t *testing.T) {
	for _, scope := range []driver.Scope{driver.Process, driver.Fleet} {
		t.Run(scope.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory.NewLock()
				var late atomic.Int64
				late.Store(1)
				d := &hooked{Driver: m, scope: scope,
					acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
						g, err := d.Acquire(ctx, r)
						if late.Add(-1) >= 0 {
							g.Deadline = g.Deadline.Add(-time.Hour)
						}
						return g, err
					}}
				l := process(t, d, lock.Config{TTL: time.Minute})
				start := time.Now()
				release(t, acquire(t, l, "k"))
				if took := time.Since(start); took > time.Second {
					t.Errorf("the key was had after %v", took)
				}
				late.Store(100)
				if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("a backend whose grants all come late: %v", err)
				}
				late.Store(0)
				release(t, acquire(t, l, "k"))
			})
		})
	}
}
