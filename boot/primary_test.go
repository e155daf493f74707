package boot_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

const migrateKey = "mega:primary:blue:shop:migrate%20it"

// holder is a program that holds the lock of an OnPrimary function of another
// one, as a node that migrates does.
func holder(t *testing.T, server *redistest.Server) *lock.Lease {
	t.Helper()
	p, _ := process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_LOCK_NAMESPACE=blue")
	locker := make(chan *lock.Locker, 1)
	start(t, p, mega.App("main", mega.Routes(hello)), mega.OnStart("take the locker", func(l *lock.Locker, _ context.Context) { locker <- l }))
	lease, err := (<-locker).Acquire(t.Context(), migrateKey)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestWaitForAnotherNodeIsNotInTheBudgetOfOnPrimary(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	other := holder(t, server)
	const budget = 5 * time.Second
	p, stderr := process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_LOCK_NAMESPACE=blue")
	released := make(chan time.Time, 1)
	go func() {
		for !strings.Contains(stderr.String(), "waiting for another node") {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		released <- time.Now()
		_ = other.Release()
	}()
	var left time.Duration
	var began time.Time
	r := start(t, p, mega.App("main", mega.Routes(hello), mega.OnPrimary("migrate it", func(ctx *megactx.Ctx) error {
		until, _ := ctx.Deadline()
		began, left = time.Now(), time.Until(until)
		if _, ok := ctx.Lease(); !ok {
			return errors.New("no lease")
		}
		return nil
	}, mega.Budget(budget))))
	if at := <-released; began.Before(at) || left <= budget-2*time.Second {
		t.Errorf("it began %v after the release, with %v left of %v", began.Sub(at), left, budget)
	}
	if got := r.Report().Primary; len(got) != 1 || got[0] != (plan.Primary{Name: "migrate it", Scope: "fleet", Lock: migrateKey}) {
		t.Errorf("reported: %+v", got)
	}
}

func TestOnPrimaryThatLosesItsLockFailsTheBoot(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	leave := make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for name, migrate := range map[string]func(ctx *megactx.Ctx) error{
		"that returns the end of its context": func(ctx *megactx.Ctx) error { <-ctx.Done(); return ctx.Err() },
		"that reports success":                func(ctx *megactx.Ctx) error { <-ctx.Done(); return nil },
		"that ignores its context":            func(*megactx.Ctx) error { <-leave; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_NAME="+strings.ReplaceAll(name, " ", "-"))
			began := time.Now()
			f := fail(t, p, mega.App("main", mega.Routes(hello), mega.OnPrimary("migrate", func(ctx *megactx.Ctx) error {
				running.Add(1)
				defer running.Done()
				lease, _ := ctx.Lease()
				if _, err := ctx.Lock.ForceRelease(lease.Key(), "the node is taken out"); err != nil {
					return err
				}
				return migrate(ctx)
			})))
			if strings.Contains(name, "ignores") {
				close(leave)
			}
			if !errors.Is(f, lock.ErrLost) || !strings.Contains(f.Error(), "the node is taken out") {
				t.Errorf("it failed with %v", f)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// The function may still change the data that another node would migrate.
func TestOnPrimaryThatDoesNotReturnKeepsItsLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	leave := make(chan struct{})
	defer close(leave)
	p, _ := process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_LOCK_NAMESPACE=blue")
	f := fail(t, p, mega.App("main", mega.Routes(hello), mega.OnPrimary("migrate it", func(context.Context) { <-leave }, mega.Budget(100*time.Millisecond))))
	if f.Code != "boot.hook_overrun" {
		t.Errorf("it failed with %v", f)
	}
	p, _ = process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_LOCK_NAMESPACE=blue")
	locker := make(chan *lock.Locker, 1)
	start(t, p, mega.App("main", mega.Routes(hello)), mega.OnStart("take the locker", func(l *lock.Locker, _ context.Context) { locker <- l }))
	if _, err := (<-locker).TryAcquire(t.Context(), migrateKey); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("another node got %v", err)
	}
}

// Without a server, locks end at the node, and so does OnPrimary.
func TestOnPrimaryRunsOnEachNodeByItselfWithoutASharedServer(t *testing.T) {
	p, _ := process()
	ran := 0
	r := start(t, p, mega.App("main", mega.Routes(hello), mega.OnPrimary("migrate", func(ctx *megactx.Ctx) {
		ran++
		if _, ok := ctx.Lease(); ok {
			t.Error("it runs under a lock")
		}
	})))
	if got := r.Report().Primary; ran != 1 || len(got) != 1 || got[0] != (plan.Primary{Name: "migrate", Scope: "node"}) {
		t.Errorf("it ran %d times; reported: %+v", ran, got)
	}
}

func TestSignalEndsTheWaitForAnotherNode(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	holder(t, server)
	p, stderr := process("MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_LOCK_NAMESPACE=blue")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- boot.Main(ctx, p, mega.App("main", mega.Routes(hello), mega.OnPrimary("migrate it", func(context.Context) { t.Error("it runs") })))
	}()
	for !strings.Contains(stderr.String(), "waiting for another node") {
		time.Sleep(time.Millisecond)
	}
	stop()
	if status := <-ended; status != failure.ExitOK {
		t.Errorf("exit status %d:\n%s", status, stderr)
	}
}
