package memory_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
)

// slotRequest asks for a slot of a pool of size, which rests for 5 s when it was
// not handed back.
func slotRequest(token string, size int) driver.Request {
	r := request("pool", token)
	r.Slots, r.Fixed, r.Pool = size, true, &driver.Pool{Quarantine: 5 * time.Second, Prefer: -1, Avoid: -1}
	return r
}

func handBack(t *testing.T, d *memory.Lock, g driver.Grant, h driver.Handback) {
	t.Helper()
	g.Handback = &h
	if err := d.Release(t.Context(), g); err != nil {
		t.Fatal(err)
	}
}

var clean = driver.Handback{Status: driver.SlotFree}

func wantLeft(t *testing.T, g driver.Grant, slot int, why string) {
	t.Helper()
	got := ""
	if g.Found != nil && g.Found.Left != nil {
		got = g.Found.Left.Why
	}
	if g.Found == nil || g.Slot != slot || got != why {
		t.Fatalf("slot %d, left %q (%+v), want slot %d, %q", g.Slot, got, g.Found, slot, why)
	}
}

func TestASlotIsUnknownThenAsItWasHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		g := acquire(t, d, slotRequest("a", 3))
		wantLeft(t, g, 0, driver.LeftUnknown) // P10
		handBack(t, d, g, driver.Handback{Status: driver.SlotFree, Note: "warm", Strikes: 2})
		g = acquire(t, d, slotRequest("b", 3))
		wantLeft(t, g, 0, "")
		if *g.Found != (driver.Found{Note: "warm", Strikes: 2}) {
			t.Errorf("found %+v", g.Found)
		}
		if err := d.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		g = acquire(t, d, slotRequest("c", 3)) // slot 0 rests
		wantLeft(t, g, 1, driver.LeftUnknown)
		handBack(t, d, g, driver.Handback{Status: driver.SlotDirty, Left: g.Found.Left})
		time.Sleep(5 * time.Second)
		wantLeft(t, acquire(t, d, slotRequest("d", 3)), 0, driver.LeftReleased)
		wantLeft(t, acquire(t, d, slotRequest("e", 3)), 1, driver.LeftUnknown)
	})
}

func TestTheCleanSlotsAreGivenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		grants := make([]driver.Grant, 4)
		for i := range grants {
			grants[i] = acquire(t, d, slotRequest(string(rune('a'+i)), 5))
		}
		for _, g := range grants[1:] {
			handBack(t, d, g, clean)
		}
		handBack(t, d, grants[0], driver.Handback{Status: driver.SlotDirty, Left: grants[0].Found.Left})
		prefers := func(token string, prefer, avoid int) driver.Request {
			r := slotRequest(token, 5)
			r.Pool.Prefer, r.Pool.Avoid = prefer, avoid
			return r
		}
		for i, c := range []struct{ prefer, avoid, want int }{
			{3, -1, 3}, {3, 1, 2}, {4, -1, 1}, {-1, 0, 4}, {-1, 0, 0}, // clean; lowest clean; the avoided last
		} {
			if g := acquire(t, d, prefers("p"+string(rune('0'+i)), c.prefer, c.avoid)); g.Slot != c.want {
				t.Fatalf("choice %d is slot %d, want %d", i, g.Slot, c.want)
			}
		}
	})
}

func TestAWaiterIsServedWhenARestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		start := time.Now()
		acquire(t, d, slotRequest("crashed", 1)) // 10s
		r := slotRequest("next", 1)
		r.Wait = -1
		o := <-wait(t, d, r)
		wantLeft(t, o.grant, 0, driver.LeftExpired)
		if took := time.Since(start); took != 15*time.Second { // P6, P11
			t.Errorf("served after %v, want 15s", took)
		}
		if n, err := d.ForceRelease(t.Context(), "pool", driver.Force{BySlot: true, Slot: 0, Reason: "stuck", By: driver.Holder{PID: 7}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		start = time.Now()
		r.Token = "after"
		o = <-wait(t, d, r)
		wantLeft(t, o.grant, 0, driver.LeftForced)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("served %v after the force, want 5s", took)
		}
	})
}

func TestAForceOfOneSlotLeavesTheOthers(t *testing.T) {
	d := memory.NewLock()
	a, b := request("plain", "a"), request("plain", "b")
	a.Slots, b.Slots = 2, 2
	grants := []driver.Grant{acquire(t, d, a), acquire(t, d, b)}
	for _, want := range []int{1, 0} {
		if n, err := d.ForceRelease(t.Context(), "plain", driver.Force{BySlot: true, Slot: 1, Reason: "stuck"}); n != want || err != nil {
			t.Fatal(n, err)
		}
	}
	for i, r := range d.Renew(t.Context(), grants) {
		if lost := errors.Is(r.Err, driver.ErrLost); lost != (i == 1) {
			t.Errorf("slot %d: %v", i, r.Err)
		}
	}
}

func TestAPoolWithoutASlotInCirculationRefusesItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		a, b := acquire(t, d, slotRequest("a", 2)), acquire(t, d, slotRequest("b", 2))
		r := slotRequest("waiter", 2)
		r.Wait = -1
		waiter := wait(t, d, r)
		gone := driver.Handback{Status: driver.SlotWithdrawn, Reason: "disk full"}
		handBack(t, d, a, gone)
		handBack(t, d, b, gone)
		for range 2 { // the waiter, then a newcomer: P8
			o := <-waiter
			busy, ok := errors.AsType[*driver.NotAcquiredError](o.err)
			if !ok || !busy.Withdrawn || busy.Code() != "lock.pool_withdrawn" {
				t.Fatalf("refused with %v", o.err)
			}
			r.Token = "newcomer"
			waiter = wait(t, d, r)
		}
		s, _ := d.Inspect(t.Context(), "pool")
		if len(s.Slots) != 2 || s.Free() != 0 || s.Slots[1].Status != driver.SlotWithdrawn || s.Slots[1].Reason != "disk full" {
			t.Errorf("the pool is %+v", s)
		}
		if err := d.Heal(t.Context(), "pool", 1, "repaired", driver.Holder{}); err != nil {
			t.Fatal(err)
		}
		r.Token = "healed"
		wantLeft(t, acquire(t, d, r), 1, driver.LeftHealed)
	})
}

