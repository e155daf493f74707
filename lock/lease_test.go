package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func TestAForgottenLeaseIsReleasedAndReportedWithItsSite(t *testing.T) {
	for name, forget := range map[string]func(cancel context.CancelFunc){
		"its context ended":        func(cancel context.CancelFunc) { cancel() },
		"it was garbage collected": func(context.CancelFunc) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen recorder
				l := process(t, memory.NewLock(), lock.Config{TTL: time.Minute, Observer: &seen})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if _, err := l.Acquire(ctx, "k"); err != nil {
					t.Fatal(err)
				}
				forget(cancel)
				for range 6 {
					runtime.GC()
					time.Sleep(4 * time.Second) // less than the TTL together
					synctest.Wait()
				}
				events := eventsOf[lock.Forgotten](&seen)
				if len(events) != 1 || events[0].Reason != name || !strings.Contains(events[0].Site, "lease_test.go:") {
					t.Errorf("reported %+v", events)
				}
				if s := l.Stats(); s.Active != 0 || s.Hold.Count() != 1 {
					t.Errorf("it is counted as held: %+v", s)
				}
				release(t, acquire(t, l, "k", lock.Wait(0)))
			})
		})
	}
}

// Close does not wait for the owner of a lease whose context has ended. Without that,
// a program that stops soon after the mistake reports a lost lock, and not the line
// that acquired it.
func TestCloseReleasesAForgottenLeaseAndReportsItsSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := raw(t, memory.NewLock(), lock.Config{TTL: time.Minute, Observer: &seen})
		before, cancel := context.WithCancel(t.Context())
		if _, err := l.Acquire(before, "before"); err != nil {
			t.Fatal(err)
		}
		cancel()
		meanwhile, cancel := context.WithCancel(t.Context())
		if _, err := l.Acquire(meanwhile, "meanwhile"); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(500*time.Millisecond, cancel)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		events := eventsOf[lock.Forgotten](&seen)
		if len(events) != 2 || !strings.Contains(events[0].Site, "lease_test.go:") {
			t.Errorf("reported %+v, want both, acquired here", events)
		}
		if lost := eventsOf[lock.Lost](&seen); len(lost) != 0 {
			t.Errorf("reported as lost: %+v", lost)
		}
	})
}

func TestADeferredReleaseAfterACancelIsNotForgetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := process(t, memory.NewLock(), lock.Config{Observer: &seen})
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := l.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if lease.Context().Err() == nil {
			t.Error("the lease's context goes on after its parent's end")
		}
		time.Sleep(500 * time.Millisecond)
		release(t, lease)
		time.Sleep(time.Minute)
		if events := eventsOf[lock.Forgotten](&seen); len(events) != 0 {
			t.Errorf("reported %+v", events)
		}
	})
}

func TestALeaseInUseIsNotGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{TTL: time.Second})
		work, cancel := context.WithCancel(acquire(t, l, "k").Context())
		defer cancel()
		for range 5 {
			runtime.GC()
			time.Sleep(time.Second)
		}
		if err := work.Err(); err != nil {
			t.Errorf("a context derived from the lease ended: %v", context.Cause(work))
		}
		lease, _ := lock.LeaseFrom(work)
		release(t, lease)
		if work.Err() == nil {
			t.Error("a context derived from the lease goes on after its release")
		}
	})
}

// stalled is a driver whose renewals do not get through.
type stalled struct{ driver.Driver }

func (s stalled) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	<-ctx.Done()
	renewals := make([]driver.Renewal, len(grants))
	for i := range renewals {
		renewals[i].Err = ctx.Err()
	}
	return renewals
}

