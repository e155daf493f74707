package guide_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/memory"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard/redisguard"
)

// What 07-locks-in-practice.md shows.

// rates keeps the exchange rates in Redis.
type rates struct{ redis *goredis.Client }

func (r *rates) saveByHand(ctx context.Context, value string) error {
	if err := ctx.Err(); err != nil { // ctx ends with the lease
		return err
	}
	return r.redis.Set(ctx, "rates", value, 0).Err()
}

func (r *rates) save(ctx context.Context, value string) error {
	_, err := redisguard.Redis(ctx, r.redis, "return redis.call('SET', KEYS[1], ARGV[1])", []string{"rates"}, value)
	return err
}

// redisClient returns a client of a new server.
func redisClient(t *testing.T) *goredis.Client {
	t.Helper()
	o, err := goredis.ParseURL(redistest.Start(t, redistest.Options{}).URL())
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newLocks returns a Locker. Lockers on one driver share their locks.
func newLocks(t *testing.T, d *memory.Lock) *lock.Locker {
	t.Helper()
	locks, err := lock.New(d, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

func take(t *testing.T, locks *lock.Locker, key string) *lock.Lease {
	t.Helper()
	lease, err := locks.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release() })
	return lease
}

// The early holder keeps its lock apart from the late one's, as a process that
// has not noticed yet that its lease has ended. Real processes are stopped in
// lock/guard/enginetest.
func TestAStaleWriterIsRefusedByTheGuardOnly(t *testing.T) {
	r := &rates{redisClient(t)}
	early, late := take(t, newLocks(t, memory.NewLock()), "rates"), take(t, newLocks(t, memory.NewLock()), "rates")

	if err := errors.Join(r.saveByHand(late.Context(), "new"), r.saveByHand(early.Context(), "old")); err != nil {
		t.Fatal(err)
	}
	if got := r.redis.Get(t.Context(), "rates").Val(); got != "old" {
		t.Errorf("by hand: %q; the page says that the new value is gone", got)
	}

	if err := r.save(late.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	if err := r.save(early.Context(), "old"); !errors.Is(err, lock.ErrStale) {
		t.Errorf("the stale write: %v, want ErrStale", err)
	}
	if got := r.redis.Get(t.Context(), "rates").Val(); got != "new" {
		t.Errorf("with the guard: %q", got)
	}
}

func workerByHand(ctx context.Context, client *goredis.Client) (int64, error) {
	n, err := client.Incr(ctx, "workers").Result()
	return n % 1024, err
}

func TestACounterGivesTheNumberOfALiveWorkerAgain(t *testing.T) {
	client := redisClient(t)
	first, err := workerByHand(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.IncrBy(t.Context(), "workers", 1023).Err(); err != nil { // the starts of a worker that crashes
		t.Fatal(err)
	}
	if again, err := workerByHand(t.Context(), client); err != nil || again != first {
		t.Errorf("worker %d after %d, %v; the page says that they are equal", again, first, err)
	}
}

// ids generates numbers that no other process of the fleet generates: the time
// in microseconds, and 10 bits of the slot.
type ids struct {
	lease *lock.Lease
	start time.Time
	mu    sync.Mutex // guards last
	last  int64      // time of the last id
}

func newIDs(ctx context.Context, locks *lock.Locker) (*ids, error) {
	lease, err := locks.Acquire(ctx, "ids", lock.Slots(1024))
	if err != nil {
		return nil, err
	}
	return &ids{lease: lease, start: time.Now(), last: int64(lease.Fence())}, nil
}

func (g *ids) next() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for now <= g.last { // for two microseconds at most
		now = g.now()
	}
	if err := g.lease.Err(); err != nil { // after the look at the clock: at that time the slot was ours
		return 0, err
	}
	g.last = now
	return now<<10 | int64(g.lease.Slot()), nil
}

// now is behind the clock of the backend, which gave the fence: by a thousandth of
// the time since, more than the clocks of two machines differ in speed.
func (g *ids) now() int64 {
	since := time.Since(g.start)
	return int64(g.lease.Fence()) + (since - since/1000).Microseconds()
}

func TestIDsAreUniqueInTheFleetAndAcrossHolders(t *testing.T) {
	backend := memory.NewLock()
	seen := map[int64]bool{}
	greatest := int64(0)
	for range 3 { // each round has two workers, which take the slots of the round before
		var pair []*ids
		for range 2 {
			g, err := newIDs(t.Context(), newLocks(t, backend))
			if err != nil {
				t.Fatal(err)
			}
			pair = append(pair, g)
		}
		before := greatest
		for _, g := range pair {
			for range 100 {
				id, err := g.next()
				if err != nil || seen[id] || id>>10 <= before {
					t.Fatalf("id %d of slot %d after %d: %v", id, g.lease.Slot(), before, err)
				}
				seen[id], greatest = true, max(greatest, id>>10)
			}
		}
		for _, g := range pair {
			_ = g.lease.Release()
			if _, err := g.next(); !errors.Is(err, lock.ErrLost) {
				t.Errorf("a worker without its slot: %v", err)
			}
		}
	}
}

// The clock of the holder's machine is half a second ahead after 1000 s.
func TestIDsOfAFastClockStayBelowThoseOfTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, memory.NewLock())
		g, err := newIDs(t.Context(), locks)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1000 * time.Second)
		g.start = g.start.Add(-500 * time.Millisecond)
		id, err := g.next()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.lease.Release(); err != nil {
			t.Fatal(err)
		}
		next, err := newIDs(t.Context(), locks)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = next.lease.Release() }()
		time.Sleep(time.Millisecond) // the clock of the bubble does not pass by itself
		if got, err := next.next(); err != nil || got <= id {
			t.Errorf("id %d after %d of the holder before, %v", got, id, err)
		}
	})
}
