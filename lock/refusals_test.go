package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func TestANilFunctionIsInvalid(t *testing.T) {
	l := process(t, memory.NewLock(), lock.Config{})
	err := l.With(t.Context(), "k", nil)
	if coded, ok := errors.AsType[interface {
		error
		Code() string
	}](err); !errors.Is(err, lock.ErrInvalid) || !ok || coded.Code() != "lock.invalid_option" {
		t.Errorf("got %v", err)
	}
	if s := l.Stats(); s.Active != 0 || s.Acquired != 0 {
		t.Errorf("a lease was taken: %+v", s)
	}
}

func TestKeysAndLabelsThatNobodySeesAreInvalid(t *testing.T) {
	l := process(t, memory.NewLock(), lock.Config{})
	for _, r := range "\u00a0\u1680\u2003\u2028\u2029\u3000\u0000\u001b\u007f\u0085\u00ad\u061c\u180e\u200b\u200d\u200e\u202e\u2060\u2066\ufeff\U000e0001" {
		if _, err := l.TryAcquire(t.Context(), "a"+string(r)+"b"); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("a key with %U: %v", r, err)
		}
	}
	for _, label := range []string{"a\nb", "\x1b[31mred", "a\u0085b", "\x00"} {
		if _, err := l.TryAcquire(t.Context(), "k", lock.Label(label)); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("the label %q: %v", label, err)
		}
	}
	release(t, acquire(t, l, "👩‍"[:4]+"é鍵", lock.Label("two words, 鍵")))
}

// lacking is a driver without a queue, runs and states of slots.
type lacking struct{ driver.Driver }

func (l lacking) Info() driver.Info {
	return driver.Info{Name: "lacking", Lacks: []driver.Lack{{Rule: "L7", Why: "it has no queue"}, {Rule: "O1", Why: "it keeps no runs"}, {Rule: "L15", Why: "it keeps no slots"}}}
}

func TestFIFOOnADriverWithoutAQueueFailsAtNew(t *testing.T) {
	d := lacking{memory.NewLock()}
	_, err := lock.New(d, lock.Config{FIFO: true})
	if !errors.Is(err, lock.ErrUnsupported) || !strings.Contains(err.Error(), "it has no queue") {
		t.Errorf("got %v", err)
	}
	process(t, d, lock.Config{})
}

func TestADriverRefusesWhatItLacksWithItsReason(t *testing.T) {
	l := process(t, lacking{memory.NewLock()}, lock.Config{})
	ran, err := l.Once(t.Context(), "k", time.Minute, func(context.Context) error { return nil })
	if ran || !errors.Is(err, lock.ErrUnsupported) || !strings.Contains(err.Error(), "it keeps no runs") {
		t.Errorf("got %v, %v", ran, err)
	}
	if _, err := l.Acquire(t.Context(), "k", lock.FixedSlots(2)); !errors.Is(err, lock.ErrUnsupported) || !strings.Contains(err.Error(), "it keeps no slots") {
		t.Errorf("got %v", err)
	}
}

type box struct{ error }

// A refusal leaves nothing behind that would have to be released.
func TestARefusalCostsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Value
		var released atomic.Int64
		d := &hooked{Driver: memory.NewLock(), scope: driver.Fleet}
		d.acquire = func(context.Context, driver.Driver, driver.Request) (driver.Grant, error) {
			return driver.Grant{}, refused.Load().(box).error
		}
		d.release = func(ctx context.Context, d driver.Driver, g driver.Grant) error {
			released.Add(1)
			return d.Release(ctx, g)
		}
		l := process(t, d, lock.Config{})
		for _, refusal := range []error{
			&driver.NotAcquiredError{}, driver.ErrInvalid, driver.ErrUnsupported, driver.ErrClosed, &driver.PoolSizeError{},
		} {
			refused.Store(box{refusal})
			for _, wait := range []time.Duration{0, time.Second} {
				if _, err := l.Acquire(t.Context(), "k", lock.Wait(wait)); !errors.Is(err, refusal) && !errors.Is(err, driver.ErrNotAcquired) {
					t.Errorf("got %v, want %v", err, refusal)
				}
				time.Sleep(time.Second)
			}
			if n := released.Swap(0); n != 0 {
				t.Errorf("after %v: %d releases", refusal, n)
			}
		}
	})
}

func TestTheZeroConfigHasTheDocumentedTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		held := acquire(t, l, "k", lock.NoRenew())
		if left := time.Until(held.Deadline()); left > 10*time.Second || left < 9*time.Second {
			t.Errorf("the lease has %v, want nearly 10s", left)
		}
		start := time.Now()
		if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrNotAcquired) || time.Since(start) != 5*time.Second {
			t.Errorf("got %v after %v, want 5s", err, time.Since(start))
		}
		release(t, held)
	})
}

func TestAPanicInIdentifyDoesNotMakeCloseHang(t *testing.T) {
	for name, d := range map[string]driver.Driver{"one process": memory.NewLock(), "fleet": newFleet()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := lock.New(d, lock.Config{Identify: func(context.Context, *lock.Holder) { panic("no name") }})
				if err != nil {
					t.Fatal(err)
				}
				func() {
					defer func() {
						if recover() != "no name" {
							t.Error("the panic did not reach the caller")
						}
					}()
					_, _ = l.Acquire(t.Context(), "k")
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := l.Close(ctx); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestCloseReportsTheLeasesItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		l, err := lock.New(newFleet(), lock.Config{Observer: r})
		if err != nil {
			t.Fatal(err)
		}
		held := acquire(t, l, "held")
		var work sync.WaitGroup
		work.Go(func() {
			_ = l.With(t.Context(), "with", func(context.Context) error { time.Sleep(time.Minute); return nil })
		})
		work.Go(func() {
			_ = l.With(t.Context(), "lost", func(context.Context) error { time.Sleep(time.Minute); return nil })
		})
		synctest.Wait()
		if _, err := l.ForceRelease(t.Context(), "lost", "test"); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error)
		go func() { closed <- l.Close(context.Background()) }()
		time.Sleep(9 * time.Second)
		if got := eventsOf[lock.StillHeld](r); len(got) != 0 {
			t.Errorf("after 9 s: %+v", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := map[string]lock.StillHeld{}
		for _, e := range eventsOf[lock.StillHeld](r) {
			got[e.Key] = e
		}
		for _, key := range []string{"held", "with", "lost"} {
			if e := got[key]; !strings.Contains(e.Site, ".go:") || e.Held < 10*time.Second {
				t.Errorf("after 11 s %q was reported as %+v", key, e)
			}
		}
		release(t, held)
		work.Wait()
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

func TestEveryCallIsReportedWithItsSite(t *testing.T) {
	type work = func(context.Context) error
	calls := map[string]func(ctx context.Context, l *lock.Locker, key string, fn work){
		"Acquire": func(ctx context.Context, l *lock.Locker, key string, fn work) {
			if lease, err := l.Acquire(ctx, key); err == nil {
				_, _ = fn(lease.Context()), lease.Release()
			}
		},
		"TryAcquire": func(ctx context.Context, l *lock.Locker, key string, fn work) {
			if lease, err := l.TryAcquire(ctx, key); err == nil {
				_, _ = fn(lease.Context()), lease.Release()
			}
		},
		"AcquireAll": func(ctx context.Context, l *lock.Locker, key string, fn work) {
			if all, err := l.AcquireAll(ctx, []string{key}); err == nil {
				_, _ = fn(all.Context()), all.Release()
			}
		},
		"AcquireSlot": func(ctx context.Context, l *lock.Locker, key string, fn work) {
			if slot, err := l.AcquireSlot(ctx, &lock.Pool{Key: key, Size: 1}); err == nil {
				_, _ = fn(slot.Context()), slot.Release()
			}
		},
		"With":    func(ctx context.Context, l *lock.Locker, key string, fn work) { _ = l.With(ctx, key, fn) },
		"WithAll": func(ctx context.Context, l *lock.Locker, key string, fn work) { _ = l.WithAll(ctx, []string{key}, fn) },
		"WithSlot": func(ctx context.Context, l *lock.Locker, key string, fn work) {
			_ = l.WithSlot(ctx, &lock.Pool{Key: key, Size: 1}, func(ctx context.Context, _ *lock.Slot) error { return fn(ctx) })
		},
		"Once":  func(ctx context.Context, l *lock.Locker, key string, fn work) { _, _ = l.Once(ctx, key, time.Hour, fn) },
		"Every": func(ctx context.Context, l *lock.Locker, key string, fn work) { _ = l.Every(ctx, key, time.Hour, fn) },
		"Lead":  func(ctx context.Context, l *lock.Locker, key string, fn work) { _ = l.Lead(ctx, key, fn) },
	}
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := raw(t, memory.NewLock(), lock.Config{Observer: &seen})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for name, call := range calls {
			running.Go(func() { call(ctx, l, name, func(ctx context.Context) error { <-ctx.Done(); return nil }) })
		}
		synctest.Wait()
		running.Go(func() {
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(11 * time.Second)
		stop()
		running.Wait()
		held := eventsOf[lock.StillHeld](&seen)
		for _, e := range held {
			if !strings.Contains(e.Site, "refusals_test.go:") {
				t.Errorf("%s has the site %q", e.Key, e.Site)
			}
		}
		if len(held) != len(calls) {
			t.Errorf("reported %d of %d calls: %+v", len(held), len(calls), held)
		}
	})
}

func TestAPoolsSizesAreReportedOnceAndOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		l := process(t, memory.NewLock(), lock.Config{Observer: r})
		keep := acquire(t, l, "pool", lock.Slots(2))
		resize := func(sizes ...int) {
			for _, n := range sizes {
				release(t, acquire(t, l, "pool", lock.Slots(n)))
			}
		}
		for round, want := range []int{1, 2, 3, 3} {
			resize(3, 4, 5, 2)
			if got := eventsOf[lock.PoolResized](r); len(got) != want && round < 3 {
				t.Errorf("round %d: reported %+v, want %d", round, got, want)
			}
			time.Sleep(61 * time.Second)
		}
		first := eventsOf[lock.PoolResized](r)[0]
		if first.Old != 2 || first.New != 3 {
			t.Errorf("first reported %+v", first)
		}
		seen := map[string]bool{}
		for _, e := range eventsOf[lock.PoolResized](r) {
			pair := fmt.Sprint(min(e.Old, e.New), max(e.Old, e.New))
			if seen[pair] {
				t.Errorf("the sizes %s were reported twice", pair)
			}
			seen[pair] = true
		}
		release(t, keep)
	})
}

func TestWaitersOfAPoolThatFoundItBusyAreContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(time.Millisecond)
		other, l := process(t, &hooked{Driver: r.Driver, scope: driver.Fleet}, lock.Config{}), process(t, r, lock.Config{})
		held := []*lock.Lease{acquire(t, other, "pool", lock.Slots(3)), acquire(t, other, "pool", lock.Slots(3)), acquire(t, other, "pool", lock.Slots(3))}
		var work sync.WaitGroup
		for range 3 {
			work.Go(func() {
				lease := acquire(t, l, "pool", lock.Slots(3))
				if !lease.Contended() {
					t.Error("a lease that was waited for is not contended")
				}
				time.Sleep(time.Second)
				release(t, lease)
			})
		}
		time.Sleep(time.Second)
		for _, lease := range held {
			release(t, lease)
		}
		work.Wait()
		if got := l.Stats().Contended; got != 3 {
			t.Errorf("%d calls are counted as contended, want 3", got)
		}
	})
}

func TestOptionsAtTheirBoundsAreValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		for i, option := range []lock.Option{
			lock.TTL(lock.MinTTL), lock.TTL(lock.MaxTTL), lock.Wait(0), lock.Slots(lock.MaxSlots), lock.Cooldown(lock.MaxTTL),
			lock.Label(strings.Repeat("l", lock.MaxLabel)),
		} {
			release(t, acquire(t, l, fmt.Sprint("k", i), option))
		}
	})
}

// A call that uses the context from outside With waits for its own request.
func TestABusyLockNamesTheHolderOfTheSameRequest(t *testing.T) {
	type id struct{}
	synctest.Test(t, func(t *testing.T) {
		l := process(t, newFleet(), lock.Config{Identify: func(ctx context.Context, h *lock.Holder) { h.Request, _ = ctx.Value(id{}).(string) }})
		ask := func(request string) string {
			_, err := l.Acquire(context.WithValue(t.Context(), id{}, request), "k", lock.Wait(time.Second))
			var busy *lock.NotAcquiredError
			if !errors.As(err, &busy) || busy.Request != request {
				t.Errorf("request %q got %v", request, err)
			}
			return fmt.Sprint(err)
		}
		held, err := l.Acquire(context.WithValue(t.Context(), id{}, "r1"), "k")
		if err != nil {
			t.Fatal(err)
		}
		const same = ", for the same request"
		if own := ask("r1"); !strings.HasSuffix(own, same) {
			t.Errorf("the request of the holder got %q", own)
		}
		if other := ask("r2"); strings.Contains(other, same) {
			t.Errorf("another request got %q", other)
		}
		release(t, held)
		unknown := acquire(t, l, "k")
		if anyone := ask(""); strings.Contains(anyone, same) {
			t.Errorf("a call without a request got %q", anyone)
		}
		release(t, unknown)
	})
}
