package locktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

var errPlanned = errors.New("planned")

func TestStepAppliesToItsCalls(t *testing.T) {
	plan := new(locktest.Plan)
	remove := plan.Add(locktest.Step{Op: locktest.Inspect, Key: "k", After: 1, Times: 2, Err: errPlanned})
	d := locktest.Faulty(memory.NewLock(), plan)
	for i, want := range []error{nil, errPlanned, errPlanned, nil} {
		if _, err := d.Inspect(t.Context(), "other"); err != nil {
			t.Errorf("call %d for another key: %v", i, err)
		}
		if _, err := d.Inspect(t.Context(), "k"); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
		if _, err := d.List(t.Context(), "k"); err != nil {
			t.Errorf("call %d of another operation: %v", i, err)
		}
	}
	remove()
	if n := plan.Calls(locktest.Inspect); n != 8 {
		t.Errorf("counted %d calls, want 8", n)
	}
	if n := plan.Calls(locktest.Any); n != 12 {
		t.Errorf("counted %d calls of all operations, want 12", n)
	}
}

func TestStepAppliesToTheOperatorsOfPools(t *testing.T) {
	plan := new(locktest.Plan)
	d := locktest.Faulty(memory.NewLock(), plan).(driver.PoolDriver)
	plan.Add(locktest.Step{Op: locktest.Force, Times: 1, Err: errPlanned})
	plan.Add(locktest.Step{Op: locktest.Heal, Times: 1, Err: errPlanned})
	for call, want := range []error{errPlanned, nil} {
		if _, err := d.ForceRelease(t.Context(), "k", driver.Force{BySlot: true, Slot: 0, Reason: "reason"}); !errors.Is(err, want) {
			t.Errorf("force %d: %v, want %v", call, err, want)
		}
		if err := d.Heal(t.Context(), "k", 0, "reason", driver.Holder{}); !errors.Is(err, want) {
			t.Errorf("heal %d: %v, want %v", call, err, want)
		}
	}
}

func TestARequestIsExecutedOrNot(t *testing.T) {
	table, plan := memory.NewLock(), new(locktest.Plan)
	d := locktest.Faulty(table, plan)
	plan.Add(locktest.Step{Op: locktest.Acquire, Times: 1, Err: errPlanned})
	plan.Add(locktest.Step{Op: locktest.Acquire, Times: 1, Err: errPlanned, Executed: true})
	for call, want := range []int{0, 1} {
		if _, err := d.Acquire(t.Context(), request("k", call)); !errors.Is(err, errPlanned) {
			t.Fatalf("call %d: %v, want %v", call, err, errPlanned)
		}
		if n := held(t, table); n != want {
			t.Errorf("after call %d there are %d holders, want %d", call, n, want)
		}
	}
}

func TestALateRequestArrivesWhenItsCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, plan := memory.NewLock(), new(locktest.Plan)
		d := locktest.Faulty(table, plan)
		plan.Add(locktest.Step{Op: locktest.Acquire, Late: time.Second, Err: errPlanned})
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := d.Acquire(ctx, request("k", 1)); !errors.Is(err, errPlanned) {
			t.Fatalf("got %v, want %v", err, errPlanned)
		}
		cancel()
		if n := held(t, table); n != 0 {
			t.Errorf("it has arrived at once")
		}
		if err := d.Close(t.Context()); err != nil { // waits for it
			t.Fatal(err)
		}
	})
}

func TestAHeldCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := new(locktest.Plan)
		plan.Add(locktest.Step{Hang: true})
		d := locktest.Faulty(memory.NewLock(), plan)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		before := time.Now()
		err := d.Release(ctx, driver.Grant{Key: "k"})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(before) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(before))
		}
	})
}

// Processes that share a driver meet in it, and one ends without the others.
func TestSharedProcessesEndApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := locktest.Share(memory.NewLock(), driver.Fleet)
		a, _ := open()
		b, _ := open()
		if s := a.Info().Scope; s != driver.Fleet {
			t.Errorf("the scope is %v", s)
		}
		g, err := a.Acquire(t.Context(), request("k", 1))
		if err != nil {
			t.Fatal(err)
		}
		if left := g.Deadline.Sub(driver.Now()); left <= 0 || left > g.TTL {
			t.Errorf("the deadline is %v ahead on the clock of processes, of %v", left, g.TTL)
		}
		done := make(chan error, 1)
		go func() {
			_, err := b.Acquire(t.Context(), request("k", 2))
			done <- err
		}()
		synctest.Wait()
		_ = b.Close(t.Context())
		if err := <-done; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("the waiter of the closed process got %v, want ErrClosed", err)
		}
		if err := a.Release(t.Context(), g); err != nil {
			t.Errorf("the other process: %v", err)
		}
	})
}

func request(key string, n int) driver.Request {
	return driver.Request{Key: key, Token: string(rune('a' + n)), TTL: 10 * time.Second, Wait: -1, Slots: 1, Fences: 1}
}

func held(t *testing.T, d driver.Driver) int {
	t.Helper()
	s, err := d.Inspect(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return len(s.Holders)
}
