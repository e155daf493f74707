package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

// While a hash slot is moved, a lock of which the source has nothing but the
// lease works, however long that takes; one that the source has more of is
// unavailable, with a word on what to do.
func TestLocksInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	a, b := open(t, redis.Config{URL: c.URL()}), open(t, redis.Config{URL: c.URL()})
	tagged := func(key string) string { return "mega:{" + key + "}" }

	t.Run("a lock that is free", func(t *testing.T) {
		before := acquire(t, a, request("free"))
		release(t, a, before)
		move, err := c.OpenSlot(tagged("free"))
		must(t, err)
		last := before.Fence
		for range 3 {
			held := acquire(t, a, request("free"))
			r := request("free")
			r.Wait = 0
			if _, err := b.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
				t.Errorf("beside the holder: %v", err)
			}
			renew(t, a, held)
			next := queueUp(t, b, request("free"))
			release(t, a, held)
			g := next.granted(t, 3*slack)
			release(t, b, g)
			if held.Fence <= last || g.Fence <= held.Fence {
				t.Errorf("fences %d, %d, %d", last, held.Fence, g.Fence)
			}
			last = g.Fence
		}
		held := acquire(t, a, request("free"))
		must(t, move.Finish())
		soon(t, "the lease to be renewed by the new master", func() bool { return a.Renew(t.Context(), []driver.Grant{held})[0].Err == nil })
		release(t, a, held)
		g := acquire(t, b, request("free"))
		if g.Fence <= held.Fence || held.Fence <= last {
			t.Errorf("fences %d, %d, %d", last, held.Fence, g.Fence)
		}
		release(t, b, g)
	})

	t.Run("a lock that is held", func(t *testing.T) {
		held := acquire(t, a, request("held"))
		move, err := c.OpenSlot(tagged("held"))
		must(t, err)
		renew(t, a, held)
		waiting := make(chan driver.Grant, 1)
		go func() {
			var g driver.Grant
			err := answered(func() (err error) {
				g, err = b.Acquire(t.Context(), request("held"))
				return err
			})
			if err != nil {
				t.Error(err)
			}
			waiting <- g
		}()
		soon(t, "the waiter to be queued at the target", func() bool {
			return redis.Queued(b, "held") == 1
		})
		select {
		case g := <-waiting:
			t.Fatalf("two holders: %d and %d", held.Fence, g.Fence)
		case <-time.After(time.Second): // more than a heartbeat
		}
		release(t, a, held)
		select {
		case g := <-waiting:
			if g.Fence <= held.Fence {
				t.Errorf("fence %d after %d", g.Fence, held.Fence)
			}
			release(t, b, g)
		case <-time.After(generous(slack)):
			t.Fatal("the waiter was not served")
		}
		must(t, move.Finish())
	})

	t.Run("a lock whose reply was lost", func(t *testing.T) {
		r := request("asked")
		held := acquire(t, a, r)
		move, err := c.OpenSlot(tagged("asked"))
		must(t, err)
		if _, err := a.Acquire(t.Context(), r); !errors.Is(err, driver.ErrUnavailable) { // L6: it must not wait for itself
			t.Errorf("the second copy of its acquire: %v, want %v", err, driver.ErrUnavailable)
		}
		must(t, move.Finish())
		soon(t, "the release", func() bool { return a.Release(t.Context(), held) == nil })
	})

	t.Run("a lock with a queue", func(t *testing.T) {
		held := acquire(t, a, request("queue"))
		next := queueUp(t, b, request("queue"))
		move, err := c.OpenSlot(tagged("queue"))
		must(t, err)
		refuses(t, "is being moved from", func() error {
			_, err := a.Acquire(t.Context(), request("queue"))
			if err != nil && contains(err, "is being moved from") && !contains(err, "redis-cli --cluster fix") {
				t.Errorf("acquire: %v, want an error with what to do", err)
			}
			return err
		})
		if move != nil {
			must(t, move.Finish())
		}
		soon(t, "the release", func() bool { return a.Release(t.Context(), held) == nil })
		release(t, b, next.granted(t, 3*slack))
	})
}

// mustGrow returns a function that takes and releases the lock k, with a fence above
// the last one.
func mustGrow(t *testing.T) (cycle func(when string, d driver.Driver)) {
	last := uint64(0)
	return func(when string, d driver.Driver) {
		t.Helper()
		g := acquire(t, d, request("k"))
		if g.Fence <= last || g.Fence >= 1<<53 {
			t.Errorf("%s: fence %d after %d", when, g.Fence, last)
		}
		last = g.Fence
		release(t, d, g)
	}
}

