//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func slotRequest(token string) driver.Request {
	return driver.Request{
		Key: "boxes", Token: token, TTL: time.Hour, Slots: 2, Fences: 1, Fixed: true, Wait: -1,
		Pool: &driver.Pool{Quarantine: time.Hour, Prefer: -1, Avoid: -1},
	}
}

// A client of a newer build may hand a slot back in a state that the hub does not
// know. That is no proof that the slot is clean.
func TestASlotOfAnUnknownStatusIsDirty(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, _ := join(t, h, Config{})
	locks := n.Locks("").(driver.PoolDriver)
	for _, status := range []driver.SlotStatus{"", "worn", driver.SlotHeld, driver.SlotResting} {
		g, err := locks.Acquire(t.Context(), slotRequest("a"))
		must(t, err)
		g.Handback = &driver.Handback{Status: status, Note: "warm"}
		must(t, locks.Release(t.Context(), g))
		s, err := locks.Inspect(t.Context(), "boxes")
		must(t, err)
		if got := s.Slots[g.Slot]; got.Status != driver.SlotDirty || got.Reason != driver.LeftUnknown {
			t.Errorf("slot handed back as %q is %+v", status, got)
		}
	}
}

// The states of slots pass between the processes of a node.
func TestASlotIsGivenAsItWasHandedBack(t *testing.T) {
	for _, namespace := range []string{"", "stage"} {
		h := newHub(t, HubConfig{})
		n, _ := join(t, h, Config{})
		other, _ := join(t, h, Config{})
		a, b := n.Locks(namespace).(driver.PoolDriver), other.Locks(namespace).(driver.PoolDriver)
		g, err := a.Acquire(t.Context(), slotRequest("a"))
		must(t, err)
		if g.Found == nil || g.Found.Left == nil || g.Found.Left.Why != driver.LeftUnknown {
			t.Fatalf("a new slot is %+v", g.Found)
		}
		g.Handback = &driver.Handback{Status: driver.SlotFree, Note: "warm", Strikes: 1}
		must(t, a.Release(t.Context(), g))
		g, err = b.Acquire(t.Context(), slotRequest("b"))
		must(t, err)
		if g.Slot != 0 || *g.Found != (driver.Found{Note: "warm", Strikes: 1}) {
			t.Fatalf("slot %d is %+v", g.Slot, g.Found)
		}
		forced, err := a.ForceRelease(t.Context(), "boxes", driver.Force{BySlot: true, Slot: 0, Reason: "stuck", By: driver.Holder{PID: 7}})
		if forced != 1 || err != nil {
			t.Fatal(forced, err)
		}
		g, err = b.Acquire(t.Context(), slotRequest("c")) // slot 0 rests
		must(t, err)
		if g.Slot != 1 {
			t.Fatalf("slot %d, want 1", g.Slot)
		}
		g.Handback = &driver.Handback{Status: driver.SlotWithdrawn, Reason: "disk full"}
		must(t, b.Release(t.Context(), g))
		s, err := a.Inspect(t.Context(), "boxes")
		must(t, err)
		if len(s.Slots) != 2 || s.Slots[0].Status != driver.SlotResting || s.Slots[0].Reason != driver.LeftForced || s.Slots[1].Status != driver.SlotWithdrawn || s.Slots[1].Reason != "disk full" {
			t.Errorf("the pool is %+v", s.Slots)
		}
		must(t, a.Heal(t.Context(), "boxes", 0, "repaired", driver.Holder{PID: 7}))
		g, err = b.Acquire(t.Context(), slotRequest("d"))
		must(t, err)
		g.Handback = &driver.Handback{Status: driver.SlotWithdrawn, Reason: "disk full"}
		must(t, b.Release(t.Context(), g))
		_, err = b.Acquire(t.Context(), slotRequest("e"))
		if busy, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || !busy.Withdrawn {
			t.Errorf("got %v", err)
		}
		must(t, a.Heal(t.Context(), "boxes", 1, "repaired", driver.Holder{PID: 7}))
		g, err = b.Acquire(t.Context(), slotRequest("f"))
		must(t, err)
		if left := g.Found.Left; g.Slot != 1 || left == nil || left.Why != driver.LeftHealed || left.By.PID != 7 {
			t.Errorf("slot %d is %+v", g.Slot, g.Found)
		}
		other3 := slotRequest("g")
		other3.Slots = 3
		_, err = a.Acquire(t.Context(), other3)
		if size, ok := errors.AsType[*driver.PoolSizeError](err); !ok || size.Size != 2 || size.Asked != 3 {
			t.Errorf("got %v", err)
		}
	}
}