func TestALeaseThatCannotBeRenewedEndsBeforeItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		const ttl = 9 * time.Second
		l := process(t, stalled{memory.NewLock()}, lock.Config{TTL: ttl, Observer: &seen})
		start := time.Now()
		err := l.With(t.Context(), "k", func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		var lost *lock.LostError
		if !errors.As(err, &lost) || lost.Cause != lock.Unreachable {
			t.Errorf("With said %v, want a loss because the backend is unreachable", err)
		}
		if held := time.Since(start); held != ttl-driver.Margin(ttl) {
			t.Errorf("held for %v of %v", held, ttl)
		}
		synctest.Wait() // the loss is counted after the context has ended
		if events := eventsOf[lock.RenewFailed](&seen); len(events) < 3 {
			t.Errorf("%d failed renewals reported, want several attempts", len(events))
		}
		if s := l.Stats(); s.Active != 0 || s.Lost != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestALossByFailedRenewalsHasTheirError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("no permission")
		l := process(t, &hooked{Driver: newFleet(), scope: driver.Fleet,
			renew: func(_ context.Context, _ driver.Driver, g []driver.Grant) []driver.Renewal {
				return slices.Repeat([]driver.Renewal{{Err: refused}}, len(g))
			}}, lock.Config{})
		lease := acquire(t, l, "k")
		<-lease.Context().Done()
		if lost, ok := errors.AsType[*lock.LostError](lease.Err()); !ok || lost.Cause != lock.Unreachable || !errors.Is(lost, refused) {
			t.Errorf("got %v", lost)
		}
		_ = lease.Release()
	})
}

// The deadline passes during the first attempt, which may have most of the lease's time.
func TestALossDuringAnUnansweredExtendNamesItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, stalled{memory.NewLock()}, lock.Config{})
		lease, err := l.Acquire(t.Context(), "k", lock.TTL(500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = lease.Extend(t.Context(), time.Second) }()
		<-lease.Context().Done()
		lost, ok := errors.AsType[*lock.LostError](context.Cause(lease.Context()))
		if !ok || lost.Cause != lock.Unreachable || !errors.Is(lost, lock.ErrUnavailable) || !strings.Contains(lost.Error(), "no answer within 488ms") {
			t.Errorf("got %v, want a loss because the backend has not answered", lost)
		}
	})
}

func TestTheWorksErrorIsKeptBesideTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		oops := errors.New("out of stock")
		err := l.With(t.Context(), "k", func(ctx context.Context) error {
			if n, err := l.ForceRelease(t.Context(), "k", "deploy"); n != 1 || err != nil {
				t.Errorf("forced %d: %v", n, err)
			}
			<-ctx.Done()
			return oops
		})
		if !errors.Is(err, oops) || !errors.Is(err, lock.ErrLost) || !strings.Contains(err.Error(), "deploy") {
			t.Errorf("got %v", err)
		}
	})
}

