package redis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

// seat asks for a slot of a pool of n.
func seat(key string, n int) driver.Request {
	r := request(key)
	r.Slots = n
	return r
}

// fill takes every slot of a pool of n.
func fill(t testing.TB, d driver.Driver, key string, n int) []driver.Grant {
	t.Helper()
	grants := make([]driver.Grant, n)
	for i := range grants {
		grants[i] = acquire(t, d, seat(key, n))
		if grants[i].Slot != i {
			t.Fatalf("grant %d has slot %d", i, grants[i].Slot)
		}
	}
	return grants
}

// full checks that a request for a slot of a pool of n is refused.
func full(t testing.TB, d driver.Driver, key string, n int) {
	t.Helper()
	r := seat(key, n)
	r.Wait = 0
	var busy *driver.NotAcquiredError
	if err := answered(func() error { _, err := d.Acquire(t.Context(), r); return err }); !errors.As(err, &busy) || len(busy.Holders) == 0 {
		t.Fatalf("a pool that is full: got %v", err)
	}
}

func TestLowestFreeSlotIsGivenFirst(t *testing.T) {
	d := openShared(t)
	g := fill(t, d, t.Name(), 5)
	full(t, d, t.Name(), 5)
	for _, slot := range []int{3, 0, 1} {
		release(t, d, g[slot])
	}
	for _, want := range []int{0, 1, 3} {
		if got := acquire(t, d, seat(t.Name(), 5)); got.Slot != want {
			t.Errorf("got slot %d, want %d", got.Slot, want)
		}
	}
	full(t, d, t.Name(), 5)
}

func TestTokenHoldsOneSlotHoweverOftenItAsks(t *testing.T) {
	d := openShared(t)
	for range 2 { // slot 0, and one of the others
		r := seat(t.Name(), 3)
		first, again := acquire(t, d, r), acquire(t, d, r)
		if first.Slot != again.Slot || first.Fence != again.Fence {
			t.Errorf("got slot %d fence %d, and again slot %d fence %d", first.Slot, first.Fence, again.Slot, again.Fence)
		}
	}
	if n := len(inspect(t, d, t.Name()).Holders); n != 2 {
		t.Errorf("%d slots are held, want 2", n)
	}
}

func TestExpiredSlotIsGivenAgainOnceAndNotFreedByItsOldHolder(t *testing.T) {
	d := openShared(t)
	fill(t, d, t.Name(), 1)
	r := seat(t.Name(), 2)
	r.TTL = 150 * time.Millisecond
	old := acquire(t, d, r)
	next := acquire(t, d, seat(t.Name(), 2)) // waits for it to expire
	if next.Slot != old.Slot || next.Fence <= old.Fence {
		t.Errorf("slot %d fence %d follows slot %d fence %d", next.Slot, next.Fence, old.Slot, old.Fence)
	}
	if err := d.Release(t.Context(), old); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the old holder's release: %v", err)
	}
	if got := d.Renew(t.Context(), []driver.Grant{old, next}); !errors.Is(got[0].Err, driver.ErrLost) || got[1].Err != nil {
		t.Errorf("renewals: %v", got)
	}
	full(t, d, t.Name(), 2)
}

func TestShrunkPoolDrains(t *testing.T) {
	d := openShared(t)
	g := fill(t, d, t.Name(), 4)
	full(t, d, t.Name(), 2)
	for _, slot := range []int{1, 3} { // two are left, of which one has a number that is gone
		release(t, d, g[slot])
		full(t, d, t.Name(), 2)
	}
	release(t, d, g[2])
	got := acquire(t, d, seat(t.Name(), 2))
	if got.Slot != 1 {
		t.Errorf("got slot %d, want 1", got.Slot)
	}
	full(t, d, t.Name(), 2)
}

func TestGrownPoolServesItsQueueAndForgetsNoSlot(t *testing.T) {
	d := openShared(t)
	g := fill(t, d, t.Name(), 4)
	release(t, d, g[3])
	release(t, d, g[2])
	full(t, d, t.Name(), 2) // shrinks
	waiting := queueUp(t, d, seat(t.Name(), 2))
	last := acquire(t, d, seat(t.Name(), 4)) // grows again
	if last.Resized != 2 {
		t.Errorf("the size was %d before, want 2", last.Resized)
	}
	if got := waiting.granted(t, slack); got.Slot != 2 || last.Slot != 3 {
		t.Errorf("slots %d and %d, want 2 and 3", got.Slot, last.Slot)
	}
	full(t, d, t.Name(), 4)
}

