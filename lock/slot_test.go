package lock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// The contexts of a slot make no inner context before something waits for them:
// they are looked at with and without a wait.
func TestTheContextOfASlotsWorkEndsWithItsCaller(t *testing.T) {
	stop := errors.New("stop")
	for name, wait := range map[string]func(context.Context){
		"looked at": func(context.Context) {},
		"waited for": func(ctx context.Context) {
			<-ctx.Done()
		},
		"derived": func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			<-ctx.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onPools(t, func(t *testing.T, d driver.Driver) {
				l, b := process(t, d, lock.Config{}), newSandbox(1)
				type name struct{}
				caller, cancel := context.WithCancelCause(context.WithValue(t.Context(), name{}, "caller"))
				err := l.WithSlot(caller, &b.Pool, func(ctx context.Context, s *lock.Slot) error {
					if ctx.Err() != nil || context.Cause(ctx) != nil || ctx.Value(name{}) != "caller" {
						t.Errorf("at first: %v, %v, value %v", ctx.Err(), context.Cause(ctx), ctx.Value(name{}))
					}
					if held, ok := lock.LeaseFrom(ctx); !ok || held != s.Lease {
						t.Errorf("the lease on the context is %v", held)
					}
					cancel(stop)
					wait(ctx)
					if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), stop) || s.Context() != ctx {
						t.Errorf("at the end: %v, %v", ctx.Err(), context.Cause(ctx))
					}
					if held := s.Lease.Context(); held.Err() != nil || context.Cause(held) != nil { // P1
						t.Errorf("the lease has ended with the caller: %v, %v", held.Err(), context.Cause(held))
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestTheContextOfASlotsWorkHasTheDeadlineOfItsCaller(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		l, b := process(t, d, lock.Config{}), newSandbox(1)
		caller, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		want, _ := caller.Deadline()
		var work context.Context
		err := l.WithSlot(caller, &b.Pool, func(ctx context.Context, _ *lock.Slot) error {
			if got, ok := ctx.Deadline(); !ok || !got.Equal(want) {
				t.Errorf("the deadline is %v, want %v", got, want)
			}
			work = ctx
			time.Sleep(2 * time.Minute)
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(work.Err(), context.DeadlineExceeded) {
			t.Errorf("the call returned %v, its context %v", err, work.Err())
		}
	})
}

func TestTheContextsOfASlotEndWithTheirPart(t *testing.T) {
	for name, use := range map[string]func(context.Context){
		"unused": func(context.Context) {},
		"used":   func(ctx context.Context) { ctx.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			onPools(t, func(t *testing.T, d driver.Driver) {
				l, b := process(t, d, lock.Config{}), newSandbox(1)
				parts := map[string]context.Context{}
				part := func(name string, ctx context.Context) error {
					use(ctx)
					if err := ctx.Err(); err != nil {
						t.Errorf("%s has ended at once: %v", name, err)
					}
					for earlier, over := range parts {
						// Init and the work have one context.
						if goesOn := earlier == "init" && name == "work"; (over.Err() == nil) != goesOn {
							t.Errorf("at %s, the context of %s: %v", name, earlier, over.Err())
						}
					}
					parts[name] = ctx
					return nil
				}
				b.cleanup = func(ctx context.Context, s *lock.Slot) error {
					if s.Left() != nil && len(parts) == 0 {
						return part("first cleanup", ctx)
					}
					return part("cleanup", ctx)
				}
				b.init = func(ctx context.Context, _ *lock.Slot) error { return part("init", ctx) }
				work := func(ctx context.Context, _ *lock.Slot) error { return part("work", ctx) }
				if err := l.WithSlot(t.Context(), &b.Pool, work); err != nil {
					t.Fatal(err)
				}
				if len(parts) != 4 {
					t.Fatalf("parts %v", parts)
				}
				for name, ctx := range parts {
					if !errors.Is(ctx.Err(), context.Canceled) {
						t.Errorf("%s goes on: %v", name, ctx.Err())
					}
					select {
					case <-ctx.Done():
					default:
						t.Errorf("%s: Done is not closed", name)
					}
				}
			})
		})
	}
}

func TestACleanupEndsAfterItsTimeout(t *testing.T) {
	onPools(t, func(t *testing.T, d driver.Driver) {
		for _, waits := range []bool{false, true} {
			l, b := process(t, d, lock.Config{}), newSandbox(1)
			b.CleanupTimeout = time.Minute
			s, err := l.AcquireSlot(t.Context(), &b.Pool)
			if err != nil {
				t.Fatal(err)
			}
			b.cleanup = func(ctx context.Context, _ *lock.Slot) error {
				if waits {
					<-ctx.Done()
				} else {
					time.Sleep(time.Minute)
				}
				return ctx.Err()
			}
			if err := s.Release(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if s := slotOf(t, l, 0); s.Status != lock.SlotWithdrawn { // P8
				t.Errorf("the slot is %+v", s)
			}
			if err := l.Heal(t.Context(), "boxes", 0, "repaired"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A context of the slot that something has waited for does not keep the slot.
func TestAForgottenSlotIsReleasedAndReportedWithItsSite(t *testing.T) {
	for name, use := range map[string]func(*lock.Slot){
		"unused": func(*lock.Slot) {},
		"waited for": func(s *lock.Slot) {
			select {
			case <-s.Context().Done():
				t.Error("the context of the work has ended")
			default:
			}
		},
		"derived": func(s *lock.Slot) {
			_, cancel := context.WithTimeout(s.Context(), time.Minute)
			cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen recorder
				l := process(t, memory.NewLock(), lock.Config{TTL: time.Second, Observer: &seen})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s, err := l.AcquireSlot(ctx, &lock.Pool{Key: "boxes", Size: 1})
				if err != nil {
					t.Fatal(err)
				}
				use(s)
				for range 5 {
					runtime.GC()
					time.Sleep(time.Second)
					synctest.Wait()
				}
				events := eventsOf[lock.Forgotten](&seen)
				if len(events) != 1 || !strings.Contains(events[0].Site, "slot_test.go:") {
					t.Errorf("reported %+v", events)
				}
				if s := slotOf(t, l, 0); s.Status != lock.SlotDirty {
					t.Errorf("the slot is %+v", s)
				}
			})
		})
	}
}

func TestASlotInUseIsNotGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{TTL: time.Second})
		s, err := l.AcquireSlot(t.Context(), &lock.Pool{Key: "boxes", Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		work, cancel := context.WithCancel(s.Context())
		defer cancel()
		for range 5 {
			runtime.GC()
			time.Sleep(time.Second)
		}
		lease, ok := lock.LeaseFrom(work)
		if err := work.Err(); err != nil || !ok || lease.Key() != "boxes" {
			t.Fatalf("a context derived from the slot's has %v, %v", lease, context.Cause(work))
		}
		if _, err := l.ForceRelease(t.Context(), "boxes", "test"); err != nil {
			t.Fatal(err)
		}
		<-work.Done()
		if !errors.Is(context.Cause(work), lock.ErrLost) {
			t.Errorf("its cause is %v, want ErrLost", context.Cause(work))
		}
	})
}