// No key of a lock is on both sides, which MIGRATE refuses.
func TestASlotMayComeBackWithinAMinute(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	cycle := mustGrow(t)
	cycle("before the move", open(t, redis.Config{URL: c.URL()}))
	move, err := c.OpenSlot("mega:{k}")
	must(t, err)
	for _, when := range []string{"there", "back", "there again", "back again"} {
		cycle(when, open(t, redis.Config{URL: c.URL()})) // one that was never redirected leaves no bar
		must(t, move.Finish())
		move, err = move.Back()
		must(t, err)
	}
}

// L2: the servers of a Cluster have different clocks.
func TestFencesGrowWhileASlotIsMovedToAServerThatIsBehind(t *testing.T) {
	t.Parallel()
	steps := redistest.CanStepClock()
	c := redistest.StartCluster(t, 3, redistest.Options{Clock: steps})
	move, err := c.OpenSlot("mega:{k}")
	must(t, err)
	must(t, move.Finish())
	if steps {
		must(t, move.Target.StepClock(time.Minute))
	}
	d, cycle := open(t, redis.Config{URL: c.URL()}), mustGrow(t)
	cycle("before the move", d)
	move, err = move.Back()
	must(t, err)
	cycle("before the mark is moved", d)
	must(t, move.MoveKeys())
	cycle("after the mark is moved", d)
	must(t, move.Finish())
	cycle("after the move", d)
}

// L2: a mark that is not a fence is ignored, also by the source's reserve.
func TestFencesGrowWhileASlotWithAForeignMarkIsMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	d, cycle := open(t, redis.Config{URL: c.URL()}), mustGrow(t)
	cycle("before the move", d)
	_, mark := redis.ClusterNames("k")
	move, err := c.OpenSlot("mega:{k}")
	must(t, err)
	must(t, command("SET", mark, "nan")(move.Source))
	cycle("during the move", d)
	must(t, move.Finish())
	cycle("after the move", d)
}

// L2: many calls in a slot that is open for long do not take the fences ahead of the
// clock, from which they go on when the data is lost.
func TestFencesGrowWhenAServerLosesASlotThatWasMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	d, cycle := open(t, redis.Config{URL: c.URL()}), mustGrow(t)
	cycle("before the move", d)
	move, err := c.OpenSlot("mega:{k}")
	must(t, err)
	for range 500 {
		cycle("during the move", d)
	}
	must(t, move.Finish())
	must(t, move.Target.FlushAll())
	cycle("after the loss", d)
}