// A function may release its lease itself. The loss is still the error of the call, also
// if nobody but that release has noticed it (L4).
func TestTheLossIsReturnedIfTheWorkHasReleasedItsLease(t *testing.T) {
	type work = func(ctx context.Context, release func() error) error
	leased := func(fn work) func(context.Context) error {
		return func(ctx context.Context) error {
			lease, _ := lock.LeaseFrom(ctx)
			return fn(ctx, lease.Release)
		}
	}
	calls := map[string]func(ctx context.Context, l *lock.Locker, fn work) error{
		"With": func(ctx context.Context, l *lock.Locker, fn work) error { return l.With(ctx, "k", leased(fn)) },
		"WithAll": func(ctx context.Context, l *lock.Locker, fn work) error {
			return l.WithAll(ctx, []string{"j", "k"}, leased(fn))
		},
		"WithSlot": func(ctx context.Context, l *lock.Locker, fn work) error {
			return l.WithSlot(ctx, &lock.Pool{Key: "k", Size: 2}, func(ctx context.Context, s *lock.Slot) error { return fn(ctx, s.Release) })
		},
		"Init": func(ctx context.Context, l *lock.Locker, fn work) error {
			return l.WithSlot(ctx, &lock.Pool{Key: "k", Size: 2, Init: func(ctx context.Context, s *lock.Slot) error {
				return errors.Join(fn(ctx, s.Release), errors.New("failed"))
			}}, func(context.Context, *lock.Slot) error { return nil })
		},
		"Once": func(ctx context.Context, l *lock.Locker, fn work) error {
			_, err := l.Once(ctx, "k", time.Hour, leased(fn))
			return err
		},
		"Lead": func(ctx context.Context, l *lock.Locker, fn work) error {
			terms := 0
			err := l.Lead(ctx, "k", func(ctx context.Context) error {
				if terms++; terms > 1 {
					return nil
				}
				return leased(fn)(ctx)
			})
			if err == nil && terms == 2 { // E2
				err = lock.ErrLost
			}
			return err
		},
	}
	for name, call := range calls {
		for _, noticed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/noticed ", noticed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := process(t, memory.NewLock(), lock.Config{})
					err := call(t.Context(), l, func(ctx context.Context, release func() error) error {
						if n, err := l.ForceRelease(t.Context(), "k", "the test"); n != 1 || err != nil {
							t.Errorf("force: %d, %v", n, err)
						}
						if noticed {
							<-ctx.Done()
						}
						if err := release(); !errors.Is(err, lock.ErrLost) {
							t.Errorf("Release: %v, want ErrLost", err)
						}
						return nil
					})
					if !errors.Is(err, lock.ErrLost) {
						t.Errorf("got %v, want ErrLost", err)
					}
				})
			})
		}
	}
}

func TestAPanickingObserverHurtsNobody(t *testing.T) {
	l := process(t, memory.NewLock(), lock.Config{Observer: panicker{}})
	release(t, acquire(t, l, "k"))
}

type panicker struct{}

func (panicker) Observe(lock.Event) { panic("observer") }

func TestCloseNamesTheLeasesItCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := lock.New(memory.NewLock(), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		stubborn := acquire(t, l, "stubborn")
		done := make(chan error)
		go func() {
			done <- l.With(t.Context(), "obedient", func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = l.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stubborn") {
			t.Errorf("Close said %v", err)
		}
		alone := raw(t, memory.NewLock(), lock.Config{})
		release(t, acquire(t, alone, "first"))
		last := acquire(t, alone, "last")
		if err := alone.Close(ctx); err == nil || !strings.HasSuffix(err.Error(), "leases cut off (1): last") {
			t.Errorf("Close said %v", err)
		}
		_ = last.Release()
		observed := raw(t, memory.NewLock(), lock.Config{Observer: &recorder{}})
		leaked := acquire(t, observed, "leaked")
		if err := observed.Close(ctx); err == nil || !strings.Contains(err.Error(), "leaked (") || !strings.Contains(err.Error(), "_test.go:") {
			t.Errorf("Close said %v, want the call site", err)
		}
		_ = leaked.Release()
		for _, err := range []error{<-done, stubborn.Release()} {
			var lost *lock.LostError
			if !errors.As(err, &lost) || lost.Cause != lock.Shutdown {
				t.Errorf("got %v, want a loss by the shutdown", err)
			}
		}
		if _, err := l.TryAcquire(t.Context(), "k"); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("TryAcquire after Close: %v", err)
		}
	})
}

// After the end of its context Close leaves holders the time to release their leases.
func TestCloseWaitsForTheReleasesOfTheLeasesItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: memory.NewLock(), scope: driver.Fleet}
		l := raw(t, d, lock.Config{})
		for _, key := range []string{"a", "b"} {
			lease := acquire(t, l, key)
			go func() {
				<-lease.Context().Done()
				time.Sleep(100 * time.Millisecond)
				if err := lease.Release(); !errors.Is(err, lock.ErrLost) {
					t.Errorf("release: %v", err)
				}
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := l.Close(ctx); err == nil || time.Since(start) != 100*time.Millisecond {
			t.Errorf("Close took %v: %v", time.Since(start), err)
		}
		for _, key := range []string{"a", "b"} {
			if s, err := d.Inspect(t.Context(), key); err != nil || len(s.Holders) != 0 {
				t.Errorf("%s is held by %+v, %v", key, s.Holders, err)
			}
		}
	})
}