func TestChangedPoolSizeIsReportedWithTheOldSize(t *testing.T) {
	d := openShared(t)
	for _, step := range []struct{ size, was int }{{3, 0}, {3, 0}, {5, 3}, {4, 5}, {6, 4}} {
		if g := acquire(t, d, seat(t.Name(), step.size)); g.Resized != step.was {
			t.Errorf("size %d: it was %d, want %d", step.size, g.Resized, step.was)
		}
	}
}

// A copy of an earlier request is not the newest one. L15
func TestRepeatedRequestChangesNoPoolSize(t *testing.T) {
	d := openShared(t)
	key := t.Name() + token() // the test can be repeated
	early := seat(key, 4)
	acquire(t, d, early)
	full(t, d, key, 1) // shrinks
	waiting := queueUp(t, d, seat(key, 1))
	if g := acquire(t, d, early); g.Slot != 0 || g.Resized != 0 {
		t.Errorf("the repeated request has slot %d, resized from %d", g.Slot, g.Resized)
	}
	if s := inspect(t, d, key); s.Size != 1 || len(s.Holders) != 1 || len(s.Waiters) != 1 {
		t.Errorf("the pool is %+v", s)
	}
	waiting.cancel()
}

// Nor is a ticket that comes back after its process was silent. L15
func TestReturnedTicketChangesNoPoolSize(t *testing.T) {
	a, b := openShared(t), openShared(t)
	key := t.Name() + token() // the test can be repeated
	held := fill(t, b, key, 2)
	waiting := queueUp(t, a, seat(key, 2))
	base := "mega:{" + key + "}:"
	do(t, "ZREM", base+"order", waiting.Token)
	do(t, "HDEL", base+"state", waiting.Token)
	do(t, "ZREM", base+"due", waiting.Token)
	full(t, b, key, 1) // shrinks
	redis.Beat(t.Context(), a)
	if s := inspect(t, b, key); s.Size != 1 || len(s.Waiters) != 1 {
		t.Errorf("the pool is %+v", s)
	}
	release(t, b, held[1])
	if s := inspect(t, b, key); len(s.Holders) != 1 {
		t.Errorf("the pool of one is %+v", s)
	}
	release(t, b, held[0])
	waiting.granted(t, slack)
}

// A pool that gets states knows the slots that are held without one: they rest when
// they are lost, and say whose they were. P4, P6
func TestSlotsThatAreHeldWhenAPoolGetsStatesAreKnown(t *testing.T) {
	d := openShared(t)
	for slot, size := range []int{1, 2} { // slot 0 of a lock, and slot 1 of a pool
		key := fmt.Sprint(t.Name(), slot, token())
		plain := fill(t, d, key, size)[slot]
		r := seat(key, size+2)
		r.Pool = &driver.Pool{Quarantine: time.Minute, Prefer: -1, Avoid: -1}
		acquire(t, d, r)
		if s := inspect(t, d, key).Slots[slot]; s.Status != driver.SlotHeld || s.LastHolder.PID != 1 {
			t.Errorf("the held slot is %+v", s)
		}
		plain.TTL, plain.Rev = 100*time.Millisecond, 1
		renew(t, d, plain)
		soon(t, "the lease has expired", func() bool { return len(inspect(t, d, key).Holders) == size })
		r.Token = token()
		if g := acquire(t, d, r); g.Slot == slot {
			t.Errorf("the lost slot %d was given again, %+v", slot, g.Found)
		}
		if s := inspect(t, d, key).Slots[slot]; s.Status != driver.SlotResting || s.Reason != driver.LeftExpired || s.LastHolder.PID != 1 {
			t.Errorf("the lost slot is %+v", s)
		}
	}
}