// A pool keeps the states of its slots while its hash slot is moved.
func TestPoolsInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	a, b := open(t, redis.Config{URL: c.URL()}), open(t, redis.Config{URL: c.URL()})
	clean := &driver.Handback{Status: driver.SlotFree}
	seat := func(key string) driver.Request {
		r := seat(key, 2)
		r.TTL, r.Pool = time.Minute, &driver.Pool{Prefer: -1, Avoid: -1}
		return r
	}
	// begin returns the holder of slot 0 beside a slot 1 that is clean, and the
	// move of both.
	begin := func(t *testing.T, key string) (driver.Grant, *redistest.Move) {
		held, other := acquire(t, a, seat(key)), acquire(t, a, seat(key))
		other.Handback = clean
		release(t, a, other)
		move, err := c.OpenSlot("mega:{" + key + "}")
		must(t, err)
		held.Handback = clean
		return held, move
	}
	const todo = "redis-cli --cluster fix"
	// end returns the pool to use, with slot 0 handed back clean.
	end := func(t *testing.T, held driver.Grant, move *redistest.Move) {
		if move != nil {
			must(t, move.Finish())
		}
		soon(t, "the release", func() bool { return a.Release(t.Context(), held) == nil })
		if g := acquire(t, b, seat(held.Key)); g.Slot != 0 || g.Found.Left != nil {
			t.Errorf("slot %d is %+v, want slot 0, clean", g.Slot, g.Found)
		}
	}

	t.Run("at the source", func(t *testing.T) {
		held, move := begin(t, "source")
		refuses(t, todo, func() error { _, err := b.Acquire(t.Context(), seat("source")); return err })
		refuses(t, todo, func() error {
			return b.(driver.PoolDriver).Heal(t.Context(), "source", 1, "a test", driver.Holder{})
		})
		end(t, held, move)
		if g := acquire(t, b, seat("source")); g.Slot != 1 || g.Found.Left != nil {
			t.Errorf("slot %d is %+v, want slot 1, clean", g.Slot, g.Found)
		}
	})

	t.Run("with the lease of slot 0 at the source", func(t *testing.T) {
		held, move := begin(t, "between")
		must(t, move.MoveKeys("mega:{between}"))
		var g driver.Grant
		for range 2 { // slot 1 is free at the target, and handed back there
			r := seat("between")
			r.Wait = 0
			g = acquire(t, b, r)
			if g.Slot != 1 || g.Found == nil || g.Found.Left != nil {
				t.Errorf("slot %d is %+v, want slot 1, clean", g.Slot, g.Found)
			}
			r.Token = seat("between").Token
			if _, err := a.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) { // P1
				t.Errorf("beside the holders of both slots: %v", err)
			}
			g.Handback = clean
			release(t, b, g)
		}
		g = acquire(t, b, seat("between"))
		g.Handback = clean
		waiting := make(chan driver.Grant, 1)
		go func() {
			g, err := a.Acquire(t.Context(), seat("between"))
			if err != nil {
				t.Error(err)
			}
			waiting <- g
		}()
		soon(t, "the waiter to be queued at the target", func() bool { return redis.Queued(a, "between") == 1 })
		refuses(t, todo, func() error { return a.Release(t.Context(), held) }) // P5: the record is elsewhere
		release(t, b, g)
		g = <-waiting
		if g.Slot != 1 || g.Found == nil || g.Found.Left != nil {
			t.Errorf("the waiter got slot %d, %+v, want slot 1, clean", g.Slot, g.Found)
		}
		must(t, move.Finish())
		end(t, held, nil)
	})

	t.Run("that grows while many wait", func(t *testing.T) {
		release(t, a, acquire(t, a, request("grows"))) // the mark stays at the source
		_, err := c.OpenSlot("mega:{grows}")
		must(t, err)
		wide := func(n int) driver.Request {
			r := request("grows")
			r.Slots, r.Fences = n, 17
			return r
		}
		last := acquire(t, a, wide(1))
		var waiting []*queuing
		for range 5 {
			waiting = append(waiting, queueUp(t, b, wide(1)))
		}
		r := wide(6)
		r.Wait = 0
		if _, err := a.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("behind the waiters of all slots: %v", err)
		}
		for i, q := range waiting { // by more than one call: a call reserves the fences of few grants
			g := q.granted(t, 10*time.Second)
			if g.Slot != i+1 || g.Fence < last.Fence+uint64(last.Fences) {
				t.Errorf("waiter %d got slot %d and fence %d after %d", i, g.Slot, g.Fence, last.Fence)
			}
			last = g
		}
	})

	t.Run("with a plain lease at the source", func(t *testing.T) {
		acquire(t, a, request("plain"))
		_, err := c.OpenSlot("mega:{plain}")
		must(t, err)
		plain := request("plain")
		plain.Slots = 2 // a plain pool, and then one whose slots have states
		for i, r := range []driver.Request{plain, seat("plain")} {
			r.Slots, r.Wait = i+2, 0
			if g := acquire(t, b, r); g.Slot != i+1 {
				t.Errorf("got slot %d beside a lease of slot 0, want %d", g.Slot, i+1)
			}
		}
	})
}

func TestSlotMarksLieInTheirSlots(t *testing.T) {
	c := redistest.StartCluster(t, 3, redistest.Options{})
	for _, key := range []string{"k", "{}", "a}{b", "käse", "%"} {
		holder, mark := redis.ClusterNames(key)
		slots := map[any]bool{}
		for _, name := range []string{holder, mark} {
			v, err := c.Servers()[0].Do("CLUSTER", "KEYSLOT", name)
			must(t, err)
			slots[v] = true
		}
		if len(slots) != 1 {
			t.Errorf("%q: %s and %s are in the slots %v", key, holder, mark, slots)
		}
	}
}

// O5: as TestALatePushDoesNotEndACooldown, while the lease is at the source.
func TestALatePushDoesNotEndACooldownInASlotThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	d := open(t, redis.Config{URL: c.URL()})
	g := acquire(t, d, request("k"))
	g.Rev, g.Rest = 1, 5*time.Minute
	release(t, d, g)
	move, err := c.OpenSlot("mega:{k}")
	must(t, err)
	value, err := move.Source.Do("GET", "mega:{k}")
	must(t, err)
	inbox := "mega:inbox:" + strings.Fields(fmt.Sprintf("%s", value))[5]
	_, err = move.Source.Do("PUBLISH", inbox, fmt.Sprintf("g2 %s %d 0 mega:{k}", g.Token, g.Fence))
	must(t, err)
	during(t, 2*time.Second, "the cooldown has ended", func() bool {
		n, err := move.Source.Do("EXISTS", "mega:{k}")
		return err == nil && n == int64(1)
	})
}
