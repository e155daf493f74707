package lock_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

// onFleet runs fn in a bubble with a backend that two Lockers share.
func onFleet(t *testing.T, fn func(t *testing.T, a, b *lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		open := sharing(t, memory.NewLock())
		fn(t, process(t, open(), lock.Config{}), process(t, open(), lock.Config{}))
	})
}

// sharing returns a function that opens d as another process of a fleet.
func sharing(t *testing.T, d driver.Driver) func() driver.Driver {
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	open := locktest.Share(d, driver.Fleet)
	return func() driver.Driver {
		p, err := open()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// once calls Once with a function that does nothing but count.
func once(t *testing.T, l *lock.Locker, every time.Duration, opts ...lock.Option) (ran bool) {
	t.Helper()
	ran, err := l.Once(t.Context(), "job", every, func(context.Context) error { return nil }, opts...)
	if err != nil {
		t.Error(err)
	}
	return ran
}

func TestOnceRunsOncePerTickInAllProcesses(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		if !once(t, a, time.Minute) || once(t, a, time.Minute) || once(t, b, time.Minute) {
			t.Error("want one run in the first tick")
		}
		time.Sleep(59 * time.Second)
		if once(t, b, time.Minute) {
			t.Error("ran twice in the first tick")
		}
		time.Sleep(time.Second)
		if !once(t, b, time.Minute) || once(t, a, time.Minute) {
			t.Error("want one run in the second tick")
		}
	})
}

func TestOnceWithAnotherIntervalDoesNotRepeatThePresentTick(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		time.Sleep(7 * time.Minute)
		if !once(t, a, 5*time.Minute) {
			t.Fatal("the first run is due")
		}
		if once(t, b, 10*time.Minute) {
			t.Error("the tick of ten minutes began before the run")
		}
		time.Sleep(4 * time.Minute)
		if !once(t, b, 10*time.Minute) || once(t, a, 5*time.Minute) {
			t.Error("want one run at the tick that both intervals have")
		}
	})
}

func TestARunThatIsLongerThanATickSkipsTicks(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = a.Once(t.Context(), "job", time.Minute, func(context.Context) error {
				time.Sleep(150 * time.Second)
				return nil
			})
		}()
		time.Sleep(70 * time.Second)
		if once(t, b, time.Minute) {
			t.Error("two runs at once")
		}
		<-done
		if !once(t, b, time.Minute) {
			t.Error("the tick after the run is due")
		}
	})
}

func TestABusyOnceWaitsForAtMostTheIntervalAndAtMostItsWait(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{time.Hour: time.Minute, lock.Forever: time.Minute, time.Second: time.Second} {
		onFleet(t, func(t *testing.T, a, b *lock.Locker) {
			lease := acquire(t, a, "job")
			start := time.Now()
			ran, err := b.Once(t.Context(), "job", time.Minute, func(context.Context) error { return nil }, lock.Wait(wait))
			if waited := time.Since(start); ran || err != nil || waited != want {
				t.Errorf("Wait(%v): %v, %v after %v, want false after %v", wait, ran, err, waited, want)
			}
			release(t, lease)
		})
	}
}

func TestAnErrorOrAPanicSpendsTheTick(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		broken := errors.New("broken")
		ran, err := a.Once(t.Context(), "job", time.Minute, func(context.Context) error { return broken })
		if !ran || !errors.Is(err, broken) || once(t, b, time.Minute) {
			t.Errorf("ran %v, %v; want one failed run", ran, err)
		}
		time.Sleep(time.Minute)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not continue")
				}
			}()
			_, _ = a.Once(t.Context(), "job", time.Minute, func(context.Context) error { panic("broken") })
		}()
		if once(t, b, time.Minute) {
			t.Error("the tick was not spent")
		}
		if s, err := b.Inspect(t.Context(), "job"); err != nil || s.LastRun == nil || s.LastRun.Outcome != driver.Failed {
			t.Errorf("last run %+v, %v; want a failed one", s.LastRun, err)
		}
	})
}

