package megactx_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// events is an Observer that keeps what it is told.
type events struct {
	mu  sync.Mutex // guards all
	all []lock.Event
}

func (e *events) Observe(event lock.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) forgotten() (all []lock.Forgotten) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if f, ok := event.(lock.Forgotten); ok {
			all = append(all, f)
		}
	}
	return all
}

// newLocker returns a Locker in memory that the test closes.
func newLocker(t *testing.T) (*lock.Locker, *events) {
	t.Helper()
	told := &events{}
	l, err := lock.New(memory.NewLock(), lock.Config{Observer: told, Identify: megactx.Identify})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return l, told
}

func newCtx(t *testing.T) *megactx.Ctx {
	t.Helper()
	locker, _ := newLocker(t)
	h := &request.Host{App: request.App{Name: "web"}, Locker: locker}
	return outside(t.Context(), h)
}

type word struct{} // a context key

func TestFromFindsTheCtxOnEveryDescendant(t *testing.T) {
	c := newCtx(t)
	std, cancel := context.WithTimeout(context.WithValue(c, word{}, "v"), time.Hour)
	defer cancel()
	found, ok := megactx.From(std)
	if !ok || found.App.Name != "web" || found.Value(word{}) != "v" {
		t.Fatalf("got %v, %v", found, ok)
	}
	if _, bounded := found.Deadline(); !bounded {
		t.Error("it is not bound to the descendant's deadline")
	}
	if again, _ := megactx.From(found); again != found {
		t.Error("a Ctx is not found as itself")
	}
	if _, ok := megactx.From(context.Background()); ok {
		t.Error("one was found where there is none")
	}
}

func TestLockOfADescendantEndsWithIt(t *testing.T) {
	c := newCtx(t)
	std, cancel := context.WithCancel(c)
	found, _ := megactx.From(std)
	cancel()
	if _, err := found.Lock.Acquire("x"); !errors.Is(err, context.Canceled) {
		t.Errorf("acquire on an ended descendant: got %v, want %v", err, context.Canceled)
	}
	if _, err := c.Lock.Stats(), c.Err(); err != nil {
		t.Errorf("the Ctx it came from has ended: %v", err)
	}
}

func TestWithTimeoutEndsTheCopyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCtx(t)
		bounded, cancel := c.WithTimeout(time.Second)
		defer cancel()
		err := bounded.Lock.With("x", func(ctx *megactx.Ctx) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || c.Err() != nil {
			t.Errorf("got %v, and %v on the Ctx it came from", err, c.Err())
		}
	})
}

func TestWithBindsTheClosureToTheLease(t *testing.T) {
	c := newCtx(t)
	err := c.Lock.With("x", func(ctx *megactx.Ctx) error {
		lease, ok := ctx.Lease()
		if !ok || lease.Key() != "x" {
			t.Errorf("the closure's lease is %v, %v", lease, ok)
		}
		if _, outside := c.Lease(); outside {
			t.Error("the Ctx outside has the lease, too")
		}
		return ctx.Lock.With("x", func(*megactx.Ctx) error { return nil })
	})
	if !errors.Is(err, lock.ErrDeadlock) {
		t.Errorf("taking the same key again inside: got %v, want %v", err, lock.ErrDeadlock)
	}
}

func TestWithAllBindsTheClosureToAllLeases(t *testing.T) {
	c := newCtx(t)
	err := c.Lock.WithAll([]string{"y", "x"}, func(ctx *megactx.Ctx) error {
		if all := lock.LeasesFrom(ctx); len(all) != 2 || all[0].Key() != "y" || all[1].Key() != "x" {
			t.Errorf("the closure's leases are %v", all)
		}
		if _, err := ctx.Lock.Acquire("x"); !errors.Is(err, lock.ErrDeadlock) {
			t.Errorf("taking a key again inside: got %v, want %v", err, lock.ErrDeadlock)
		}
		lease, err := ctx.Detach().Lock.TryAcquire("x")
		if !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("taking it on a detached Ctx: got %v, %v, want %v", lease, err, lock.ErrNotAcquired)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestForceEndsTheContextOfTheFunction(t *testing.T) {
	c := newCtx(t)
	mine := errors.New("gave up")
	err := c.Lock.With("x", func(ctx *megactx.Ctx) error {
		if n, err := c.Lock.ForceRelease("x", "a test"); n != 1 || err != nil {
			t.Errorf("force: %d, %v", n, err)
		}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), lock.ErrLost) {
			t.Errorf("it ended because of %v", context.Cause(ctx))
		}
		return mine
	})
	if !errors.Is(err, lock.ErrLost) || !errors.Is(err, mine) {
		t.Errorf("got %v, want %v and the closure's own error", err, lock.ErrLost)
	}
}

func TestWithSlotBindsTheFunctionToItsSlot(t *testing.T) {
	c := newCtx(t)
	p := &lock.Pool{Key: "boxes", Size: 2}
	err := c.Lock.WithSlot(p, func(ctx *megactx.Ctx, s *lock.Slot) error {
		if lease, ok := ctx.Lease(); !ok || lease != s.Lease || s.Number() != 0 {
			t.Errorf("the lease of the function is %v, %v", lease, ok)
		}
		if n, err := c.Lock.ForceRelease("boxes", "a test", lock.OnlySlot(0)); n != 1 || err != nil {
			t.Errorf("force: %d, %v", n, err)
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, lock.ErrLost) {
		t.Errorf("got %v, want %v", err, lock.ErrLost)
	}
	if err := c.Lock.WithSlot(nil, nil); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("without a pool: got %v", err)
	}
}

func TestHealPutsASlotBackIntoCirculation(t *testing.T) {
	c := newCtx(t)
	broken := errors.New("no disk")
	p := &lock.Pool{Key: "boxes", Size: 1, Strikes: 1, Init: func(context.Context, *lock.Slot) error { return broken }}
	work := func(*megactx.Ctx, *lock.Slot) error { return nil }
	if err := c.Lock.WithSlot(p, work); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	if err := c.Lock.WithSlot(p, work); !errors.Is(err, lock.ErrNotAcquired) {
		t.Fatalf("a withdrawn slot: got %v, want %v", err, lock.ErrNotAcquired)
	}
	broken = nil
	if err := errors.Join(c.Lock.Heal("boxes", 0, "repaired"), c.Lock.WithSlot(p, work)); err != nil {
		t.Error(err)
	}
}

func TestNilFunctionIsInvalidForTheLocksOfACtx(t *testing.T) {
	c := newCtx(t)
	for call, err := range map[string]error{
		"With":     c.Lock.With("x", nil),
		"WithAll":  c.Lock.WithAll([]string{"x", "y"}, nil),
		"WithSlot": c.Lock.WithSlot(&lock.Pool{Key: "boxes", Size: 1}, nil),
	} {
		if !errors.Is(err, lock.ErrInvalid) { // L14
			t.Errorf("%s: got %v, want %v", call, err, lock.ErrInvalid)
		}
	}
}

func TestClosureEndsWhenTheLockExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCtx(t)
		err := c.Lock.With("x", func(ctx *megactx.Ctx) error {
			<-ctx.Done()
			return nil
		}, lock.TTL(time.Second), lock.NoRenew())
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v, want %v", err, lock.ErrLost)
		}
	})
}

