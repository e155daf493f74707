package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// outage is a fleet whose backend can be away.
func outage(away *atomic.Bool) *hooked {
	errAway := fmt.Errorf("%w: out of memory", driver.ErrUnavailable)
	return &hooked{Driver: newFleet(), scope: driver.Fleet,
		acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			if away.Load() {
				return driver.Grant{}, errAway
			}
			return d.Acquire(ctx, r)
		},
		release: func(ctx context.Context, d driver.Driver, g driver.Grant) error {
			if away.Load() {
				return errAway
			}
			return d.Release(ctx, g)
		},
	}
}

func TestLossAndReturnOfTheBackendAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		r := &recorder{}
		l := process(t, outage(&away), lock.Config{Observer: r})
		release(t, acquire(t, l, "k"))
		away.Store(true)
		for i := range 100 {
			if _, err := l.Acquire(t.Context(), fmt.Sprint("k", i)); !errors.Is(err, lock.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if lost := eventsOf[lock.Unavailable](r); len(lost) != 1 || !strings.Contains(lost[0].Err.Error(), "out of memory") {
			t.Errorf("the loss was reported as %v, want once with its cause", lost)
		}
		if err := l.Unavailable(); !errors.Is(err, lock.ErrUnavailable) || !l.Stats().Unavailable {
			t.Errorf("during the outage Unavailable returns %v", err)
		}
		away.Store(false)
		time.Sleep(2 * time.Second)
		back := eventsOf[lock.Available](r)
		if len(back) != 1 || back[0].After < 9*time.Second || len(eventsOf[lock.Unavailable](r)) != 1 {
			t.Errorf("the return was reported as %v, want once", back)
		}
		if err := l.Unavailable(); err != nil {
			t.Errorf("after the outage Unavailable returns %v", err)
		}
	})
}

func TestOneBadKeyIsNotTheLossOfTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		d := &hooked{Driver: newFleet(), scope: driver.Fleet,
			acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				if r.Key == "bad" {
					return driver.Grant{}, fmt.Errorf("%w: the slot is being moved", driver.ErrUnavailable)
				}
				return d.Acquire(ctx, r)
			}}
		l := process(t, d, lock.Config{Observer: r})
		for range 10 {
			if _, err := l.Acquire(t.Context(), "bad"); !errors.Is(err, lock.ErrUnavailable) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if lost := eventsOf[lock.Unavailable](r); len(lost) != 0 {
			t.Errorf("reported %v", lost)
		}
	})
}

// L21: a Cluster without one of its masters has a part of its keys.
func TestLossOfAPartOfTheKeysIsReportedAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		d := &hooked{Driver: newFleet(), scope: driver.Fleet,
			acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				if r.Key == "bad" || r.Key[len(r.Key)-1]%2 == 0 {
					return driver.Grant{}, fmt.Errorf("%w: the master is dead", driver.ErrUnavailable)
				}
				return d.Acquire(ctx, r)
			}}
		l := process(t, d, lock.Config{Observer: r})
		for range 30 {
			if _, err := l.Acquire(t.Context(), "bad"); !errors.Is(err, lock.ErrUnavailable) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if lost := eventsOf[lock.Unavailable](r); len(lost) > 1 {
			t.Errorf("one loss was reported %d times", len(lost))
		}
	})
}

// L21: a user that has lost the right to one command may get free keys, and an error
// for every key that is held.
func TestLossOfAPartOfTheCallsIsReportedAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		d := &hooked{Driver: newFleet(), scope: driver.Fleet,
			acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				if s, err := d.Inspect(ctx, r.Key); err != nil || len(s.Holders) > 0 {
					return driver.Grant{}, fmt.Errorf("%w: no permission", driver.ErrUnavailable)
				}
				return d.Acquire(ctx, r)
			}}
		l := process(t, d, lock.Config{Observer: r})
		defer release(t, acquire(t, l, "held"))
		for range 100 {
			if _, err := l.TryAcquire(t.Context(), "held"); !errors.Is(err, lock.ErrUnavailable) {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Millisecond)
		}
		if lost := eventsOf[lock.Unavailable](r); len(lost) > 1 {
			t.Errorf("one loss was reported %d times", len(lost))
		}
	})
}

// L21: both calls of a probe together may take longer than a caller's request may.
func TestASlowBackendIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		d := &hooked{Driver: newFleet(), scope: driver.Fleet,
			acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				if r.Key == "bad" {
					return driver.Grant{}, fmt.Errorf("%w: the slot is being moved", driver.ErrUnavailable)
				}
				select {
				case <-time.After(600 * time.Millisecond):
					return d.Acquire(ctx, r)
				case <-ctx.Done():
					return driver.Grant{}, ctx.Err()
				}
			}}
		l := process(t, d, lock.Config{Observer: r})
		if _, err := l.Acquire(t.Context(), "bad"); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatal(err)
		}
		release(t, acquire(t, l, "good"))
		time.Sleep(10 * time.Second)
		if lost := eventsOf[lock.Unavailable](r); len(lost) != 0 {
			t.Errorf("reported %v", lost)
		}
	})
}