func TestAForcedRunSpendsTheTickUnlessAtLeastOnce(t *testing.T) {
	forced := func(l *lock.Locker) func(context.Context) error {
		return func(ctx context.Context) error {
			if _, err := l.ForceRelease(context.WithoutCancel(ctx), "job", "as if it had crashed"); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}
	}
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		if _, err := a.Once(t.Context(), "job", time.Minute, forced(b)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("%v; want ErrLost", err)
		}
		if once(t, b, time.Minute) {
			t.Error("the tick was not spent")
		}
		time.Sleep(time.Minute)
		if _, err := a.Once(t.Context(), "job", time.Minute, forced(b), lock.AtLeastOnce()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("%v; want ErrLost", err)
		}
		if !once(t, b, time.Minute, lock.AtLeastOnce()) || once(t, a, time.Minute) {
			t.Error("AtLeastOnce: want one more run in the tick")
		}
	})
}

// Close ends the lease of a run whose call has a context that goes on. The backend still
// has the lease then.
func TestARunThatCloseHasCutOffIsDueAgainUnderAtLeastOnce(t *testing.T) {
	for _, opts := range [][]lock.Option{nil, {lock.AtLeastOnce()}} {
		onFleet(t, func(t *testing.T, a, b *lock.Locker) {
			closed, cut := context.WithCancel(t.Context())
			cut()
			ended := make(chan error, 1)
			ran, err := a.Once(t.Context(), "job", time.Minute, func(ctx context.Context) error {
				go func() { ended <- a.Close(closed) }()
				<-ctx.Done()
				return ctx.Err()
			}, opts...)
			if !ran || !errors.Is(err, lock.ErrLost) {
				t.Errorf("got %v, %v", ran, err)
			}
			<-ended
			if got := once(t, b, time.Minute, opts...); got != (opts != nil) {
				t.Errorf("the run in another process: %v, want %v", got, opts != nil)
			}
		})
	}
}

func TestInspectReturnsTheLastRun(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		time.Sleep(90 * time.Second)
		start := time.Now()
		_, err := a.Once(t.Context(), "job", time.Minute, func(ctx context.Context) error {
			s, err := b.Inspect(ctx, "job")
			if err != nil || s.LastRun == nil || s.LastRun.Outcome != "" || len(s.Holders) != 1 || s.LastRun.Fence != s.Holders[0].Fence {
				t.Errorf("during the run: %+v, %v", s, err)
			}
			time.Sleep(5 * time.Second)
			return nil
		}, lock.Label("nightly"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.Inspect(t.Context(), "job")
		r := s.LastRun
		if err != nil || r == nil || r.Outcome != driver.Done || r.By.Label != "nightly" ||
			!r.Start.Equal(start) || r.End.Sub(r.Start) != 5*time.Second || r.Every != time.Minute || r.Tick != start.Unix()/60 {
			t.Errorf("after the run: %+v, %v", r, err)
		}
		if all, err := b.List(t.Context(), ""); err != nil || len(all) != 0 {
			t.Errorf("List shows %v, %v; the key is not in use", all, err)
		}
	})
}