// A lease without renewal ends by its time, also when the checks for a force have failed.
func TestALeaseWithoutRenewalExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, stalled{memory.NewLock()}, lock.Config{TTL: 9 * time.Second})
		lease := acquire(t, l, "k", lock.NoRenew())
		<-lease.Context().Done()
		var lost *lock.LostError
		if !errors.As(lease.Err(), &lost) || lost.Cause != lock.Expired {
			t.Errorf("got %v", lease.Err())
		}
		_ = lease.Release()
	})
}

// The error of a lease whose backend others share is asked of nobody: a hint at a loss
// causes a renewal, for which Err does not wait.
func TestErrDoesNotWaitForTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hints := make(chan error)
		close(hints)
		d := newRenewals()
		d.acquire = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Lost = hints
			return g, err
		}
		renew := d.renew
		d.renew = func(ctx context.Context, under driver.Driver, g []driver.Grant) []driver.Renewal {
			time.Sleep(500 * time.Millisecond)
			return renew(ctx, under, g)
		}
		lease := acquire(t, process(t, d, lock.Config{}), "k")
		start := time.Now()
		if err := lease.Err(); err != nil || time.Since(start) != 0 {
			t.Errorf("Err took %v: %v", time.Since(start), err)
		}
		time.Sleep(time.Second)
		if d.count() == 0 {
			t.Error("the hint has caused no renewal")
		}
		release(t, lease)
	})
}

// A driver may answer for many grants with one error. Each lease names its own key.
func TestEachLossNamesItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: memory.NewLock(), scope: driver.Fleet}
		lost := &lock.LostError{Cause: lock.Forced, Reason: "test"}
		d.renew = func(_ context.Context, _ driver.Driver, g []driver.Grant) []driver.Renewal {
			return slices.Repeat([]driver.Renewal{{Err: lost}}, len(g))
		}
		l := process(t, d, lock.Config{})
		a, b := acquire(t, l, "a"), acquire(t, l, "b")
		<-a.Context().Done()
		<-b.Context().Done()
		for _, lease := range []*lock.Lease{a, b} {
			var got *lock.LostError
			if !errors.As(lease.Err(), &got) || got.Key != lease.Key() || got.Reason != "test" {
				t.Errorf("%s: %+v", lease.Key(), got)
			}
			_ = lease.Release()
		}
		if lost.Key != "" {
			t.Errorf("the driver's error has changed to %+v", lost)
		}
	})
}

func TestExtendChangesTheTTLOfLaterRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{TTL: time.Second})
		lease := acquire(t, l, "k")
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if left, want := time.Until(lease.Deadline()), time.Minute-driver.Margin(time.Minute); left != want {
			t.Errorf("%v left after Extend, want %v", left, want)
		}
		time.Sleep(time.Hour)
		if left := time.Until(lease.Deadline()); left < 40*time.Second {
			t.Errorf("%v left an hour later, want renewals to the new TTL", left)
		}
		if err := lease.Extend(t.Context(), time.Millisecond); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("Extend to 1ms: %v", err)
		}
		release(t, lease)
		if err := lease.Extend(t.Context(), time.Minute); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Extend after Release: %v", err)
		}
	})
}