// The slots of a process that has died rest, and its successor learns of it.
func TestTheSlotOfADeadProcessRests(t *testing.T) {
	h := newHub(t, HubConfig{})
	conn, _ := pipeTo(t, h, t.Name())
	dead, err := Dial(t.Context(), Config{Conn: conn})
	must(t, err)
	t.Cleanup(func() { _ = dead.Close(context.Background()) })
	r := slotRequest("dead")
	r.Slots, r.Pool.Quarantine = 1, 50*time.Millisecond
	_, err = dead.Lock().Acquire(t.Context(), r)
	must(t, err)
	next, _ := join(t, h, Config{})
	granted := make(chan driver.Grant, 1)
	go func() {
		r := r
		r.Token = "next"
		g, err := next.Lock().Acquire(context.Background(), r)
		if err != nil {
			t.Error(err)
		}
		granted <- g
	}()
	eventually(t, "it to queue", func() bool { return len(stateIn(t, h, "boxes").Waiters) == 1 })
	must(t, conn.Close()) // without a farewell, as when it was killed
	g := <-granted
	if g.Found == nil || g.Found.Left == nil || g.Found.Left.Why != driver.LeftDied {
		t.Errorf("found %+v", g.Found)
	}
}

func TestPoolsOfANode(t *testing.T) {
	h := newHub(t, HubConfig{})
	l := lockerOf(t, h)
	cleaned := 0
	p := &lock.Pool{Key: "boxes", Size: 2, Cleanup: func(context.Context, *lock.Slot) error { cleaned++; return nil }}
	for range 3 {
		must(t, l.WithSlot(t.Context(), p, func(_ context.Context, s *lock.Slot) error {
			if s.Number() != 0 {
				t.Errorf("slot %d", s.Number())
			}
			return nil
		}))
	}
	if cleaned != 4 { // once before the first use, and after each
		t.Errorf("cleaned %d times", cleaned)
	}
}