func TestOnceRefusesWhatItCannotKeep(t *testing.T) {
	onFleet(t, func(t *testing.T, a, _ *lock.Locker) {
		nothing := func(context.Context) error { return nil }
		for name, call := range map[string]func() (bool, error){
			"a nil function":           func() (bool, error) { return a.Once(t.Context(), "job", time.Minute, nil) },
			"no interval":              func() (bool, error) { return a.Once(t.Context(), "job", 0, nothing) },
			"a long interval":          func() (bool, error) { return a.Once(t.Context(), "job", lock.MaxEvery+time.Microsecond, nothing) },
			"parts of a microsecond":   func() (bool, error) { return a.Once(t.Context(), "job", time.Minute+1, nothing) },
			"a pool":                   func() (bool, error) { return a.Once(t.Context(), "job", time.Minute, nothing, lock.Slots(2)) },
			"a pool of one slot":       func() (bool, error) { return a.Once(t.Context(), "job", time.Minute, nothing, lock.Slots(1)) },
			"a fixed pool":             func() (bool, error) { return a.Once(t.Context(), "job", time.Minute, nothing, lock.FixedSlots(1)) },
			"a negative Cooldown":      func() (bool, error) { return a.Once(t.Context(), "job", time.Minute, nothing, lock.Cooldown(-1)) },
			"a key with a white space": func() (bool, error) { return a.Once(t.Context(), "a job", time.Minute, nothing) },
		} {
			if ran, err := call(); ran || !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("%s: ran %v, %v; want ErrInvalid", name, ran, err)
			}
		}
		plain := process(t, newFleet(), lock.Config{})
		if ran, err := plain.Once(t.Context(), "job", time.Minute, nothing); ran || !errors.Is(err, lock.ErrUnsupported) {
			t.Errorf("a driver without runs: ran %v, %v; want ErrUnsupported", ran, err)
		}
	})
}

func TestCooldownKeepsTheKeyTaken(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		start := time.Now()
		lease := acquire(t, a, "k", lock.Cooldown(time.Minute), lock.TTL(2*time.Second))
		time.Sleep(10 * time.Second)
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*lock.Locker{a, b} {
			if _, err := l.TryAcquire(t.Context(), "k"); !errors.Is(err, lock.ErrNotAcquired) {
				t.Errorf("%v; want ErrNotAcquired", err)
			}
		}
		release(t, acquire(t, b, "k", lock.Wait(lock.Forever)))
		if waited := time.Since(start); waited < time.Minute || waited > 62*time.Second {
			t.Errorf("the key was free after %v; want a minute", waited)
		}
		// Work that is longer than its cooldown is released as any other.
		lease = acquire(t, a, "k", lock.Cooldown(time.Second))
		time.Sleep(2 * time.Second)
		release(t, lease)
		release(t, acquire(t, b, "k", lock.Wait(0)))
	})
}

// The last part of a cooldown counts too, however short.
func TestCooldownKeepsTheKeyTakenToItsEnd(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		for _, left := range []time.Duration{time.Microsecond, 999 * time.Microsecond} {
			const cooldown = time.Second
			granted := time.Now()
			lease := acquire(t, a, "k", lock.Cooldown(cooldown))
			time.Sleep(cooldown - left)
			release(t, lease)
			release(t, acquire(t, b, "k"))
			if free := time.Since(granted); free < cooldown {
				t.Errorf("released %v before the end: the key was free %v after its grant", left, free)
			}
		}
	})
}

// Work that did not begin has no cooldown.
func TestCooldownNeedsWork(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		if !once(t, a, time.Hour) {
			t.Fatal("the first run is due")
		}
		held := acquire(t, b, "z")
		_, err := a.AcquireAll(t.Context(), []string{"k", "z"}, lock.Cooldown(time.Minute), lock.Wait(time.Second))
		if !errors.Is(err, lock.ErrNotAcquired) {
			t.Error(err)
		}
		release(t, held)
		if once(t, a, time.Hour, lock.Cooldown(time.Minute)) {
			t.Error("ran twice")
		}
		for _, key := range []string{"k", "job"} {
			lease, err := b.TryAcquire(t.Context(), key)
			if err != nil {
				t.Errorf("%s is taken: %v", key, err)
				continue
			}
			release(t, lease)
		}
	})
}

// A release whose first attempt gets no answer lengthens no cooldown.
func TestCooldownEndsInTimeAfterAFailedRelease(t *testing.T) {
	for name, step := range map[string]locktest.Step{
		"lost":     {Op: locktest.Release, Hang: true, Times: 1},
		"executed": {Op: locktest.Release, Hang: true, Executed: true, Times: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			open := sharing(t, memory.NewLock())
			var plan locktest.Plan
			a, b := process(t, locktest.Faulty(open(), &plan), lock.Config{}), process(t, open(), lock.Config{})
			start := time.Now()
			const cooldown = 10 * time.Second
			lease := acquire(t, a, "k", lock.Cooldown(cooldown))
			plan.Add(step)
			_ = lease.Release()
			release(t, acquire(t, b, "k", lock.Wait(time.Minute)))
			if free := time.Since(start); free < cooldown || free > cooldown+10*time.Millisecond {
				t.Errorf("%s: the key was free %v after its grant", name, free)
			}
		})
	}
}

