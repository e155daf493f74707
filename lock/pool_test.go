package lock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

// sharedMemory is a memory driver of scope Fleet: the front puts its queue in
// front of it.
type sharedMemory struct{ *memory.Lock }

func (sharedMemory) Info() driver.Info { return driver.Info{Name: "shared", Scope: driver.Fleet} }

// sandbox is a pool that records its calls.
type sandbox struct {
	lock.Pool

	mu      sync.Mutex // guards the fields below
	steps   []string
	init    func(ctx context.Context, s *lock.Slot) error
	cleanup func(ctx context.Context, s *lock.Slot) error
}

func newSandbox(size int) *sandbox {
	b := &sandbox{Pool: lock.Pool{Key: "boxes", Size: size}}
	b.Init = func(ctx context.Context, s *lock.Slot) error { return b.step("init", b.init, ctx, s) }
	b.Cleanup = func(ctx context.Context, s *lock.Slot) error { return b.step("cleanup", b.cleanup, ctx, s) }
	return b
}

func (b *sandbox) step(name string, fn func(context.Context, *lock.Slot) error, ctx context.Context, s *lock.Slot) error {
	b.mu.Lock()
	b.steps = append(b.steps, fmt.Sprint(name, s.Number()))
	b.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn(ctx, s)
}

// took returns the steps since the last call of it.
func (b *sandbox) took() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	steps := strings.Join(b.steps, " ")
	b.steps = nil
	return steps
}

func (b *sandbox) work(context.Context, *lock.Slot) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps = append(b.steps, "fn")
	return nil
}

func (b *sandbox) want(t *testing.T, want string) {
	t.Helper()
	if got := b.took(); got != want {
		t.Errorf("steps %q, want %q", got, want)
	}
}

func slotOf(t *testing.T, l *lock.Locker, n int) lock.SlotState {
	t.Helper()
	s, err := l.Inspect(t.Context(), "boxes")
	if err != nil {
		t.Fatal(err)
	}
	return s.Slots[n]
}

// onPools runs the test on a driver of one process and on one that others share.
func onPools(t *testing.T, test func(t *testing.T, d driver.Driver)) {
	for name, open := range map[string]func() driver.Driver{
		"process": func() driver.Driver { return memory.NewLock() },
		"fleet":   func() driver.Driver { return sharedMemory{memory.NewLock()} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, open()) })
		})
	}
}

func TestASlotIsCleanedThenPreparedThenUsed(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(2)
		for range 2 {
			if err := l.WithSlot(t.Context(), &b.Pool, b.work); err != nil {
				t.Fatal(err)
			}
		}
		// Unknown at first, then clean: P2, P4, P10.
		b.want(t, "cleanup0 init0 fn cleanup0 init0 fn cleanup0")
		if s := slotOf(t, l, 0); s.Status != lock.SlotFree {
			t.Errorf("the slot is %+v", s)
		}
	})
}

func TestCleanupRunsAfterAnyEndOfTheWork(t *testing.T) {
	failure := errors.New("failure")
	for name, fn := range map[string]func(context.Context, *lock.Slot) error{
		"error":  func(context.Context, *lock.Slot) error { return failure },
		"panic":  func(context.Context, *lock.Slot) error { panic(failure) },
		"goexit": func(context.Context, *lock.Slot) error { runtime.Goexit(); return nil },
	} {
		for _, where := range []string{"init", "fn"} {
			t.Run(where+" "+name, func(t *testing.T) {
				onPools(t, func(t *testing.T, d driver.Driver) {
					l, b := process(t, d, lock.Config{}), newSandbox(1)
					work, want := fn, "cleanup0 init0 cleanup0"
					if where == "init" {
						b.init, work = fn, b.work
					}
					var err error
					var panicked any
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { panicked = recover() }()
						err = l.WithSlot(t.Context(), &b.Pool, work)
					}()
					<-done
					b.want(t, want)
					if (panicked != nil) != (name == "panic") || errors.Is(err, failure) != (name == "error") {
						t.Errorf("panic %v, error %v", panicked, err)
					}
					if s := slotOf(t, l, 0); s.Status != lock.SlotFree {
						t.Errorf("the slot is %+v", s)
					}
				})
			})
		}
	}
}

