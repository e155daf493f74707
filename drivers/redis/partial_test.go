package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	limit "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock/driver"
)

// Calls that end in the middle of their script, and a copy that arrives late.

// W3: another program's data at the name of one log prevents the growth of the others.
func TestALimitWithAForeignLogConsumesNothing(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	hour, day := limit.Rate{N: 10, Per: time.Hour}, limit.Rate{N: 10, Per: 24 * time.Hour}
	both := limit.Request{Key: w.key, Rates: []limit.Rate{hour, day}, Cost: 1}
	w.granted(w.take(1, hour))
	parts := partsOf(w.key, both.Rates)
	must(t, w.client.Set(t.Context(), parts[len(parts)-1], "text", 0).Err())
	if a, err := w.Take(t.Context(), both); !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("got %+v, %v, want %v", a, err, limit.ErrUnavailable)
	}
	s, err := w.Inspect(t.Context(), w.key, []limit.Rate{hour})
	must(t, err)
	if s.Rates[0].Used != 1 {
		t.Errorf("%d units are used, want 1", s.Rates[0].Used)
	}
}

// The call that removes the last dead ticket of a limit at the source is repeated. The
// pause was not stored by then, so the repetition stores it. W13
func TestALimitIsPausedAlthoughItsSlotBeginsToMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	d, err := redis.OpenLimit(t.Context(), redis.Config{URL: c.URL()})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close(context.Background())) })
	r := limit.Request{Key: "partner", Rates: rates(2, time.Hour), Cost: 2, MaxWait: -1}
	_, err = d.Take(t.Context(), r)
	must(t, err)
	r.Cost = 1
	granted, waiting := r, r
	granted.Ticket, granted.Seq, waiting.Ticket, waiting.Seq = "withdrawn", 1, "dead", 1
	must(t, d.Withdraw(t.Context(), granted)) // its record stays
	_, err = d.Take(t.Context(), waiting)
	must(t, err)
	move, err := c.OpenSlot("mega:{partner}")
	must(t, err)
	queued := func() bool {
		n, err := move.Source.Do("EXISTS", "mega:{partner}:rate:queue")
		return err == nil && n == int64(1)
	}
	if !queued() {
		t.Fatal("no ticket is queued")
	}
	soon(t, "the ticket to be dead", func() bool {
		s, err := d.Inspect(t.Context(), r.Key, r.Rates)
		must(t, err)
		return len(s.Waiters) == 0
	})
	paused := make(chan error, 1)
	go func() { paused <- d.Pause(t.Context(), r.Key, limit.Pause{Left: time.Minute, Reason: "maintenance"}) }()
	soon(t, "the ticket to be removed", func() bool { return !queued() })
	must(t, move.Finish())
	if err := <-paused; err != nil {
		t.Fatal(err)
	}
	s, err := d.Inspect(t.Context(), r.Key, r.Rates)
	if err != nil || s.Paused == nil {
		t.Errorf("got %+v, %v after a pause, want it", s, err)
	}
}

// W3, W9: a grant of the source that begins one of two logs anew is not repeated.
func TestALimitCountsAGrantOnceAlthoughItsSlotBeginsToMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	d := openLimit(t, redis.Config{URL: c.URL()})
	hour, day := limit.Rate{N: 10, Per: time.Hour}, limit.Rate{N: 10, Per: 24 * time.Hour}
	r := limit.Request{Key: "partner", Rates: []limit.Rate{hour, day}, Cost: 1, MaxWait: -1}
	take := func(r limit.Request) limit.Answer {
		a, err := d.Take(t.Context(), r)
		must(t, err)
		return a
	}
	take(r)
	must(t, d.Reset(t.Context(), r.Key)) // both logs stay, and count as empty
	first := r
	first.Rates = []limit.Rate{hour}
	take(first)
	must(t, d.Pause(t.Context(), r.Key, limit.Pause{Left: 500 * time.Millisecond, Reason: "test"}))
	r.Ticket, r.Seq = "waiting", 1
	take(r)
	move, err := c.OpenSlot("mega:{partner}")
	must(t, err)
	granted := make(chan error, 1)
	go func() {
		for {
			a, err := d.Take(t.Context(), r)
			if a.Granted || err != nil && !errors.Is(err, limit.ErrUnavailable) { // its time may be over
				granted <- err
				return
			}
		}
	}()
	soon(t, "the ticket to leave the queue", func() bool {
		n, err := move.Source.Do("EXISTS", "mega:{partner}:rate:queue")
		return err != nil || n != int64(1)
	})
	must(t, move.Finish())
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	s, err := d.Inspect(t.Context(), r.Key, r.Rates)
	must(t, err)
	if s.Rates[0].Used != 2 || s.Rates[1].Used != 1 {
		t.Errorf("%d and %d units are used, want 2 and 1", s.Rates[0].Used, s.Rates[1].Used)
	}
}

