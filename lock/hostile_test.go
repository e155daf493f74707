package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// asking is a fleet whose requests have two parts.
type asking struct{ fleet }

func (a asking) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	g, wait, err := a.Driver.(driver.Asker).Ask(ctx, r)
	if wait != nil && r.Holder.Label == "ask" {
		panic("hostile driver")
	}
	return g, wait, err
}

// broken is a context whose methods panic as soon as the key is waited for.
type broken struct {
	context.Context
	waits  func() bool
	method string
}

func (b broken) Done() <-chan struct{} {
	if b.method == "Done" && b.waits() {
		panic("hostile context")
	}
	return b.Context.Done()
}

func (b broken) Err() error {
	if b.method == "Err" && b.waits() {
		panic("hostile context")
	}
	return b.Context.Err()
}

func (b broken) Value(key any) any {
	if b.method == "Value" && b.waits() {
		panic("hostile context")
	}
	return b.Context.Value(key)
}

// A panic on the goroutine of a caller, from its context or from the driver, leaves
// nothing of the call in the queue (L8).
func TestAPanicLeavesNoTicket(t *testing.T) {
	drivers := map[string]func() driver.Driver{
		"in this process": func() driver.Driver { return memory.NewLock() },
		"in one part":     func() driver.Driver { return newFleet() },
		"in two parts":    func() driver.Driver { return asking{newFleet()} },
	}
	for name, open := range drivers {
		for _, method := range []string{"Done", "Err", "Value", "Ask"} {
			t.Run(name+"/"+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := open()
					l := process(t, d, lock.Config{})
					holder := l
					if name != "in this process" {
						holder = process(t, d, lock.Config{})
					}
					held := acquire(t, holder, "k")
					waits := func() bool {
						s, err := d.Inspect(context.Background(), "k")
						return err != nil || len(s.Waiters) > 0
					}
					func() {
						defer func() { _ = recover() }()
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						defer cancel()
						_, err := l.Acquire(broken{ctx, waits, method}, "k", lock.Wait(lock.Forever), lock.Label(strings.ToLower(method)))
						if err == nil {
							t.Error("acquired a key that is held")
						}
					}()
					time.Sleep(2 * time.Second) // a release in the background is retried
					synctest.Wait()
					if waits() {
						t.Error("a ticket is left in the queue")
					}
					if s, err := l.Inspect(t.Context(), "k"); err != nil || len(s.Waiters) > 0 {
						t.Errorf("waiters: %v, %v", s.Waiters, err)
					}
					release(t, held)
					release(t, acquire(t, l, "k"))
				})
			})
		}
	}
}

// mute is a fleet that answers no Inspect.
type mute struct{ fleet }

func (m mute) Inspect(ctx context.Context, _ string) (driver.State, error) {
	<-ctx.Done()
	return driver.State{}, ctx.Err()
}

// queued is a mute fleet that reports that a request is queued.
type queued struct{ mute }

func (q queued) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	return q.Driver.(driver.Asker).Ask(ctx, r)
}

func TestAContextEndsACallAlsoWhileItsHoldersAreLookedUp(t *testing.T) {
	for name, d := range map[string]func() driver.Driver{
		"before it is queued": func() driver.Driver { return mute{newFleet()} },
		"queued":              func() driver.Driver { return queued{mute{newFleet()}} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := process(t, d(), lock.Config{})
				held := acquire(t, l, "k")
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(200*time.Millisecond, cancel)
				began := time.Now()
				_, err := l.Acquire(ctx, "k", lock.Wait(150*time.Millisecond)) // longer than a turn
				if took := time.Since(began); took > 500*time.Millisecond || !errors.Is(err, context.Canceled) {
					t.Errorf("it ended after %v with %v", took, err)
				}
				release(t, held)
			})
		})
	}
}

func TestCloseCutsNothingOffWhereNothingIsHeld(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		l, err := lock.New(memory.NewLock(), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(ended); err != nil {
			t.Fatalf("nothing is held: %v", err)
		}
	}
}

// deaf is a fleet that does not end.
type deaf struct{ fleet }

func (deaf) Close(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCloseNamesADriverThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := lock.New(deaf{newFleet()}, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		err = l.Close(t.Context())
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "driver "+l.Info().Name) {
			t.Errorf("got %v", err)
		}
	})
}

func TestCloseNamesTheFunctionsWithoutTheirLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := lock.New(memory.NewLock(), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		err = l.With(t.Context(), "over", func(ctx context.Context) error {
			_, err := l.ForceRelease(t.Context(), "over", "test")
			<-ctx.Done()
			return err
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
		release := make(chan struct{})
		go func() {
			_ = l.With(t.Context(), "k", func(ctx context.Context) error {
				<-ctx.Done()
				<-release
				return nil
			})
		}()
		synctest.Wait()
		if n, err := l.ForceRelease(t.Context(), "k", "test"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = l.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), "functions still run without their leases: k") {
			t.Errorf("close: %v", err)
		}
		close(release)
		synctest.Wait()
	})
}

// Close waits for every function whose lease was lost, whatever has called it (L17).
func TestCloseWaitsForTheFunctionsOfLostLeases(t *testing.T) {
	for name, call := range map[string]func(l *lock.Locker, fn func(context.Context) error) error{
		"With": func(l *lock.Locker, fn func(context.Context) error) error {
			return l.With(context.Background(), "k", fn)
		},
		"WithAll": func(l *lock.Locker, fn func(context.Context) error) error {
			return l.WithAll(context.Background(), []string{"k"}, fn)
		},
		"Lead": func(l *lock.Locker, fn func(context.Context) error) error {
			return l.Lead(context.Background(), "k", fn)
		},
		"Once": func(l *lock.Locker, fn func(context.Context) error) error {
			_, err := l.Once(context.Background(), "k", time.Hour, fn)
			return err
		},
		"Every": func(l *lock.Locker, fn func(context.Context) error) error {
			return l.Every(context.Background(), "k", time.Hour, fn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := raw(t, memory.NewLock(), lock.Config{})
				returned := false
				var ended sync.WaitGroup
				ended.Go(func() {
					_ = call(l, func(context.Context) error {
						time.Sleep(20 * time.Second)
						returned = true
						return nil
					})
				})
				synctest.Wait()
				if n, err := l.ForceRelease(t.Context(), "k", "test"); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				if err := l.Close(t.Context()); err != nil || !returned {
					t.Errorf("got %v, the function has returned: %v", err, returned)
				}
				ended.Wait()
			})
		})
	}
}

// down is a driver whose connection times out after the deadline of its caller.
type down struct{ fleet }

func (down) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	<-ctx.Done()
	return driver.Grant{}, fmt.Errorf("%w: dial: %w", driver.ErrUnavailable, context.DeadlineExceeded)
}

func (down) Inspect(context.Context, string) (driver.State, error) {
	return driver.State{}, fmt.Errorf("%w: dial: %w", driver.ErrUnavailable, context.DeadlineExceeded)
}

func TestAnOutageIsKnownAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, down{newFleet()}, lock.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.TryAcquire(ctx, "k")
		if !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "dial") {
			t.Errorf("got %v, want ErrUnavailable with its cause", err)
		}
		if _, err := l.Inspect(t.Context(), "k"); !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), "dial") {
			t.Errorf("inspect: %v, want ErrUnavailable with its cause", err)
		}
	})
}