func TestACancelledCallCleansItsSlot(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		type name struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "caller"))
		b.cleanup = func(ctx context.Context, s *lock.Slot) error { // P3
			if ctx.Value(name{}) != "caller" {
				t.Error("Cleanup has not the values of the caller")
			}
			if d, ok := ctx.Deadline(); !ok || time.Until(d) != 30*time.Second {
				t.Errorf("Cleanup is bounded by %v", d)
			}
			time.Sleep(25 * time.Second) // longer than the TTL: it is renewed, P1
			return ctx.Err()
		}
		err := l.WithSlot(ctx, &b.Pool, func(ctx context.Context, s *lock.Slot) error {
			cancel()
			<-ctx.Done()
			if s.Err() != nil || s.Context().Err() == nil {
				t.Errorf("the lease ended with its caller: %v", s.Err())
			}
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
		if s := slotOf(t, l, 0); s.Status != lock.SlotFree {
			t.Errorf("the slot is %+v", s)
		}
	})
}

func TestALostSlotIsNotCleanedByItsHolder(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(2)
		b.Quarantine = time.Minute
		err := l.WithSlot(t.Context(), &b.Pool, func(ctx context.Context, s *lock.Slot) error {
			if n, err := l.ForceRelease(t.Context(), "boxes", "stuck", lock.OnlySlot(s.Number())); n != 1 || err != nil {
				t.Error(n, err)
			}
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
		b.want(t, "cleanup0 init0")
		if s := slotOf(t, l, 0); s.Status != lock.SlotResting || s.Reason != lock.LeftForced {
			t.Errorf("the slot is %+v", s)
		}
		time.Sleep(time.Minute)
		var left *lock.Leaving
		b.init = func(_ context.Context, s *lock.Slot) error { left = s.Left(); return nil }
		if err := l.WithSlot(t.Context(), &b.Pool, b.work); err != nil {
			t.Fatal(err)
		}
		b.want(t, "cleanup0 init0 fn cleanup0") // P4
		if left == nil || left.Why != lock.LeftForced || left.By.PID == 0 || time.Since(left.At) < time.Minute {
			t.Errorf("left %+v", left)
		}
	})
}

// tardy is a backend in memory whose next grant arrives at its deadline, if late is true.
type tardy struct {
	*memory.Lock
	late   bool
	grants int
}

func (d *tardy) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	g, wait, err := d.Lock.Ask(ctx, r)
	d.grants++
	if d.late {
		d.late, g.Deadline = false, driver.Now()
	}
	return g, wait, err
}

// leaveDirty takes the slot of b from a holder, so that the next one finds it dirty.
func leaveDirty(t *testing.T, l *lock.Locker, b *sandbox) {
	t.Helper()
	held, err := l.AcquireSlot(t.Context(), &b.Pool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.ForceRelease(t.Context(), "boxes", "test"); err != nil {
		t.Fatal(err)
	}
	_ = held.Release()
	b.took()
}

// A process that was stopped may read the grant of a dirty slot too late. It gives the slot
// back as it was, and the next holder sees whose it was (L22, P4).
func TestDirtySlotThatNobodyTouchedStaysDirty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &tardy{Lock: memory.NewLock()}
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		leaveDirty(t, l, b)
		d.late, d.grants = true, 0
		var left *lock.Leaving
		b.cleanup = func(_ context.Context, s *lock.Slot) error { left = cmp.Or(left, s.Left()); return nil }
		if err := l.WithSlot(t.Context(), &b.Pool, b.work, lock.Wait(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b.want(t, "cleanup0 init0 fn cleanup0")
		if d.grants != 2 || left == nil || left.Why != lock.LeftForced {
			t.Errorf("after %d grants, left %+v", d.grants, left)
		}
	})
}