func TestCooldownIsNotHandedOn(t *testing.T) {
	onFleet(t, func(t *testing.T, a, _ *lock.Locker) {
		start := time.Now()
		lease := acquire(t, a, "k", lock.Cooldown(time.Minute))
		granted := make(chan time.Duration)
		for range 2 {
			go func() {
				next, err := a.Acquire(t.Context(), "k", lock.Wait(lock.Forever), lock.Cooldown(time.Minute))
				if err != nil {
					t.Error(err)
				}
				granted <- time.Since(start)
				release(t, next)
			}()
		}
		synctest.Wait()
		release(t, lease)
		for i := range 2 {
			if at := <-granted; at < time.Duration(i+1)*time.Minute {
				t.Errorf("grant %d after %v", i+1, at)
			}
		}
	})
}

// A release of a lease that its owner forgot leaves the key taken, as any other one
// does. The owner's late Release does not change that.
func TestCooldownOfAForgottenLeaseKeepsTheKeyTaken(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := a.Acquire(ctx, "k", lock.Cooldown(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(15 * time.Second)
		if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the lease was not taken back: %v", err)
		}
		release(t, acquire(t, b, "k", lock.Wait(lock.Forever)))
		if waited := time.Since(start); waited < time.Minute || waited > 62*time.Second {
			t.Errorf("the key was free after %v; want a minute", waited)
		}
	})
}

func TestTheRunOfALeaseThatWasHandedOnHasItsFence(t *testing.T) {
	onFleet(t, func(t *testing.T, a, _ *lock.Locker) {
		held := acquire(t, a, "job")
		var run sync.WaitGroup
		run.Go(func() {
			_, err := a.Once(t.Context(), "job", time.Minute, func(ctx context.Context) error {
				lease, _ := lock.LeaseFrom(ctx)
				s, err := a.Inspect(ctx, "job")
				if err != nil || lease.Fence() != held.Fence()+1 || s.LastRun == nil || s.LastRun.Fence != lease.Fence() {
					t.Errorf("the fence is %d after %d, and the run %+v, %v", lease.Fence(), held.Fence(), s.LastRun, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		release(t, held)
		run.Wait()
	})
}

// While a key is busy and no tick is known, Every asks again after a minute. From the first
// answer on it asks at the beginning of each tick, also after a tick that was busy.
func TestEveryThatBeginsWithABusyKeyFindsTheTicks(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		hour := time.Now().Truncate(time.Hour)
		at := func(after time.Duration) { time.Sleep(time.Until(hour.Add(after))) }
		at(30 * time.Minute)
		held := acquire(t, a, "job")
		ctx, stop := context.WithCancel(t.Context())
		var ran []time.Duration
		ended := make(chan error)
		go func() {
			ended <- b.Every(ctx, "job", time.Hour, func(context.Context) error {
				ran = append(ran, time.Since(hour))
				return nil
			})
		}()
		at(33 * time.Minute)
		release(t, held)
		at(119 * time.Minute)
		held = acquire(t, a, "job")
		at(121 * time.Minute)
		release(t, held)
		at(200 * time.Minute)
		stop()
		<-ended
		want := []time.Duration{33 * time.Minute, time.Hour, 3 * time.Hour}
		if len(ran) != len(want) {
			t.Fatalf("runs at %v", ran)
		}
		for i, least := range want {
			slack := time.Second
			if i == 0 {
				slack = 2 * time.Minute
			}
			if ran[i] < least || ran[i] > least+slack {
				t.Errorf("run %d at %v, want %v", i, ran[i], least)
			}
		}
	})
}

// ending is a backend that ends a context while it starts a run.
type ending struct {
	*memory.Lock
	end   func()
	fails bool // then
}

func (e *ending) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	run, err := e.Lock.BeginRun(ctx, g, every, spend)
	e.end()
	if e.fails {
		err = errors.Join(err, ctx.Err())
	}
	return run, err
}

func TestOnceWhoseContextEndsDuringItsStartReturnsTheCause(t *testing.T) {
	for _, fails := range []bool{false, true} {
		d := &ending{Lock: memory.NewLock(), fails: fails}
		l := process(t, d, lock.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the caller has gone")
		d.end = func() { cancel(cause) }
		ran, err := l.Once(ctx, "job", time.Minute, func(context.Context) error {
			t.Error("fn was called")
			return nil
		})
		if ran || !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Errorf("got %v, %v", ran, err)
		}
	}
}

func TestEveryRunsInEachTickWhateverTheLengthOfARun(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		ctx, stop := context.WithCancel(t.Context())
		ticks := map[int64]int{}
		var inside atomic.Int32
		ended := make(chan error)
		for _, l := range []*lock.Locker{a, b} {
			go func() {
				ended <- l.Every(ctx, "job", time.Minute, func(context.Context) error {
					if inside.Add(1) != 1 {
						t.Error("two runs at once")
					}
					defer inside.Add(-1)
					tick := time.Now().Unix() / 60
					ticks[tick]++
					if tick%10 == 3 {
						time.Sleep(3*time.Minute + 30*time.Second)
					}
					return errors.New("failed")
				})
			}()
		}
		begin := time.Now().Unix() / 60
		time.Sleep(30*time.Minute - time.Second)
		stop()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Every returned %v", err)
			}
		}
		for tick := begin; tick < begin+30; tick++ {
			want := 1
			if phase := tick % 10; phase > 3 && phase < 6 {
				want = 0 // skipped, while the run of the third tick holds the key
			}
			if ticks[tick] != want && tick%10 != 6 {
				t.Errorf("tick %d: %d runs, want %d", tick-begin, ticks[tick], want)
			}
		}
	})
}