func TestLockIsThePoolOfOne(t *testing.T) {
	d := openShared(t)
	lock := acquire(t, d, request(t.Name()))
	pool := acquire(t, d, seat(t.Name(), 3))
	if lock.Slot != 0 || pool.Slot != 1 || pool.Resized != 1 {
		t.Errorf("slots %d and %d, resized from %d", lock.Slot, pool.Slot, pool.Resized)
	}
	full(t, d, t.Name(), 1)
	release(t, d, lock)
	full(t, d, t.Name(), 1) // the slot of the pool is still held
	release(t, d, pool)
	again := acquire(t, d, request(t.Name()))
	if n := do(t, "HEXISTS", "mega:{"+t.Name()+"}:state", "pool"); again.Slot != 0 || n != int64(0) {
		t.Errorf("slot %d, and what was a pool still is one: %v", again.Slot, n)
	}
}

func TestForceFreesEverySlotAndServesTheQueue(t *testing.T) {
	a, b := openShared(t), openShared(t)
	g := fill(t, a, t.Name(), 3)
	waiting := queueUp(t, b, seat(t.Name(), 3))
	by := driver.Holder{Host: "ops", PID: 7}
	n, err := b.ForceRelease(t.Context(), t.Name(), driver.Force{Reason: "it hung", By: by})
	if err != nil || n != 3 {
		t.Fatalf("forced %d, %v", n, err)
	}
	waiting.granted(t, slack)
	var lost *driver.LostError
	for i := range g { // before a renewal, after which nobody needs to be told
		select {
		case err := <-g[i].Lost:
			if !errors.As(err, &lost) || lost.Reason != "it hung" || lost.By != by {
				t.Errorf("slot %d: the push says %v", i, err)
			}
		case <-time.After(generous(slack)):
			t.Errorf("slot %d was not told", i)
		}
	}
	for i, r := range a.Renew(t.Context(), g) {
		if !errors.As(r.Err, &lost) || lost.Cause != driver.Forced || lost.Reason != "it hung" || lost.By != by {
			t.Errorf("slot %d: renewal says %v", i, r.Err)
		}
	}
}

func TestAPoolIsKeptForItsWithdrawnSlot(t *testing.T) {
	d := openShared(t)
	for slot := range 2 {
		key := fmt.Sprint(t.Name(), slot, token())
		var held [2]driver.Grant // by slot
		for range held {
			r := seat(key, 2)
			r.Pool = &driver.Pool{Prefer: -1, Avoid: -1}
			g := acquire(t, d, r)
			held[g.Slot] = g
		}
		held[slot].Handback = &driver.Handback{Status: driver.SlotWithdrawn, Reason: "the disk is full"}
		held[1-slot].Handback = &driver.Handback{Status: driver.SlotFree}
		for _, g := range held {
			release(t, d, g)
		}
		kept := func() bool { return do(t, "PTTL", "mega:{"+key+"}:state") == int64(-1) }
		if !kept() { // P8
			t.Errorf("slot %d is withdrawn, and its pool will be forgotten", slot)
		}
		must(t, d.(driver.PoolDriver).Heal(t.Context(), key, slot, "repaired", driver.Holder{}))
		if kept() { // P10
			t.Errorf("the pool is kept after slot %d was healed", slot)
		}
	}
}

// A heal that the driver repeats may arrive again after the slot was withdrawn once
// more. The copy heals nothing (P8).
func TestALateCopyOfAHealHealsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	p := redistest.StartProxy(t, s, (&yard{names: redis.ScriptNames(nil)}).name)
	d := open(t, redis.Config{URL: p.URL()})
	withdraw := func() {
		t.Helper()
		r := seat("k", 1)
		r.Pool = &driver.Pool{Prefer: -1, Avoid: -1}
		g := acquire(t, d, r)
		g.Handback = &driver.Handback{Status: driver.SlotWithdrawn, Reason: "the disk is full"}
		release(t, d, g)
	}
	withdraw()
	copied := p.ResetAfter(redistest.Named("heal"))
	must(t, d.(driver.PoolDriver).Heal(t.Context(), "k", 0, "repaired", driver.Holder{}))
	withdraw()
	struck(t, copied)
	_, err := copied.Redeliver()
	must(t, err)
	state, err := d.Inspect(t.Context(), "k")
	must(t, err)
	if len(state.Slots) != 1 || state.Slots[0].Status != driver.SlotWithdrawn {
		t.Errorf("got %+v, want a withdrawn slot", state.Slots)
	}
}