// So are the note and the failed Inits of a slot that was handed back clean.
func TestCleanSlotThatNobodyTouchedKeepsItsNoteAndStrikes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &tardy{Lock: memory.NewLock()}
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		b.Strikes = 2
		b.init = func(_ context.Context, s *lock.Slot) error {
			return errors.Join(s.SetNote("port 80"), errors.New("no"))
		}
		if err := l.WithSlot(t.Context(), &b.Pool, b.work); err == nil {
			t.Fatal("Init has not failed")
		}
		d.late, d.grants = true, 0
		b.init = func(_ context.Context, s *lock.Slot) error {
			if s.Note() != "port 80" || s.Left() != nil {
				t.Errorf("the slot has the note %q and left %+v", s.Note(), s.Left())
			}
			return errors.New("no")
		}
		if err := l.WithSlot(t.Context(), &b.Pool, b.work, lock.Wait(time.Minute)); err == nil || d.grants != 2 {
			t.Errorf("got %v after %d grants", err, d.grants)
		}
		if s := slotOf(t, l, 0); s.Status != lock.SlotWithdrawn { // P8: the second in a row
			t.Errorf("the slot is %+v", s)
		}
	})
}

// unanswering is a shared backend in memory which executes the next request, but does not
// answer it, and then refuses all releases for a while.
type unanswering struct {
	sharedMemory
	silent time.Duration

	mu    sync.Mutex // guards the fields below
	next  bool
	until time.Time
}

func (d *unanswering) silence() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = true
}

func (d *unanswering) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	g, wait, err := d.sharedMemory.Ask(ctx, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next {
		d.next, d.until = false, time.Now().Add(d.silent)
		return driver.Grant{}, nil, driver.ErrUnavailable
	}
	return g, wait, err
}

func (d *unanswering) Release(ctx context.Context, g driver.Grant) error {
	d.mu.Lock()
	refuses := time.Now().Before(d.until)
	d.mu.Unlock()
	if refuses {
		return driver.ErrUnavailable
	}
	return d.sharedMemory.Release(ctx, g)
}

// The clean-up of a request without an answer leaves a dirty slot dirty (P4, L6).
func TestDirtySlotOfALostReplyStaysDirty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &unanswering{sharedMemory: sharedMemory{memory.NewLock()}}
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		leaveDirty(t, l, b)
		d.silence()
		if _, err := l.AcquireSlot(t.Context(), &b.Pool); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if err := l.WithSlot(t.Context(), &b.Pool, b.work); err != nil {
			t.Fatal(err)
		}
		b.want(t, "cleanup0 init0 fn cleanup0")
	})
}

// That clean-up goes on for as long as the backend may keep the grant (L6).
func TestTheCleanUpOfALostReplyGoesOnUntilTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 20 * time.Second
		d := &unanswering{sharedMemory: sharedMemory{memory.NewLock()}, silent: ttl / 2}
		l := process(t, d, lock.Config{TTL: ttl})
		d.silence()
		if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		time.Sleep(ttl - 2*time.Second)
		release(t, acquire(t, l, "k", lock.Wait(0)))
	})
}

// doubtful is a backend in memory whose grants report what the test sends on lost,
// and whose renewals take a second.
type doubtful struct {
	*memory.Lock
	lost chan error
}

func (d doubtful) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	g, wait, err := d.Lock.Ask(ctx, r)
	g.Lost = d.lost
	return g, wait, err
}

func (d doubtful) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	time.Sleep(time.Second)
	return d.Lock.Renew(ctx, grants)
}

// The hint of the driver is consumed by a look at the context, and the renewal that
// it causes has no answer yet when the work ends.
func TestASlotInDoubtIsNotCleanedBeforeItsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := doubtful{memory.NewLock(), make(chan error, 1)}
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		err := l.WithSlot(t.Context(), &b.Pool, func(ctx context.Context, _ *lock.Slot) error {
			b.took()
			if n, err := d.ForceRelease(ctx, "boxes", driver.Force{Reason: "test"}); n != 1 || err != nil {
				t.Error(n, err)
			}
			d.lost <- nil
			return ctx.Err()
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
		b.want(t, "")
	})
}