func TestAFailedRunOfEveryIsNotRetried(t *testing.T) {
	for _, failed := range []error{errors.New("failed"), &lock.LostError{Key: "other", Cause: lock.Expired}} {
		synctest.Test(t, func(t *testing.T) {
			var seen recorder
			l := process(t, memory.NewLock(), lock.Config{Observer: &seen})
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
			defer stop()
			err := l.Every(ctx, "job", time.Minute, func(context.Context) error { return failed })
			if runs, retries := eventsOf[lock.Ran](&seen), eventsOf[lock.Retrying](&seen); len(runs) != 10 || len(retries) != 0 {
				t.Errorf("%v: %d runs in ten minutes, and %d retries: %+v", err, len(runs), len(retries), retries)
			}
		})
	}
}

func TestEveryRepeatsALostRunInItsTickUnderAtLeastOnce(t *testing.T) {
	for runs, opts := range map[int][]lock.Option{1: nil, 2: {lock.AtLeastOnce()}} {
		synctest.Test(t, func(t *testing.T) {
			l := process(t, memory.NewLock(), lock.Config{})
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
			defer stop()
			ran := 0
			err := l.Every(ctx, "job", time.Hour, func(ctx context.Context) error {
				if ran++; ran == 1 {
					_, err := l.ForceRelease(ctx, "job", "test")
					return errors.Join(err, lock.ErrInvalid) // from a call inside
				}
				return nil
			}, opts...)
			if ran != runs {
				t.Errorf("%d runs in one tick, want %d: %v", ran, runs, err)
			}
		})
	}
}