// A process that uses no lock finds a loss by a ping, and reports it once.
func TestPingFindsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		d := outage(&away)
		d.inspect = func(ctx context.Context, d driver.Driver, key string) (driver.State, error) {
			if away.Load() {
				return driver.State{}, errors.New("connection reset")
			}
			return d.Inspect(ctx, key)
		}
		r := &recorder{}
		l := process(t, d, lock.Config{Observer: r})
		if err := l.Ping(t.Context()); err != nil {
			t.Errorf("a backend that serves: %v", err)
		}
		away.Store(true)
		for range 3 {
			if err := l.Ping(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("during the outage: %v", err)
			}
			synctest.Wait()
		}
		if lost := eventsOf[lock.Unavailable](r); len(lost) != 1 {
			t.Errorf("the loss was reported as %v, want once", lost)
		}
		away.Store(false)
		time.Sleep(2 * time.Second)
		if err := l.Ping(t.Context()); err != nil || len(eventsOf[lock.Available](r)) != 1 {
			t.Errorf("after the outage: %v, reported as %v", err, eventsOf[lock.Available](r))
		}
	})
}

// A backend that does not answer at all is lost, too. The probes leave nothing behind, Ping
// does not wait during the outage, and the end of the Locker is not the end of the outage.
func TestASilentBackendIsLostUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newFleet(), scope: driver.Fleet,
			acquire: func(ctx context.Context, _ driver.Driver, r driver.Request) (driver.Grant, error) {
				if strings.HasPrefix(r.Key, "mega.probe:") && (r.TTL != lock.MinTTL || !r.NoRenew || r.Wait != 0) {
					t.Errorf("a probe asks for %+v", r)
				}
				<-ctx.Done()
				return driver.Grant{}, ctx.Err()
			},
			inspect: func(ctx context.Context, _ driver.Driver, _ string) (driver.State, error) {
				<-ctx.Done()
				return driver.State{}, ctx.Err()
			},
		}
		r := &recorder{}
		l := raw(t, d, lock.Config{Observer: r})
		if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		time.Sleep(10 * time.Second)
		if lost := eventsOf[lock.Unavailable](r); len(lost) != 1 {
			t.Errorf("the loss was reported as %v, want once", lost)
		}
		before := time.Now()
		if err := l.Ping(t.Context()); !errors.Is(err, lock.ErrUnavailable) || time.Since(before) > 0 {
			t.Errorf("Ping: %v after %v", err, time.Since(before))
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if back := eventsOf[lock.Available](r); len(back) != 0 {
			t.Errorf("Close has reported %v", back)
		}
	})
}

// On a Cluster without one of its masters, a process is ready while the master of its
// probes serves: it reports no loss then, either.
func TestPingAsksForTheKeyOfTheProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probed, pinged atomic.Value
		d := &hooked{Driver: newFleet(), scope: driver.Fleet,
			acquire: func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
				if r.Key == "bad" {
					return driver.Grant{}, driver.ErrUnavailable
				}
				probed.Store(r.Key)
				return d.Acquire(ctx, r)
			},
			inspect: func(_ context.Context, _ driver.Driver, key string) (driver.State, error) {
				pinged.Store(key)
				return driver.State{}, nil
			}}
		l := process(t, d, lock.Config{})
		if err := l.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := l.Acquire(t.Context(), "bad"); !errors.Is(err, lock.ErrUnavailable) {
			t.Error(err)
		}
		synctest.Wait()
		if probed.Load() == nil || probed.Load() != pinged.Load() {
			t.Errorf("probed %v, pinged %v", probed.Load(), pinged.Load())
		}
	})
}

// A lease that nobody renews ends during the outage, and nothing else is asked.
func TestACleanUpFindsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		l := process(t, outage(&away), lock.Config{})
		lease := acquire(t, l, "k", lock.NoRenew(), lock.TTL(time.Second))
		away.Store(true)
		time.Sleep(2 * time.Second)
		if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if err := l.Unavailable(); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("a second after the clean-up has failed: %v", err)
		}
		away.Store(false)
	})
}

// absent is a shared driver whose backend answers no call while it is away.
type absent struct {
	sharedMemory
	away *atomic.Bool
}

var errAbsent = errors.New("connection reset")

func (d absent) answer() error {
	if d.away.Load() {
		return errAbsent
	}
	return nil
}

func (d absent) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.answer(); err != nil {
		return driver.Grant{}, err
	}
	return d.sharedMemory.Acquire(ctx, r)
}

func (d absent) Inspect(ctx context.Context, key string) (driver.State, error) {
	return driver.State{}, d.answer()
}

func (d absent) List(context.Context, string) ([]driver.State, error) { return nil, d.answer() }

func (d absent) ForceRelease(context.Context, string, driver.Force) (int, error) {
	return 0, d.answer()
}

func (d absent) Heal(context.Context, string, int, string, driver.Holder) error { return d.answer() }