// A script may begin at the source, with every key of a pool there, and then use a key
// that it has removed: by then it belongs to the target. The call is repeated.
func TestAPoolIsHandedOverAlthoughItsSlotBeginsToMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	a, b := open(t, redis.Config{URL: c.URL()}), open(t, redis.Config{URL: c.URL()})
	for slot := range 2 {
		key := fmt.Sprint("pool", slot)
		held := fill(t, a, key, 2)
		next := queueUp(t, b, seat(key, 2))
		move, err := c.OpenSlot("mega:{" + key + "}")
		must(t, err)
		keys := func() any {
			n, err := move.Source.Do("CLUSTER", "COUNTKEYSINSLOT", move.Slot)
			must(t, err)
			return n
		}
		before := keys()
		released := make(chan error, 1)
		go func() { released <- a.Release(t.Context(), held[slot]) }()
		soon(t, "a key to be removed", func() bool { return keys() != before })
		must(t, move.Finish())
		if err := <-released; err != nil && !contains(err, "redis-cli --cluster fix") { // its time may be over
			t.Errorf("release of slot %d: %v", slot, err)
		}
		if g := next.granted(t, 5*time.Second); g.Slot != slot {
			t.Errorf("the waiter got slot %d, want %d", g.Slot, slot)
		}
	}
}

// The call that finds the last slot of a pool expired removes the slots at the source,
// and is repeated. By then it has taken no lease, so the repetition counts all.
func TestAForceCountsEveryLeaseAlthoughItsSlotBeginsToMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	d := open(t, redis.Config{URL: c.URL()})
	long, short := seat("pool", 2), seat("pool", 2)
	long.TTL, short.TTL = time.Minute, 100*time.Millisecond
	acquire(t, d, long)
	acquire(t, d, short)
	shrunk := seat("pool", 1)
	shrunk.Wait = 0
	if _, err := d.Acquire(t.Context(), shrunk); !errors.Is(err, driver.ErrNotAcquired) {
		t.Fatalf("got %v, want %v", err, driver.ErrNotAcquired)
	}
	servers := c.Servers()
	source := servers[slices.IndexFunc(servers, func(s *redistest.Server) bool {
		return command("EXISTS", "mega:{pool}")(s) == nil
	})]
	ticket, now := token(), time.Now().UnixMilli() // of a process that is dead, and has no heartbeat
	must(t, command("HSET", "mega:{pool}:state", ticket, "3 1 1 nobody 1 2 3 dead")(source))
	must(t, command("ZADD", "mega:{pool}:due", now+60_000, ticket)(source))
	must(t, command("ZADD", "mega:{pool}:order", now*1000, ticket)(source))
	move, err := c.OpenSlot("mega:{pool}")
	must(t, err)
	soon(t, "the expiry of slot 1", func() bool {
		n, err := source.Do("ZCOUNT", "mega:{pool}:slots", time.Now().UnixMilli(), "+inf")
		return err == nil && n == int64(0)
	})
	type result struct {
		n   int
		err error
	}
	forced := make(chan result, 1)
	go func() {
		var last result
		for last.err = driver.ErrUnavailable; errors.Is(last.err, driver.ErrUnavailable); { // its time may be over
			last.n, last.err = d.ForceRelease(t.Context(), "pool", driver.Force{Reason: "test"})
		}
		forced <- last
	}()
	soon(t, "the slots to be removed", func() bool {
		n, err := source.Do("EXISTS", "mega:{pool}:slots")
		return err != nil || n != int64(1)
	})
	must(t, move.Finish())
	if got := <-forced; got.err != nil || got.n != 1 {
		t.Errorf("forced %d, %v, want 1", got.n, got.err)
	}
}

// A request that the driver, or a client of the user, repeats may arrive after the
// refusal of its repetition, which has removed its ticket. It takes no units then (W6).
func TestLateCopyOfARefusedTakeConsumesNothing(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.StartProxy(t, shared, (&yard{names: redis.ScriptNames(nil)}).name)
			d := openLimit(t, way(t, p.URL()))
			r := limit.Request{Key: token(), Rates: rates(1, 2*time.Second), Cost: 1}
			if a, err := d.Take(t.Context(), r); err != nil || !a.Granted {
				t.Fatal(a, err)
			}
			r.Ticket, r.Seq = token(), 1 // its MaxWait is 0
			copied := p.ResetAfter(redistest.Named("take"))
			if a, err := d.Take(t.Context(), r); err != nil || a.Granted || a.Again != 0 {
				t.Fatalf("got %+v, %v, want a refusal", a, err)
			}
			time.Sleep(2 * time.Second) // the window passes
			if a, err := copied.Redeliver(); err != nil || fmt.Sprint(a) != "[0]" {
				t.Errorf("the copy: got %v, %v, want no grant", a, err)
			}
		})
	}
}