// The other process has asked at the beginning of the tick, and has found the run
// in progress.
func TestEveryRepeatsTheRunOfACrashedProcessInItsTickUnderAtLeastOnce(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		const day = 24 * time.Hour
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan time.Time, 10)
		ended := make(chan error)
		go func() {
			ended <- b.Every(ctx, "job", day, func(context.Context) error { ran <- time.Now(); return nil }, lock.AtLeastOnce(), lock.Wait(0))
		}()
		<-ran
		time.Sleep(day - time.Since(time.Now().Truncate(day))) // to the next tick
		if _, err := a.Once(ctx, "job", day, func(ctx context.Context) error {
			time.Sleep(30 * time.Second)
			_, err := a.ForceRelease(ctx, "job", "its process has crashed")
			return err
		}, lock.AtLeastOnce()); !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		crashed := time.Now()
		if after := (<-ran).Sub(crashed); after > time.Second {
			t.Errorf("the run was repeated %v after the crash", after)
		}
		time.Sleep(day / 2)
		stop()
		<-ended
		if len(ran) != 0 {
			t.Error("the tick was run once more")
		}
	})
}

// The run of the third minute ends in the fourth.
func TestATickInWhichALongRunEndsIsRunByAProcessThatWaits(t *testing.T) {
	for processes, want := range map[int][]int{1: {0, 1, 2, 3, 5}, 2: {0, 1, 2, 3, 4, 5}} {
		onFleet(t, func(t *testing.T, a, b *lock.Locker) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			var minutes []int
			for _, l := range []*lock.Locker{a, b}[:processes] {
				go func() {
					ended <- l.Every(ctx, "job", time.Minute, func(context.Context) error {
						minutes = append(minutes, time.Now().Minute())
						if time.Now().Minute() == 3 {
							time.Sleep(90 * time.Second)
						}
						return nil
					}, lock.AtLeastOnce())
				}()
			}
			time.Sleep(6*time.Minute - time.Second)
			stop()
			for range processes {
				<-ended
			}
			if !slices.Equal(minutes, want) {
				t.Errorf("%d processes: runs in the minutes %v, want %v", processes, minutes, want)
			}
		})
	}
}

func TestEveryRidesOutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		s := &failing{Lock: memory.NewLock()}
		l := process(t, sharing(t, s)(), lock.Config{Observer: &seen})
		ctx, stop := context.WithCancel(t.Context())
		runs := make(chan time.Time, 10)
		ended := make(chan error)
		s.down.Store(true)
		go func() {
			ended <- l.Every(ctx, "job", time.Hour, func(context.Context) error { runs <- time.Now(); return nil })
		}()
		time.Sleep(10 * time.Minute)
		s.down.Store(false)
		up := time.Now()
		if at := <-runs; at.Sub(up) > 2*time.Minute {
			t.Errorf("ran %v after the end of the outage", at.Sub(up))
		}
		n := len(eventsOf[lock.Retrying](&seen))
		if n < 10 || n > 20 {
			t.Errorf("%d retries in ten minutes", n)
		}
		s.down.Store(true) // a run begins the pauses anew
		time.Sleep(time.Until(up.Truncate(time.Hour).Add(time.Hour + 2*time.Second)))
		if again := eventsOf[lock.Retrying](&seen)[n:]; len(again) == 0 || again[0].Pause > 2*time.Second {
			t.Errorf("the next outage: %+v", again)
		}
		stop()
		<-ended
	})
}

// The pauses of an outage are not longer than the interval.
func TestEveryWithAShortIntervalAsksAsOftenInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		s := &failing{Lock: memory.NewLock()}
		s.down.Store(true)
		l := process(t, sharing(t, s)(), lock.Config{Observer: &seen})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		err := l.Every(ctx, "job", time.Second, func(context.Context) error { return nil })
		if n := len(eventsOf[lock.Retrying](&seen)); n < 30 {
			t.Errorf("%d retries in a minute: %v", n, err)
		}
	})
}

// failing is a backend that cannot record runs while it is down.
type failing struct {
	*memory.Lock
	down atomic.Bool
}

func (f *failing) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	if f.down.Load() {
		return driver.Run{}, driver.ErrUnavailable
	}
	return f.Lock.BeginRun(ctx, g, every, spend)
}