// A hub knows of a pool what the holders of its slots report. The other slots are
// unknown to it, whatever they were before (P10).
func TestAPoolOverATakeOver(t *testing.T) {
	p := openPost(t)
	open := func() locksOf {
		d, err := p.open()
		must(t, err)
		t.Cleanup(func() { _ = d.Close(context.Background()) })
		return d.(locksOf)
	}
	request := func(token string) driver.Request {
		r := slotRequest(token)
		r.Slots = 5
		return r
	}
	take := func(d locksOf, token string) driver.Grant {
		g, err := d.Acquire(t.Context(), request(token))
		must(t, err)
		return g
	}
	holder, mortal, other := open(), open(), open()
	kept := take(holder, "kept")
	take(mortal, "dies")
	leaves := []driver.Grant{take(other, "clean"), take(other, "withdrawn"), take(other, "rests")}
	leaves[0].Handback = &driver.Handback{Status: driver.SlotFree}
	leaves[1].Handback = &driver.Handback{Status: driver.SlotWithdrawn, Reason: "a test"}
	for _, g := range leaves {
		must(t, other.Release(t.Context(), g))
	}
	states := func() (all []driver.SlotStatus) {
		s, err := other.Inspect(t.Context(), kept.Key)
		if err != nil {
			return nil
		}
		for _, slot := range s.Slots {
			all = append(all, slot.Status)
		}
		return all
	}
	const held, dirty = driver.SlotHeld, driver.SlotDirty
	if got, want := states(), []driver.SlotStatus{held, held, driver.SlotFree, driver.SlotWithdrawn, driver.SlotResting}; !slices.Equal(got, want) {
		t.Fatalf("before: %v, want %v", got, want)
	}
	must(t, p.kill())
	must(t, p.restart())
	eventually(t, "the holders to report", func() bool { return slices.Equal(states(), []driver.SlotStatus{held, held, dirty, dirty, dirty}) })
	must(t, p.crash(mortal))
	eventually(t, "the slot of the dead process to rest", func() bool {
		return slices.Equal(states(), []driver.SlotStatus{held, driver.SlotResting, dirty, dirty, dirty})
	})
	kept.Handback = &driver.Handback{Status: driver.SlotFree}
	must(t, holder.Release(t.Context(), kept))
	if g := take(other, "after the clean one"); g.Slot != 0 || g.Found.Left != nil {
		t.Errorf("slot %d is %+v, want slot 0, clean", g.Slot, g.Found)
	}
	for slot := 2; slot < 5; slot++ {
		if g := take(other, fmt.Sprint("after ", slot)); g.Slot != slot || g.Found.Left == nil || g.Found.Left.Why != driver.LeftUnknown {
			t.Errorf("slot %d is %+v, want slot %d, unknown", g.Slot, g.Found, slot)
		}
	}
	r := request("one too many")
	r.Wait = 0
	if g, err := other.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("beside a slot that rests: slot %d, %v", g.Slot, err)
	}
	must(t, other.Heal(t.Context(), kept.Key, 1, "it has ended", driver.Holder{}))
	if g := take(other, "after the dead one"); g.Slot != 1 || g.Found.Left == nil || g.Found.Left.Why != driver.LeftHealed {
		t.Errorf("slot %d is %+v, want slot 1, healed", g.Slot, g.Found)
	}
}

// Nobody has used a slot whose grant was on its way when its waiter gave up: it does
// not rest, as the slot of a holder that has not handed it back does.
func TestASlotThatWasGrantedTooLateDoesNotRest(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, _ := join(t, h, Config{})
	r := slotRequest("holder")
	r.Slots = 1
	g, err := n.Lock().Acquire(t.Context(), r)
	must(t, err)

	between := newRelays()
	conn, _ := pipeTo(t, h, t.Name())
	conn, err = between.through(conn)
	must(t, err)
	far, err := Dial(t.Context(), Config{Conn: conn})
	must(t, err)
	t.Cleanup(func() { _ = far.Close(context.Background()) })
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	r.Token = "waiter"
	go func() {
		_, err := far.Lock().Acquire(ctx, r)
		gaveUp <- err
	}()
	eventually(t, "it to queue", func() bool { return len(stateIn(t, h, "boxes").Waiters) == 1 })
	must(t, between.setPaused(true))
	g.Handback = &driver.Handback{Status: driver.SlotFree}
	must(t, n.Lock().Release(t.Context(), g))
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	must(t, between.setPaused(false))
	eventually(t, "the slot to return", func() bool { return len(stateIn(t, h, "boxes").Holders) == 0 })
	if s := stateIn(t, h, "boxes").Slots; s[0].Status != driver.SlotDirty {
		t.Errorf("the slot is %+v", s[0])
	}
}

// A refused request reports that it has made the pool smaller (L15), also where all
// of its slots are withdrawn.
func TestARefusalOfAWithdrawnPoolHasItsOldSize(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, _ := join(t, h, Config{})
	r := slotRequest("withdrawn")
	r.Fixed = false
	g, err := n.Lock().Acquire(t.Context(), r)
	must(t, err)
	r.Token = "held"
	_, err = n.Lock().Acquire(t.Context(), r)
	must(t, err)
	g.Handback = &driver.Handback{Status: driver.SlotWithdrawn, Reason: "disk full"}
	must(t, n.Lock().Release(t.Context(), g))
	r.Token, r.Slots = "smaller", 1
	_, err = n.Lock().Acquire(t.Context(), r)
	if busy, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || !busy.Withdrawn || busy.Resized != 2 {
		t.Errorf("got %+v", err)
	}
}