func TestInvalidRequestsDoNotReachTheDriver(t *testing.T) {
	f := newFleet()
	l := process(t, f, lock.Config{})
	for name, c := range map[string]struct {
		key  string
		opts []lock.Option
		code string
	}{
		"empty key":       {"", nil, "lock.invalid_key"},
		"long key":        {strings.Repeat("k", lock.MaxKey+1), nil, "lock.invalid_key"},
		"space":           {"a b", nil, "lock.invalid_key"},
		"wide space":      {"a\u3000b", nil, "lock.invalid_key"},
		"control":         {"a\x00b", nil, "lock.invalid_key"},
		"not UTF-8":       {"a\xffb", nil, "lock.invalid_key"},
		"no TTL":          {"k", []lock.Option{lock.TTL(0)}, "lock.invalid_option"},
		"negative TTL":    {"k", []lock.Option{lock.TTL(-time.Second)}, "lock.invalid_option"},
		"long TTL":        {"k", []lock.Option{lock.TTL(lock.MaxTTL + 1)}, "lock.invalid_option"},
		"negative wait":   {"k", []lock.Option{lock.Wait(-1)}, "lock.invalid_option"},
		"no slots":        {"k", []lock.Option{lock.Slots(0)}, "lock.invalid_option"},
		"long cooldown":   {"k", []lock.Option{lock.Cooldown(lock.MaxTTL + 1)}, "lock.invalid_option"},
		"too many slots":  {"k", []lock.Option{lock.Slots(lock.MaxSlots + 1)}, "lock.invalid_option"},
		"long label":      {"k", []lock.Option{lock.Label(strings.Repeat("l", lock.MaxLabel+1))}, "lock.invalid_option"},
		"label not UTF-8": {"k", []lock.Option{lock.Label("\xff")}, "lock.invalid_option"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Acquire(t.Context(), c.key, c.opts...)
			var coded interface{ Code() string }
			if !errors.Is(err, lock.ErrInvalid) || !errors.As(err, &coded) || coded.Code() != c.code {
				t.Errorf("got %v, want the code %s", err, c.code)
			}
		})
	}
	if _, err := l.TryAcquire(t.Context(), "k", lock.Wait(time.Second)); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("TryAcquire with Wait: %v", err)
	}
	if _, err := l.ForceRelease(t.Context(), "k", ""); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("ForceRelease without a reason: %v", err)
	}
	if _, err := l.ForceRelease(t.Context(), "k", "test", lock.OnlyFence(1), lock.OnlyFence(2)); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("ForceRelease with two options: %v", err)
	}
	if f.asked() != 0 {
		t.Errorf("the driver was asked %d times", f.asked())
	}
}

func TestConfigOutOfBoundsIsRefused(t *testing.T) {
	for _, c := range []lock.Config{{TTL: time.Millisecond}, {TTL: 25 * time.Hour}, {Wait: -1}} {
		if _, err := lock.New(memory.NewLock(), c); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("New(%+v): %v", c, err)
		}
	}
	if _, err := lock.New(nil, lock.Config{}); err == nil {
		t.Error("New accepts no driver")
	}
}

func TestAContextWithoutLeaseMayWaitForItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		held := acquire(t, l, "k")
		if held.Contended() {
			t.Error("a free key was contended")
		}
		type word struct{}
		beside := lock.WithoutLease(context.WithValue(held.Context(), word{}, "v"))
		if _, ok := lock.LeaseFrom(beside); ok || beside.Value(word{}) != "v" {
			t.Errorf("it has a lease, %v, or lost a value, %v", ok, beside.Value(word{}))
		}
		beside = context.WithoutCancel(beside)
		time.AfterFunc(time.Second, func() { release(t, held) })
		next, err := l.Acquire(beside, "k")
		if err != nil {
			t.Fatalf("waiting for what the other context holds: %v", err)
		}
		if !next.Contended() {
			t.Error("a key that had to be waited for was not contended")
		}
		release(t, next)
	})
}

func TestAcquireAllLeavesTheCallersKeysAlone(t *testing.T) {
	l := process(t, memory.NewLock(), lock.Config{})
	keys := []string{"c", "a", "b", "a"}
	all, err := l.AcquireAll(t.Context(), keys)
	if err != nil || !slices.Equal(keys, []string{"c", "a", "b", "a"}) {
		t.Fatalf("the keys became %q, %v", keys, err)
	}
	if all.Fence("a") == 0 || all.Fence("d") != 0 {
		t.Errorf("the fences are %d and %d, want none for another key", all.Fence("a"), all.Fence("d"))
	}
	if err := all.Release(); err != nil {
		t.Error(err)
	}
}