// The key stays taken until the end of the cooldown, not longer by the pauses
// between the attempts.
func TestCooldownOfAReleaseThatIsRetriedCountsFromTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		d := silence(&away, new(atomic.Int64))
		a, b := process(t, d, lock.Config{}), process(t, d, lock.Config{})
		lease := acquire(t, a, "k", lock.Cooldown(20*time.Second), lock.TTL(10*time.Second))
		granted := time.Now()
		away.Store(true)
		if err := lease.Release(); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		away.Store(false)
		release(t, acquire(t, b, "k", lock.Wait(time.Minute)))
		if after := time.Since(granted); after < 20*time.Second || after > 21*time.Second {
			t.Errorf("the key was free %v after the grant", after)
		}
	})
}

// Ran has the outcome of the run: metrics and logs have no other source.
func TestRanReportsTheOutcomeOfTheRun(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		fn    func(ctx context.Context, l *lock.Locker) error
		want  error // nil for any
		fails bool
	}{
		"done":   {fn: func(context.Context, *lock.Locker) error { return nil }},
		"failed": {fn: func(context.Context, *lock.Locker) error { return failed }, want: failed, fails: true},
		"panic":  {fn: func(context.Context, *lock.Locker) error { panic("fn") }, fails: true},
		"goexit": {fn: func(context.Context, *lock.Locker) error { runtime.Goexit(); return nil }, fails: true},
		"loss": {want: lock.ErrLost, fails: true, fn: func(ctx context.Context, l *lock.Locker) error {
			if _, err := l.ForceRelease(context.WithoutCancel(ctx), "job", "test"); err != nil {
				t.Error(err)
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var events recorder
				l := raw(t, memory.NewLock(), lock.Config{Observer: &events})
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_, _ = l.Once(t.Context(), "job", time.Minute, func(ctx context.Context) error {
						time.Sleep(time.Second)
						return c.fn(ctx, l)
					})
				}()
				<-done
				ran := eventsOf[lock.Ran](&events)
				if len(ran) != 1 || ran[0].Took != time.Second || (ran[0].Err != nil) != c.fails || c.want != nil && !errors.Is(ran[0].Err, c.want) {
					t.Errorf("got %+v, want one run that has failed: %v", ran, c.fails)
				}
			})
		})
	}
}

// hanging is a backend in memory that answers neither the start nor the end of a run.
type hanging struct {
	sharedMemory
	inBegin bool
}

func (h hanging) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	if h.inBegin {
		<-ctx.Done()
		return driver.Run{}, ctx.Err()
	}
	return h.sharedMemory.BeginRun(ctx, g, every, spend)
}

func (h hanging) EndRun(ctx context.Context, _ driver.Grant, _ driver.Run) error {
	<-ctx.Done()
	return ctx.Err()
}

// The record of a run delays a call by at most a second at its start, which then fails,
// and by a second at its end.
func TestARunWhoseRecordHangsIsBounded(t *testing.T) {
	for _, inBegin := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := process(t, hanging{sharedMemory{memory.NewLock()}, inBegin}, lock.Config{TTL: time.Minute})
			start := time.Now()
			ran, err := l.Once(t.Context(), "k", time.Minute, func(context.Context) error { return nil })
			if took := time.Since(start); ran == inBegin || errors.Is(err, lock.ErrUnavailable) != inBegin || took != driver.CallTimeout {
				t.Errorf("in its start: %v; ran: %v, %v after %v", inBegin, ran, err, took)
			}
		})
	}
}

func TestALossDuringTheStartOfARunIsNoEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, hanging{sharedMemory{memory.NewLock()}, true}, lock.Config{})
		ran, err := l.Once(t.Context(), "k", time.Minute, func(context.Context) error { return nil }, lock.TTL(500*time.Millisecond), lock.NoRenew())
		if ran || !errors.Is(err, lock.ErrLost) || errors.Is(err, context.Canceled) {
			t.Errorf("ran: %v, %v", ran, err)
		}
	})
}