func TestANumberThatComesBackAfterAShrinkIsDirty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		var grants []driver.Grant
		for i, token := range []string{"a", "b", "c"} {
			r := slotRequest(token, 3)
			r.Holder.PID = i + 1
			grants = append(grants, acquire(t, d, r))
		}
		handBack(t, d, grants[1], clean)
		small := slotRequest("d", 2)
		_, err := d.Acquire(t.Context(), small)
		size, ok := errors.AsType[*driver.PoolSizeError](err)
		if !ok || size.Size != 3 || size.Asked != 2 { // P9
			t.Fatalf("another size is %v", err)
		}
		small.Slots, small.Fixed = 1, false
		if _, err := d.Acquire(t.Context(), small); !errors.Is(err, driver.ErrNotAcquired) {
			t.Fatal(err)
		}
		handBack(t, d, grants[2], clean) // drained
		handBack(t, d, grants[0], clean)
		wantLeft(t, acquire(t, d, slotRequest("e", 3)), 0, "")
		for _, slot := range []int{1, 2} {
			g := acquire(t, d, slotRequest(strconv.Itoa(slot), 3))
			wantLeft(t, g, slot, driver.LeftShrunk)
			if by := g.Found.Left.By.PID; by != slot+1 {
				t.Errorf("slot %d was left by %d", slot, by)
			}
		}
	})
}

func TestAPoolIsForgottenAfterItsLastWithdrawnSlotIsHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		handBack(t, d, acquire(t, d, slotRequest("a", 2)), driver.Handback{Status: driver.SlotWithdrawn, Reason: "full"})
		time.Sleep(10 * driver.PoolMemory)
		if keys, _, timers := d.Size(); keys != 1 || timers != 0 {
			t.Errorf("%d keys and %d timers are left", keys, timers)
		}
		if err := d.Heal(t.Context(), "pool", 0, "repaired", driver.Holder{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(driver.PoolMemory + 10*time.Second)
		if keys, _, timers := d.Size(); keys != 0 || timers != 0 {
			t.Errorf("%d keys and %d timers are left after Heal", keys, timers)
		}
	})
}

func TestAnIdlePoolIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		handBack(t, d, acquire(t, d, slotRequest("a", 2)), clean)
		time.Sleep(driver.PoolMemory - time.Second)
		g := acquire(t, d, slotRequest("b", 2))
		wantLeft(t, g, 0, "")
		handBack(t, d, g, clean)
		time.Sleep(driver.PoolMemory + 10*time.Second)
		if keys, _, timers := d.Size(); keys != 0 || timers != 0 {
			t.Errorf("%d keys and %d timers are left", keys, timers)
		}
		wantLeft(t, acquire(t, d, slotRequest("c", 2)), 0, driver.LeftUnknown)
	})
}

// A holder that avoids a number is given another one of the pool, or none (P7, L15).
func TestANumberBeyondThePoolIsNotGivenInstead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		held, lost := acquire(t, d, slotRequest("a", 2)), acquire(t, d, slotRequest("b", 2))
		if err := d.Release(t.Context(), lost); err != nil { // it rests
			t.Fatal(err)
		}
		for _, avoid := range []int{2, 3} {
			r := slotRequest("c", 2)
			r.Pool.Avoid = avoid
			if g, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
				t.Errorf("got slot %d of 2, %v", g.Slot, err)
			}
		}
		handBack(t, d, held, clean)
	})
}

// A slot that drains is shown until its holder hands it back (L15), and then no more.
func TestASlotThatDrainsIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		acquire(t, d, slotRequest("a", 2))
		high := acquire(t, d, slotRequest("b", 2))
		smaller := slotRequest("c", 1)
		smaller.Fixed = false
		if _, err := d.Acquire(t.Context(), smaller); !errors.Is(err, driver.ErrNotAcquired) {
			t.Fatal(err)
		}
		slots := func(want int) []driver.SlotState {
			t.Helper()
			s, err := d.Inspect(t.Context(), "pool")
			if err != nil || len(s.Slots) != want {
				t.Fatalf("got %+v, %v, want %d slots", s.Slots, err, want)
			}
			return s.Slots
		}
		if s := slots(2)[1]; s.Number != 1 || s.Status != driver.SlotHeld {
			t.Errorf("got %+v", s)
		}
		handBack(t, d, high, clean)
		slots(1)
	})
}

// The holders of a key are known when the first request with states comes.
func TestThePastHoldersOfAPoolAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		plain := request("pool", "plain")
		plain.Slots, plain.Holder = 2, driver.Holder{Host: "here", PID: 7}
		acquire(t, d, plain)
		acquire(t, d, slotRequest("a", 2))
		s, err := d.Inspect(t.Context(), "pool")
		if err != nil || len(s.Slots) != 2 || s.Slots[0].Status != driver.SlotHeld || s.Slots[0].LastHolder.PID != 7 {
			t.Errorf("got %+v, %v", s.Slots, err)
		}
	})
}