func TestACleanupThatIsCutByTheLossLeavesTheSlotDirty(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		s, err := l.AcquireSlot(t.Context(), &b.Pool)
		if err != nil {
			t.Fatal(err)
		}
		b.cleanup = func(ctx context.Context, s *lock.Slot) error {
			_, _ = l.ForceRelease(t.Context(), "boxes", "stuck")
			<-ctx.Done()
			return ctx.Err()
		}
		if err := s.Release(); !errors.Is(err, lock.ErrLost) || errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if s := slotOf(t, l, 0); s.Status != lock.SlotDirty || s.Reason != lock.LeftForced { // P8
			t.Errorf("the slot is %+v", s)
		}
	})
}

func TestAReleaseReturnsTheErrorOfItsCleanupAlsoIfTheBackendDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var plan locktest.Plan
		r := &recorder{}
		l, b := process(t, locktest.Faulty(sharing(t, memory.NewLock())(), &plan), lock.Config{Observer: r}), newSandbox(1)
		s, err := l.AcquireSlot(t.Context(), &b.Pool)
		if err != nil {
			t.Fatal(err)
		}
		failure := errors.New("disk full")
		b.cleanup = func(context.Context, *lock.Slot) error { return failure }
		plan.Add(locktest.Step{Op: locktest.Release, Hang: true, Times: 1})
		if err := s.Release(); !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
		time.Sleep(10 * time.Second) // the release is retried
		if s := slotOf(t, l, 0); s.Status != lock.SlotWithdrawn {
			t.Errorf("the slot is %+v", s)
		}
		if got := eventsOf[lock.Withdrawn](r); len(got) != 1 || got[0].Slot != 0 || !strings.Contains(got[0].Reason, "disk full") {
			t.Errorf("the withdrawal was reported as %+v, want once", got)
		}
	})
}

// The reason of a withdrawn slot is cut between two characters.
func TestALongReasonIsCutAfterACharacter(t *testing.T) {
	for _, begin := range []string{"", "a"} {
		l, b := process(t, memory.NewLock(), lock.Config{}), newSandbox(1)
		s, err := l.AcquireSlot(t.Context(), &b.Pool)
		if err != nil {
			t.Fatal(err)
		}
		b.cleanup = func(context.Context, *lock.Slot) error {
			return errors.New(begin + strings.Repeat("é", lock.MaxReason))
		}
		if err := s.Release(); err == nil {
			t.Error("no error of the Cleanup")
		}
		if s := slotOf(t, l, 0); s.Status != lock.SlotWithdrawn || len(s.Reason) < lock.MaxReason-1 || len(s.Reason) > lock.MaxReason || !utf8.ValidString(s.Reason) {
			t.Errorf("the slot is %+v", s)
		}
	}
}

func TestASlotThatIsLostInItsFirstCleanupIsNotPrepared(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		b.cleanup = func(ctx context.Context, _ *lock.Slot) error {
			_, err := l.ForceRelease(t.Context(), "boxes", "stuck")
			<-ctx.Done()
			return err
		}
		if err := l.WithSlot(t.Context(), &b.Pool, b.work); !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
		b.want(t, "cleanup0")
	})
}

func TestAFailedInitThatLostItsSlotReturnsBothErrors(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		failure := errors.New("failure")
		b.init = func(ctx context.Context, _ *lock.Slot) error {
			if _, err := l.ForceRelease(t.Context(), "boxes", "test"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return failure
		}
		if _, err := l.AcquireSlot(t.Context(), &b.Pool); !errors.Is(err, failure) || !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
		b.want(t, "cleanup0 init0")
	})
}

func TestACallThatEndsDuringTheFirstCleanupPreparesNothing(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		ctx, cancel := context.WithCancel(t.Context())
		b.cleanup = func(context.Context, *lock.Slot) error { cancel(); return nil }
		if err := l.WithSlot(ctx, &b.Pool, b.work); !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
		b.want(t, "cleanup0")
		if s := slotOf(t, l, 0); s.Status != lock.SlotFree {
			t.Errorf("the slot is %+v", s)
		}
	})
}

func TestTheDeadlineOfTheLongestCleanupIsAhead(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		b.CleanupTimeout = lock.Forever
		b.cleanup = func(ctx context.Context, _ *lock.Slot) error {
			if end, _ := ctx.Deadline(); time.Until(end) < time.Hour {
				t.Errorf("it is %v", end)
			}
			return ctx.Err()
		}
		if err := l.WithSlot(t.Context(), &b.Pool, b.work); err != nil {
			t.Error(err)
		}
	})
}

