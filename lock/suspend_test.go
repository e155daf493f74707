package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
)

// remote grants everything, as a backend far away that never sleeps.
type remote struct{ driver.Driver }

func (remote) Info() driver.Info { return driver.Info{Name: "remote", Scope: driver.Fleet} }

func (remote) Acquire(_ context.Context, r driver.Request) (driver.Grant, error) {
	return driver.Grant{Key: r.Key, Token: r.Token, Fence: 1, Fences: r.Fences, TTL: r.TTL, Deadline: driver.Deadline(driver.Now(), r.TTL)}, nil
}

func (remote) Release(context.Context, driver.Grant) error { return nil }
func (remote) Close(context.Context) error                 { return nil }

// The timers of a process stand still while its machine sleeps; here the clock
// jumps as it does over a suspend, and the timers have noticed nothing.
func TestALeaseEndsWhileTheMachineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(remote{}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		var slept atomic.Int64
		l.clock.read = func() time.Time { return driver.Now().Add(time.Duration(slept.Load())) }
		asked, err := l.Acquire(t.Context(), "asked")
		if err != nil {
			t.Fatal(err)
		}
		waited, err := l.Acquire(t.Context(), "awaited")
		if err != nil {
			t.Fatal(err)
		}
		released, err := l.Acquire(t.Context(), "released")
		if err != nil {
			t.Fatal(err)
		}
		ended := waited.Context().Done()

		slept.Store(int64(time.Hour))
		if asked.Context().Err() == nil {
			t.Error("the first look after waking up finds the lease alive")
		}
		if lost, ok := errors.AsType[*LostError](context.Cause(asked.Context())); !ok || lost.Cause != Expired {
			t.Errorf("the cause of the end is %v", lost)
		}
		if err := released.Release(); !errors.Is(err, ErrLost) {
			t.Errorf("release after waking up: %v", err)
		}
		woke := time.Now()
		<-ended
		if late := time.Since(woke); late > maxNap {
			t.Errorf("who waits for the end hears of it after %v, want %v", late, maxNap)
		}
		for _, lease := range []*Lease{asked, waited} {
			if err := lease.Release(); !errors.Is(err, ErrLost) {
				t.Errorf("release of %s: %v", lease.Key(), err)
			}
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// asked is a backend in this process that counts the questions whether a run is due.
type asked struct {
	*memory.Lock
	times atomic.Int64
}

func (a *asked) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	a.times.Add(1)
	return a.Lock.BeginRun(ctx, g, every, spend)
}

func TestEveryAsksSoonAfterItsMachineHasSleptOverATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &asked{Lock: memory.NewLock()}
		l, err := New(d, Config{})
		if err != nil {
			t.Fatal(err)
		}
		var slept atomic.Int64
		l.awake.read = func() time.Time { return driver.Now().Add(time.Duration(slept.Load())) }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- l.Every(ctx, "nightly", 24*time.Hour, func(context.Context) error { return nil })
		}()
		time.Sleep(time.Hour)
		before := d.times.Load()
		slept.Store(int64(24 * time.Hour))
		time.Sleep(time.Minute + 2*time.Second)
		if before != 1 || d.times.Load() != 2 {
			t.Errorf("asked %d times in the first hour, and %d times after the sleep", before, d.times.Load()-before)
		}
		stop()
		<-ended
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