// Each cycle keeps what is known of a pool, and no longer than for a minute.
func TestAPoolThatIsUsedIsKept(t *testing.T) {
	d := openShared(t)
	for slot := range 2 {
		key := fmt.Sprint(t.Name(), slot, token())
		take := func(prefer int) driver.Grant {
			r := seat(key, 2)
			r.TTL, r.Pool = time.Minute, &driver.Pool{Prefer: prefer, Avoid: -1}
			g := acquire(t, d, r)
			g.Handback = &driver.Handback{Status: driver.SlotFree}
			return g
		}
		for _, g := range []driver.Grant{take(-1), take(-1)} {
			release(t, d, g)
		}
		left := func(suffix string) time.Duration {
			ms, _ := do(t, "PTTL", "mega:{"+key+"}:"+suffix).(int64)
			return time.Duration(ms) * time.Millisecond
		}
		const memory = driver.PoolMemory
		for _, suffix := range []string{"state", "slots"} {
			do(t, "PEXPIRE", "mega:{"+key+"}:"+suffix, 30_000)
		}
		g := take(slot)
		if g.Slot != slot || g.Found.Left != nil {
			t.Fatalf("got slot %d, %+v", g.Slot, g.Found)
		}
		if state, slots := left("state"), left("slots"); state <= memory || slots <= memory {
			t.Errorf("while slot %d is held for a minute, its pool is kept for %v and %v", slot, state, slots)
		}
		release(t, d, g)
		if state, slots := left("state"), left("slots"); state > memory || slots > memory || state <= memory/2 || slots <= memory/2 { // P10
			t.Errorf("after the release of slot %d its idle pool is kept for %v and %v", slot, state, slots)
		}
	}
}

// stateOf returns the state of slot 0 of a pool of one.
func stateOf(t testing.TB, d driver.Driver, key string) driver.SlotState {
	t.Helper()
	s := inspect(t, d, key)
	if len(s.Slots) != 1 {
		t.Fatalf("the slots are %+v", s.Slots)
	}
	return s.Slots[0]
}

// The push of a grant meets the end of its waiter: the slot is given back as it was,
// and does not rest.
func TestASlotThatItsWaiterCannotUseDoesNotRest(t *testing.T) {
	a, b := openShared(t), openShared(t)
	r := seat(t.Name(), 1)
	r.Pool = &driver.Pool{Quarantine: time.Minute, Prefer: -1, Avoid: -1}
	held := acquire(t, b, r)
	r.Token = token()
	waiter := queueUp(t, a, r)
	waiter.cancel()
	<-waiter.done
	held.Handback = &driver.Handback{Status: driver.SlotFree, Note: "warm", Strikes: 1}
	release(t, b, held)
	soon(t, "the slot to be given back", func() bool { return stateOf(t, b, t.Name()).Status != driver.SlotHeld }) // L22
	if s := stateOf(t, b, t.Name()); s.Status != driver.SlotFree || s.Note != "warm" || s.Strikes != 1 {
		t.Errorf("the slot is %+v", s)
	}
}

// A pool takes the fast paths again when its last waiter has gone: they make a
// third of the calls.
func TestAPoolForgetsItsQueue(t *testing.T) {
	d := openShared(t)
	r := seat(t.Name(), 1)
	r.Pool = &driver.Pool{Prefer: -1, Avoid: -1}
	held := acquire(t, d, r)
	r.Token = request(t.Name()).Token
	next := queueUp(t, d, r)
	held.Handback = &driver.Handback{Status: driver.SlotFree}
	release(t, d, held)
	g := next.granted(t, slack)
	g.Handback = held.Handback
	release(t, d, g)
	if n := do(t, "EXISTS", "mega:{"+t.Name()+"}:due", "mega:{"+t.Name()+"}:order"); n != int64(0) {
		t.Errorf("%v keys of the queue are left", n)
	}
}

func TestSlotZeroOfAPoolIsBusyForRedislock(t *testing.T) {
	d := openShared(t)
	polling := open(t, redis.Config{URL: shared.URL(), Engine: redis.EngineRedislock})
	pool := acquire(t, d, seat(t.Name(), 2))
	full(t, polling, t.Name(), 1)
	release(t, d, pool)
	plain := acquire(t, polling, request(t.Name()))
	if g := acquire(t, d, seat(t.Name(), 2)); g.Slot != 1 {
		t.Errorf("beside redislock's lock the pool gave slot %d", g.Slot)
	}
	release(t, polling, plain)
}