func TestAFailedCleanupWithdrawsTheSlot(t *testing.T) {
	failure := errors.New("disk full")
	for name, cleanup := range map[string]func(context.Context, *lock.Slot) error{
		"error": func(context.Context, *lock.Slot) error { return failure },
		"panic": func(context.Context, *lock.Slot) error { panic("disk full") },
		"timeout": func(ctx context.Context, _ *lock.Slot) error {
			<-ctx.Done()
			return fmt.Errorf("disk full: %w", ctx.Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			onPools(t, func(t *testing.T, d driver.Driver) {
				rec := &recorder{}
				l, b := process(t, d, lock.Config{Observer: rec}), newSandbox(1)
				err := l.WithSlot(t.Context(), &b.Pool, func(context.Context, *lock.Slot) error { b.cleanup = cleanup; return nil })
				if err != nil {
					t.Errorf("a failed Cleanup is the call's error: %v", err)
				}
				if s := slotOf(t, l, 0); s.Status != lock.SlotWithdrawn || !strings.Contains(s.Reason, "disk full") {
					t.Errorf("the slot is %+v", s)
				}
				b.cleanup = nil
				b.took()
				err = l.WithSlot(t.Context(), &b.Pool, b.work, lock.Wait(time.Minute))
				var coded interface{ Code() string }
				if !errors.Is(err, lock.ErrNotAcquired) || !errors.As(err, &coded) || coded.Code() != "lock.pool_withdrawn" {
					t.Errorf("got %v", err)
				}
				if err := l.Heal(t.Context(), "boxes", 0, "repaired"); err != nil {
					t.Fatal(err)
				}
				if err := l.WithSlot(t.Context(), &b.Pool, b.work); err != nil {
					t.Fatal(err)
				}
				b.want(t, "cleanup0 init0 fn cleanup0")
				if healed := eventsOf[lock.Healed](rec); len(healed) != 1 || healed[0] != (lock.Healed{Key: "boxes", Reason: "repaired"}) {
					t.Errorf("reported %+v, want the slot healed once", healed)
				}
				events := eventsOf[lock.Withdrawn](rec)
				if len(events) != 1 || events[0].Key != "boxes" || events[0].Slot != 0 || !strings.Contains(events[0].Reason, "disk full") {
					t.Errorf("reported %+v, want the slot withdrawn once", events)
				}
			})
		})
	}
}

func TestACallTakesAnotherSlotWhereADirtyOneCannotBeCleaned(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(3)
		b.cleanup = func(_ context.Context, s *lock.Slot) error {
			if s.Number() < 2 {
				return errors.New("disk full")
			}
			return nil
		}
		if err := l.WithSlot(t.Context(), &b.Pool, b.work); err != nil {
			t.Fatal(err)
		}
		b.want(t, "cleanup0 cleanup1 cleanup2 init2 fn cleanup2") // P4
	})
}

// A slot that cannot be cleaned does not begin the wait anew (P4).
func TestACallTakesAnotherSlotWithinWhatIsLeftOfItsWait(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(2)
		var held []*lock.Slot
		for range 2 {
			s, err := l.AcquireSlot(t.Context(), &b.Pool)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, s)
		}
		b.cleanup = func(context.Context, *lock.Slot) error { return errors.New("disk full") }
		time.AfterFunc(6*time.Second, func() {
			if _, err := l.ForceRelease(t.Context(), "boxes", "test", lock.OnlySlot(held[0].Number())); err != nil {
				t.Error(err)
			}
		})
		before := time.Now()
		err := l.WithSlot(t.Context(), &b.Pool, b.work, lock.Wait(10*time.Second))
		if took := time.Since(before); !errors.Is(err, lock.ErrNotAcquired) || took < 9*time.Second || took > 11*time.Second {
			t.Errorf("got %v after %v", err, took)
		}
		b.cleanup = nil
		for _, s := range held {
			_ = s.Release()
		}
	})
}