// L21: the first call that fails finds a loss, also where it acquires nothing.
func TestEachCallFindsALoss(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, l *lock.Locker) error{
		"Inspect": func(ctx context.Context, l *lock.Locker) error { _, err := l.Inspect(ctx, "k"); return err },
		"List":    func(ctx context.Context, l *lock.Locker) error { _, err := l.List(ctx, ""); return err },
		"ForceRelease": func(ctx context.Context, l *lock.Locker) error {
			_, err := l.ForceRelease(ctx, "k", "test")
			return err
		},
		"Heal": func(ctx context.Context, l *lock.Locker) error { return l.Heal(ctx, "k", 0, "test") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := absent{sharedMemory{memory.NewLock()}, new(atomic.Bool)}
				l := process(t, d, lock.Config{})
				d.away.Store(true)
				if err := call(t.Context(), l); !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
				synctest.Wait()
				if err := l.Unavailable(); !errors.Is(err, errAbsent) {
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

// So does each call of a holder.
func TestEachCallOfAHolderFindsALoss(t *testing.T) {
	for name, call := range map[string]func(l *lock.Locker, lease *lock.Lease){
		"release": func(_ *lock.Locker, lease *lock.Lease) { _ = lease.Release() },
		"extend":  func(_ *lock.Locker, lease *lock.Lease) { _ = lease.Extend(context.Background(), time.Minute) },
		"renewal": func(*lock.Locker, *lock.Lease) { time.Sleep(5 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var away atomic.Bool
				d := outage(&away)
				d.renew = func(ctx context.Context, d driver.Driver, g []driver.Grant) []driver.Renewal {
					if away.Load() {
						return []driver.Renewal{{Err: fmt.Errorf("%w: gone", driver.ErrUnavailable)}}
					}
					return d.Renew(ctx, g)
				}
				r := &recorder{}
				l := process(t, d, lock.Config{Observer: r})
				lease := acquire(t, l, "k")
				away.Store(true)
				call(l, lease)
				synctest.Wait()
				if lost := eventsOf[lock.Unavailable](r); len(lost) != 1 {
					t.Errorf("reported %v", lost)
				}
				away.Store(false)
				_ = lease.Release()
			})
		})
	}
}

// L21: a call that its caller cancels is not a silent backend.
func TestACancelledInspectIsNotUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newFleet(), scope: driver.Fleet}
		d.inspect = func(ctx context.Context, _ driver.Driver, _ string) (driver.State, error) {
			<-ctx.Done()
			return driver.State{}, ctx.Err()
		}
		l := process(t, d, lock.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := l.Inspect(ctx, "k"); !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("a cancelled call: %v", err)
		}
		if _, err := l.Inspect(t.Context(), "k"); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a silent backend: %v", err)
		}
	})
}

// halted is a driver whose calls end with their context, and then return err, or the
// error of the context if err is nil.
type halted struct {
	driver.Driver
	err error
}

func (d halted) wait(ctx context.Context) error {
	<-ctx.Done()
	if d.err != nil {
		return d.err
	}
	return ctx.Err()
}

func (d halted) Inspect(ctx context.Context, _ string) (driver.State, error) {
	return driver.State{}, d.wait(ctx)
}

func (d halted) ForceRelease(ctx context.Context, _ string, _ driver.Force) (int, error) {
	return 0, d.wait(ctx)
}

func (d halted) Renew(ctx context.Context, _ []driver.Grant) []driver.Renewal {
	return []driver.Renewal{{Err: d.wait(ctx)}}
}

// A call whose context ends returns the error of that context, also beside another error,
// and no error of a context that the Locker has derived from it.
func TestTheErrorOfACallHasThatOfItsContext(t *testing.T) {
	refused := fmt.Errorf("%w: no permission", driver.ErrUnavailable)
	for _, err := range []error{nil, refused} {
		for _, end := range []error{context.DeadlineExceeded, context.Canceled} {
			t.Run(fmt.Sprint(err, " and ", end), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := process(t, halted{newFleet(), err}, lock.Config{})
					lease := acquire(t, l, "lease", lock.TTL(time.Hour))
					for name, call := range map[string]func(ctx context.Context) error{
						"Inspect":      func(ctx context.Context) error { _, err := l.Inspect(ctx, "k"); return err },
						"ForceRelease": func(ctx context.Context) error { _, err := l.ForceRelease(ctx, "k", "test"); return err },
						"Extend":       func(ctx context.Context) error { return lease.Extend(ctx, time.Hour) },
					} {
						ctx, cancel := context.WithCancel(t.Context())
						time.AfterFunc(50*time.Millisecond, cancel)
						other := context.DeadlineExceeded
						if errors.Is(end, other) {
							ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
							other = context.Canceled
						}
						got := call(ctx)
						cancel()
						if !errors.Is(got, end) || errors.Is(got, other) || err != nil && !errors.Is(got, err) {
							t.Errorf("%s: %v", name, got)
						}
					}
					release(t, lease)
				})
			})
		}
	}
}