func TestViewsAnswerLikeTheLocker(t *testing.T) {
	c := newCtx(t)
	lease, err := c.Lock.TryAcquire("shelf:1", lock.Label("counting"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Lock.TryAcquire("shelf:1"); !errors.Is(err, lock.ErrDeadlock) && !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("trying a held key: got %v", err)
	}
	state, err := c.Lock.Inspect("shelf:1")
	if err != nil || len(state.Holders) != 1 || state.Holders[0].App != "web" || state.Holders[0].Label != "counting" {
		t.Errorf("inspect: got %+v, %v", state, err)
	}
	if all, err := c.Lock.List("shelf:"); err != nil || len(all) != 1 {
		t.Errorf("list: got %v, %v", all, err)
	}
	if s, i := c.Lock.Stats(), c.Lock.Info(); s.Active != 1 || i.Name != "memory" {
		t.Errorf("stats %+v, info %+v", s, i)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

func TestZeroViewIsNotConfigured(t *testing.T) {
	var h request.Host
	c := outside(t.Context(), &h)
	_, acquire := c.Lock.Acquire("x")
	_, try := c.Lock.TryAcquire("x")
	_, force := c.Lock.ForceRelease("x", "why")
	_, inspect := c.Lock.Inspect("x")
	_, list := c.Lock.List("x")
	var copied megactx.Ctx
	for name, err := range map[string]error{
		"With":    c.Lock.With("x", func(*megactx.Ctx) error { return nil }),
		"WithAll": c.Lock.WithAll([]string{"x", "y"}, func(*megactx.Ctx) error { return nil }),
		"Acquire": acquire, "TryAcquire": try, "ForceRelease": force, "Inspect": inspect, "List": list,
		"Heal":         c.Lock.Heal("x", 0, "why"),
		"the zero Ctx": copied.Lock.With("x", func(*megactx.Ctx) error { return nil }),
	} {
		if !errors.Is(err, megactx.ErrNotConfigured) || !strings.Contains(err.Error(), "no locks") {
			t.Errorf("%s: got %v, want %v", name, err, megactx.ErrNotConfigured)
		}
	}
	if c.Lock.Stats().Driver != "" || c.Lock.Info().Name != "" {
		t.Error("a view without locks names a driver")
	}
}

func TestOutsideARequestNobodyIsAnswered(t *testing.T) {
	c := newCtx(t)
	_, write := c.Writer().Write([]byte("x"))
	var v struct{}
	for name, err := range map[string]error{
		"Writer": write, "JSON": c.JSON(200, 1), "Text": c.Text(200, ""), "HTML": c.HTML(200, "x", nil),
		"Redirect": c.Redirect(302, "/"), "Bind": c.Bind(&v),
	} {
		if !errors.Is(err, megactx.ErrNoRequest) {
			t.Errorf("%s: got %v, want %v", name, err, megactx.ErrNoRequest)
		}
	}
	if c.Request() != nil || c.Param("id") != "" || c.Query("q") != "" || c.WantsJSON() {
		t.Error("something was read from no request")
	}
}

func TestCtxIsSafeForGoroutines(t *testing.T) {
	c := newCtx(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 50 {
				bounded, cancel := c.WithTimeout(time.Minute)
				if err := bounded.Lock.With("x", func(*megactx.Ctx) error { return nil }); err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
}

// outside returns a Ctx of an app for work outside a request.
func outside(ctx context.Context, h *request.Host) *megactx.Ctx {
	c, _ := megactx.From(h.Context(ctx))
	return c
}