func TestFailedInitsWithdrawASlot(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(2)
		failure := errors.New("no image")
		b.init = func(_ context.Context, s *lock.Slot) error { return failure }
		var slots []string
		for range 6 {
			if err := l.WithSlot(t.Context(), &b.Pool, b.work); !errors.Is(err, failure) {
				t.Fatal(err)
			}
			steps := strings.Fields(b.took())
			slots = append(slots, steps[len(steps)-1])
		}
		if !slices.Equal(slots, []string{"cleanup0", "cleanup1", "cleanup0", "cleanup1", "cleanup0", "cleanup1"}) { // P7
			t.Errorf("used %q", slots)
		}
		if s := slotOf(t, l, 1); s.Status != lock.SlotWithdrawn || s.Strikes != 3 { // P8
			t.Errorf("the slot is %+v", s)
		}
		if err := l.WithSlot(t.Context(), &b.Pool, b.work); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("got %v", err)
		}
	})
}

func TestASuccessfulInitEndsTheStrikes(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		n := 0
		b.init = func(_ context.Context, s *lock.Slot) error {
			if n++; n%3 != 0 {
				return errors.New("no image")
			}
			return nil
		}
		for range 9 {
			_ = l.WithSlot(t.Context(), &b.Pool, b.work)
		}
		if s := slotOf(t, l, 0); s.Status != lock.SlotFree || s.Strikes != 0 {
			t.Errorf("the slot is %+v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		b.init = func(ctx context.Context, _ *lock.Slot) error { cancel(); <-ctx.Done(); return ctx.Err() }
		_ = l.WithSlot(ctx, &b.Pool, b.work)
		if s := slotOf(t, l, 0); s.Strikes != 0 {
			t.Errorf("a cancelled Init is a strike: %+v", s)
		}
	})
}

func TestASlotKeepsItsNoteAndItsProcess(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(3)
		first, _ := l.AcquireSlot(t.Context(), &b.Pool)
		second, _ := l.AcquireSlot(t.Context(), &b.Pool)
		for _, note := range []string{strings.Repeat("x", 256), "warm"} {
			if err := second.SetNote(note); err != nil {
				t.Fatal(err)
			}
		}
		for _, note := range []string{strings.Repeat("x", 257), "\xff"} {
			if err := second.SetNote(note); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("the note %q: got %v", note, err)
			}
		}
		for _, s := range []*lock.Slot{first, second} {
			if err := errors.Join(s.Release(), s.Release()); err != nil {
				t.Fatal(err)
			}
		}
		s, err := l.AcquireSlot(t.Context(), &b.Pool)
		if err != nil || s.Number() != 1 || s.Note() != "warm" || s.Left() != nil { // P7
			t.Fatalf("slot %d, %q, %v, %v", s.Number(), s.Note(), s.Left(), err)
		}
		_ = s.Release()
	})
}

func TestASlotThatNobodyUsedStaysAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := sharedMemory{memory.NewLock()}
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		b.Quarantine = time.Hour
		if err := l.WithSlot(t.Context(), &b.Pool, b.work); err != nil {
			t.Fatal(err)
		}
		held, _ := l.AcquireSlot(t.Context(), &b.Pool)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.WithSlot(ctx, &b.Pool, b.work) }()
		synctest.Wait()
		cancel()
		_ = held.Release() // at the instant at which its waiter leaves
		<-done
		synctest.Wait()
		if s := slotOf(t, l, 0); s.Status != lock.SlotFree && s.Status != lock.SlotDirty {
			t.Errorf("the slot is %+v", s)
		}
	})
}

// lateSlots is a shared driver whose next grant has passed its deadline.
type lateSlots struct {
	sharedMemory
	late bool
}

func (d *lateSlots) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	g, wait, err := d.Lock.Ask(ctx, r)
	if d.late {
		d.late = false
		g.Deadline = g.Deadline.Add(-time.Hour)
	}
	return g, wait, err
}

func TestACleanSlotWhoseGrantCameTooLateStaysClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &lateSlots{sharedMemory: sharedMemory{memory.NewLock()}}
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		for _, want := range []string{"cleanup0 init0 fn cleanup0", "init0 fn cleanup0"} {
			if err := l.WithSlot(t.Context(), &b.Pool, b.work); err != nil {
				t.Fatal(err)
			}
			b.want(t, want)
			d.late = true
		}
		if d.late = false; l.Stats().Acquired != 2 {
			t.Errorf("got %+v", l.Stats())
		}
	})
}