func TestForgottenLeasesOfSeveralKeysAreReportedWithTheirSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := process(t, memory.NewLock(), lock.Config{TTL: time.Second, Observer: &seen})
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := l.AcquireAll(ctx, []string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		events := eventsOf[lock.Forgotten](&seen)
		if len(events) != 2 || !strings.Contains(events[0].Site, "lease_test.go:") || events[0].Site != events[1].Site {
			t.Errorf("reported %+v", events)
		}
	})
}

// lasting is a context that does not end, and counts the functions that wait for
// its end.
type lasting struct {
	context.Context
	done      chan struct{} // its own: package context would attach to that of a parent
	functions atomic.Int64
}

func (c *lasting) Done() <-chan struct{} { return c.done }

func (c *lasting) AfterFunc(func()) (stop func() bool) {
	c.functions.Add(1)
	return func() bool {
		c.functions.Add(-1)
		return true
	}
}

// A context that lives as long as the process keeps nothing of the leases that were
// released. L18
func TestALongContextKeepsNothingOfReleasedLeases(t *testing.T) {
	for name, use := range map[string]func(*lock.Lease){
		"renewed":    func(*lock.Lease) { time.Sleep(time.Minute) },
		"waited for": func(held *lock.Lease) { _ = held.Context().Done() },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := process(t, memory.NewLock(), lock.Config{})
			ctx := &lasting{Context: t.Context(), done: make(chan struct{})}
			held, err := l.Acquire(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			use(held)
			if ctx.functions.Load() == 0 {
				t.Errorf("%s: the end of the context is not watched", name)
			}
			release(t, held)
			if n := ctx.functions.Load(); n != 0 {
				t.Errorf("%s: %d functions wait for the end of the context", name, n)
			}
		})
	}
}

// forward only forwards its arguments.
func forward(acquire func(context.Context, string, ...lock.Option) (*lock.Lease, error), ctx context.Context) error {
	_, err := acquire(ctx, "k", lock.Forwarded())
	return err
}

func TestAForwardedCallHasTheSiteOfTheForwardersCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := process(t, memory.NewLock(), lock.Config{TTL: time.Second, Observer: &seen})
		for i, acquire := range []func(context.Context, string, ...lock.Option) (*lock.Lease, error){l.Acquire, l.TryAcquire} {
			ctx, cancel := context.WithCancel(t.Context())
			_, _, line, _ := runtime.Caller(0)
			if err := forward(acquire, ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
			time.Sleep(10 * time.Second) // fake time: it is released a TTL later at the latest
			synctest.Wait()
			events := eventsOf[lock.Forgotten](&seen)
			if want := fmt.Sprintf("lease_test.go:%d", line+1); len(events) != i+1 || !strings.HasSuffix(events[i].Site, want) {
				t.Errorf("reported %+v, want the site %s", events, want)
			}
		}
	})
}

// Each Locker has a clock of its own: the time of one says nothing about the lease of another.
func TestALeaseInsideALeaseOfAnotherLockerIsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := process(t, memory.NewLock(), lock.Config{})
		time.Sleep(time.Hour)
		outer := acquire(t, process(t, memory.NewLock(), lock.Config{}), "outer")
		defer release(t, outer)
		inner, err := old.Acquire(outer.Context(), "inner")
		if err != nil {
			t.Fatal(err)
		}
		defer release(t, inner)
		if err := inner.Context().Err(); err != nil {
			t.Errorf("the inner context has ended: %v", err)
		}
		if err := outer.Err(); err != nil {
			t.Errorf("the outer lease has ended: %v", err)
		}
	})
}