func TestAPoolHasOneSize(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b, other := process(t, d, lock.Config{}), newSandbox(2), newSandbox(3)
		s, _ := l.AcquireSlot(t.Context(), &b.Pool)
		_, err := l.AcquireSlot(t.Context(), &other.Pool)
		size, ok := errors.AsType[*lock.PoolSizeError](err)
		if !ok || size.Size != 2 || size.Asked != 3 || !errors.Is(err, lock.ErrPoolSize) { // P9
			t.Errorf("got %v", err)
		}
		if _, err := l.Acquire(t.Context(), "boxes", lock.FixedSlots(4)); !errors.Is(err, lock.ErrPoolSize) {
			t.Errorf("got %v", err)
		}
		other.Resize = true
		more, err := l.AcquireSlot(t.Context(), &other.Pool)
		if err != nil || more.Number() != 1 {
			t.Fatal(err)
		}
		_, _ = more.Release(), s.Release()
	})
}

func TestPoolsAreThoseThatTheProcessHasUsed(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l := process(t, d, lock.Config{})
		for _, key := range []string{"b", "a", "b", "a"} {
			err := l.WithSlot(t.Context(), &lock.Pool{Key: key, Size: 2}, func(_ context.Context, s *lock.Slot) error {
				if !s.IsSlot() || s.Slots() != 2 {
					t.Errorf("slot %v of %d", s.IsSlot(), s.Slots())
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		pools, err := l.Pools(t.Context())
		if err != nil || len(pools) != 2 || pools[0].Key != "a" || pools[1].Key != "b" || len(pools[0].Slots) != 2 {
			t.Errorf("got %+v, %v", pools, err)
		}
		time.Sleep(2 * driver.PoolMemory)
		if pools, err := l.Pools(t.Context()); err != nil || len(pools) != 0 {
			t.Errorf("of pools that the backend has forgotten: %+v, %v", pools, err)
		}
		for i := range 300 {
			s, err := l.AcquireSlot(t.Context(), &lock.Pool{Key: fmt.Sprint("many", i), Size: 1})
			if err != nil {
				t.Fatal(err)
			}
			_ = s.Release()
		}
		if pools, err := l.Pools(t.Context()); err != nil || len(pools) != 256 { // L18
			t.Errorf("%d pools of 302 are remembered, %v", len(pools), err)
		}
		time.Sleep(2 * driver.PoolMemory)
		s, err := l.AcquireSlot(t.Context(), &lock.Pool{Key: "new", Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		if pools, err := l.Pools(t.Context()); err != nil || len(pools) != 1 || pools[0].Key != "new" {
			t.Errorf("later, %d pools are remembered, %v; want the new one", len(pools), err)
		}
		_ = s.Release()
	})
}

func TestCloseWaitsForCleanup(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, err := lock.New(d, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		b := newSandbox(1)
		s, err := l.AcquireSlot(t.Context(), &b.Pool)
		if err != nil {
			t.Fatal(err)
		}
		b.cleanup = func(ctx context.Context, _ *lock.Slot) error {
			time.Sleep(20 * time.Second)
			b.steps = append(b.steps, "cleaned")
			return ctx.Err()
		}
		b.took()
		go s.Release()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Close(ctx); err != nil { // P1
			t.Error(err)
		}
		b.want(t, "cleanup0 cleaned")
	})
}

func TestCloseWaitsForTheWorkOfALostSlot(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l := raw(t, d, lock.Config{})
		worked := false
		go func() {
			_ = l.WithSlot(t.Context(), &newSandbox(1).Pool, func(context.Context, *lock.Slot) error {
				time.Sleep(20 * time.Second)
				worked = true
				return nil
			})
		}()
		synctest.Wait()
		if n, err := l.ForceRelease(t.Context(), "boxes", "test"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if err := l.Close(t.Context()); err != nil || !worked {
			t.Errorf("got %v, the work has returned: %v", err, worked)
		}
	})
}

func TestAPoolThatIsInvalidIsRefused(t *testing.T) {
	l := process(t, memory.NewLock(), lock.Config{})
	fn := func(context.Context, *lock.Slot) error { return nil }
	good := lock.Pool{Key: "k", Size: 1}
	bad := map[string]func(*lock.Pool){
		"key is empty": func(p *lock.Pool) { p.Key = "" }, "Size is 0": func(p *lock.Pool) { p.Size = 0 },
		"Size is 4097": func(p *lock.Pool) { p.Size = 4097 }, "CleanupTimeout is": func(p *lock.Pool) { p.CleanupTimeout = -1 },
		"Quarantine is": func(p *lock.Pool) { p.Quarantine = -1 }, "Strikes is": func(p *lock.Pool) { p.Strikes = -1 },
		"Quarantine is 24h0m1s": func(p *lock.Pool) { p.Quarantine = lock.MaxTTL + time.Second },
	}
	for says, change := range bad {
		p := good
		change(&p)
		if err := l.WithSlot(t.Context(), &p, fn); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	for name, err := range map[string]error{
		"nil pool": l.WithSlot(t.Context(), nil, fn),
		"nil fn":   l.WithSlot(t.Context(), &good, nil),
		"slots":    l.WithSlot(t.Context(), &good, fn, lock.Slots(2)),
		"fixed":    l.WithSlot(t.Context(), &lock.Pool{Key: "k", Size: 1, Resize: true}, fn, lock.FixedSlots(1)),
		"cooldown": l.WithSlot(t.Context(), &good, fn, lock.Cooldown(time.Minute)),
		"no renew": l.WithSlot(t.Context(), &good, fn, lock.NoRenew()),
		"heal":     l.Heal(t.Context(), "k", 4096, "reason"),
		"reason":   l.Heal(t.Context(), "k", 0, ""),
	} {
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unhealing is a driver whose Heal fails.
type unhealing struct{ *memory.Lock }

func (unhealing) Heal(context.Context, string, int, string, driver.Holder) error {
	return errors.New("connection reset")
}

func TestAHealThatFailsIsUnavailable(t *testing.T) {
	var seen recorder
	l := process(t, unhealing{memory.NewLock()}, lock.Config{Observer: &seen})
	if err := l.Heal(t.Context(), "boxes", 0, "repaired"); !errors.Is(err, lock.ErrUnavailable) || len(eventsOf[lock.Healed](&seen)) != 0 {
		t.Errorf("got %v, reported %+v", err, eventsOf[lock.Healed](&seen))
	}
}

func TestADriverWithoutStatesRefusesPools(t *testing.T) {
	l, b := process(t, newFleet(), lock.Config{}), newSandbox(1)
	_, slot := l.ForceRelease(t.Context(), "k", "reason", lock.OnlySlot(0))
	_, fixed := l.Acquire(t.Context(), "k", lock.FixedSlots(2))
	for _, err := range []error{l.WithSlot(t.Context(), &b.Pool, b.work), l.Heal(t.Context(), "k", 0, "reason"), slot, fixed} {
		if !errors.Is(err, lock.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	}
}

// The size of a pool is that of the newest call (L15), also for the slots of calls
// that wait.
func TestAWaiterGetsASlotOfThePoolThatHasGrownMeanwhile(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		small, large := &lock.Pool{Key: "p", Size: 1}, &lock.Pool{Key: "p", Size: 3, Resize: true}
		take := func(l *lock.Locker, p *lock.Pool) *lock.Slot {
			s, err := l.AcquireSlot(t.Context(), p)
			if err != nil {
				t.Error(err)
				return nil
			}
			t.Cleanup(func() { _ = s.Release() })
			return s
		}
		if take(a, small) == nil {
			return
		}
		waited := make(chan *lock.Slot)
		go func() { waited <- take(a, small) }()
		synctest.Wait()
		grown := take(b, large)
		s := <-waited
		if s == nil || grown == nil || s.Number() == 0 || s.Number() == grown.Number() || s.Slots() != 1 {
			t.Errorf("the waiter has %v, the newcomer %v", s, grown)
		}
	})
}
