package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// What happens to the server, and what must hold then.

func TestLocksSurviveAKilledServerThatPersists(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) { locksSurvive(t, engine) })
	}
}

func locksSurvive(t *testing.T, engine string) {
	t.Helper()
	s := redistest.Start(t, redistest.Options{Persistence: redistest.AOF})
	c := redis.Config{URL: s.URL(), Engine: engine}
	w := newWitness(t)
	a, b := w.join("a", c), w.join("b", c)
	other := memberOf(t, c)
	held := a.take(t, lock.TTL(10*time.Second))
	got := b.wait(t, lock.TTL(10*time.Second))
	must(t, s.Kill())
	must(t, s.Restart())
	eventually(t, "the lock to be reachable", func() bool { _, err := other.Inspect(t.Context(), "k"); return err == nil })
	busy(t, other, "k")
	if err := held.Context().Err(); err != nil {
		t.Errorf("the lease ended: %v", context.Cause(held.Context()))
	}
	giveBack(t, held)
	next := leaseOf(t, got, 10*time.Second)
	if next.Fence() <= held.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), held.Fence())
	}
	giveBack(t, next)
	w.verify(0)
	unused(t, other, "k")
}

// A server that comes back empty has lost the lease: the holder hears of it
// with its next renewal, and meanwhile another may have been granted.
func TestKilledServerThatForgetsEndsLeasesWithinARenewal(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{})
			forgets(t, redis.Config{URL: s.URL(), Engine: engine}, func() {
				must(t, s.Kill())
				must(t, s.Restart())
			})
		})
	}
}

func TestFlushedServerEndsLeasesWithinARenewal(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{})
			forgets(t, redis.Config{URL: s.URL(), Engine: engine}, func() { must(t, s.FlushAll()) })
		})
	}
}

// forgets has a holder and a waiter, makes the server forget both, and checks
// that the holder is told, the waiter served and the fence higher.
func forgets(t *testing.T, c redis.Config, forget func()) {
	t.Helper()
	const ttl = 9 * time.Second
	const period = ttl / 3
	w := newWitness(t)
	a, b := w.join("a", c), w.join("b", c)
	other := memberOf(t, c)
	held := a.take(t, lock.TTL(ttl))
	got := b.wait(t, lock.TTL(ttl))
	done := a.Forget("k")
	forget()
	done()
	back := time.Now()
	// Beside the period, the reconnection of a client that found its
	// connection broken, and one more attempt.
	cause := ends(t, held.Lease, period+slack)
	t.Logf("told after %v, the renewal period is %v", time.Since(back), period)
	var lost *lock.LostError
	if !errors.As(cause, &lost) || lost.Cause != lock.Expired {
		t.Errorf("cause = %v, want %v", cause, lock.Expired)
	}
	next := leaseOf(t, got, 10*time.Second)
	if next.Fence() <= held.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), held.Fence())
	}
	if err := held.Release(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release of the lost lease = %v, want %v", err, lock.ErrLost)
	}
	busy(t, other, "k")
	giveBack(t, next)
	t.Logf("two holders for %v", w.verify(generous(period+slack)))
	unused(t, other, "k")
}

// A server that stands still for longer than the TTL lets every lease run out:
// its holder knows before anyone else can be granted.
func TestPausedProcessOfServerEndsLeasesInTime(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{})
			standsStill(t, redis.Config{URL: s.URL(), Engine: engine},
				func() { must(t, s.Pause()) }, func() { must(t, s.Continue()) })
		})
	}
}

func TestPausedClientsOfServerEndLeasesInTime(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	standsStill(t, redis.Config{URL: s.URL()}, func() { must(t, s.PauseClients(2*time.Second)) }, func() {}) // ends by itself
}

func standsStill(t *testing.T, c redis.Config, stop, goOn func()) {
	t.Helper()
	const ttl = time.Second
	w := newWitness(t)
	a, b := w.join("a", c), w.join("b", c)
	other := memberOf(t, c)
	held := a.take(t, lock.TTL(ttl))
	got := b.wait(t, lock.TTL(ttl))
	stop()
	stopped := time.Now()
	cause := ends(t, held.Lease, ttl+slack)
	var lost *lock.LostError
	if !errors.As(cause, &lost) || lost.Cause != lock.Unreachable && lost.Cause != lock.Expired {
		t.Errorf("cause = %v, want unreachable", cause)
	}
	// Twice the TTL, so that the server has something to catch up with.
	time.Sleep(time.Until(stopped.Add(2 * ttl)))
	goOn()
	next := leaseOf(t, got, 10*time.Second)
	if next.Fence() <= held.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), held.Fence())
	}
	_ = held.Release()
	giveBack(t, next)
	if o := w.verify(0); o != 0 {
		t.Errorf("two holders for %v", o)
	}
	unused(t, other, "k")
}

// A pause that is shorter than what a renewal leaves of the TTL costs nobody a
// lease. Two thirds of the TTL are left at least.
func TestShortPauseOfServerLosesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	l, other := member(t, s.URL()), member(t, s.URL())
	var leases []*lock.Lease
	for i := range 100 {
		leases = append(leases, take(t, l, fmt.Sprint("k", i), lock.TTL(9*time.Second)))
	}
	got := wait(t, other, "k0", lock.Wait(lock.Forever))
	for range 2 {
		must(t, s.Pause())
		time.Sleep(3100 * time.Millisecond) // longer than a renewal period and than a call may take
		must(t, s.Continue())
		eventually(t, "the server to answer", func() bool { _, err := l.Inspect(t.Context(), "k0"); return err == nil })
	}
	for _, lease := range leases {
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("lease of %q: %v", lease.Key(), context.Cause(lease.Context()))
		}
		giveBack(t, lease)
	}
	giveBack(t, receive(t, got, slack).lease)
}

// crowd has n goroutines, spread over the lockers and the keys, take a key
// each once, for a moment, while disturb runs again and again. All must be
// granted, and no two at once.
func crowd(t *testing.T, lockers []*lock.Locker, n, keys int, disturb func()) {
	t.Helper()
	keys = min(keys, (n+len(lockers)-1)/len(lockers)) // each has a waiter, however small n is
	var gates []*lock.Lease                           // nobody gets through before all have come
	for k := range keys {
		gates = append(gates, take(t, lockers[0], fmt.Sprint("crowd", k), lock.TTL(time.Minute)))
	}
	holders := make([]atomic.Int32, keys)
	var granted, waiting atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			waiting.Add(1)
			l, k := lockers[i%len(lockers)], i/len(lockers)%keys
			err := l.With(t.Context(), fmt.Sprint("crowd", k), func(context.Context) error {
				if holders[k].Add(1) != 1 {
					t.Errorf("two holders of key %d", k)
				}
				time.Sleep(time.Millisecond) // work
				holders[k].Add(-1)
				granted.Add(1)
				return nil
			}, lock.Wait(lock.Forever))
			if err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all to wait", func() bool { return waiting.Load() == int64(n) && queued(t, lockers[0], keys) })
	stop := repeat(disturb)
	for _, g := range gates {
		giveBack(t, g)
	}
	all.Wait()
	stop()
	if granted.Load() != int64(n) {
		t.Errorf("%d of %d were granted", granted.Load(), n)
	}
	for k := range keys {
		unused(t, lockers[0], fmt.Sprint("crowd", k))
	}
}

// repeat runs f until stop is called, and at least once.
func repeat(f func()) (stop func()) {
	done := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			f()
			select {
			case <-done:
				return
			default:
			}
		}
	})
	return func() {
		close(done)
		loop.Wait()
	}
}

func queued(t *testing.T, l *lock.Locker, keys int) bool {
	t.Helper()
	for k := range keys {
		if waiters(t, l, fmt.Sprint("crowd", k)) == 0 {
			return false
		}
	}
	return true
}

func TestKilledSubscriptionsLoseNoWakeUp(t *testing.T) {
	for _, keys := range []int{1, 40} {
		t.Run(fmt.Sprint("keys=", keys), func(t *testing.T) {
			s := redistest.Start(t, redistest.Options{})
			lockers := []*lock.Locker{member(t, s.URL()), member(t, s.URL()), member(t, s.URL()), member(t, s.URL())}
			start := time.Now()
			kills := 0
			crowd(t, lockers, suite.Scaled(1000), keys, func() {
				eventually(t, "all to be subscribed", func() bool { return subscribed(t, s) >= len(lockers) })
				_, err := s.KillPubSub()
				must(t, err)
				kills++
			})
			t.Logf("subscriptions were killed %d times", kills)
			t.Logf("%d waiters on %d keys took %v", suite.Scaled(1000), keys, time.Since(start))
			if took := time.Since(start); timed && took > time.Duration(max(30, suite.Scaled(30)))*time.Second {
				t.Errorf("%d waiters took %v: somebody waited for a push that never came", suite.Scaled(1000), took)
			}
		})
	}
}

func subscribed(t *testing.T, s *redistest.Server) (n int) {
	t.Helper()
	clients, err := s.Clients()
	must(t, err)
	for _, c := range clients {
		if c["sub"] != "0" || c["ssub"] != "" && c["ssub"] != "0" {
			n++
		}
	}
	return n
}

// Each operation finds the server without any script.
func TestFlushedScriptsAreSentAgain(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	a, b := member(t, s.URL()), member(t, s.URL())
	flush := func() { must(t, s.ScriptFlush()) }
	flush()
	held := take(t, a, "k")
	flush()
	got := wait(t, b, "k")
	flush()
	must(t, answered(func() error { return held.Extend(t.Context(), 20*time.Second) }))
	flush()
	busyBySlots(t, a)
	flush()
	if n, err := a.ForceRelease(t.Context(), "k", "test"); n != 1 || err != nil {
		t.Errorf("ForceRelease = %d, %v, want 1", n, err)
	}
	second := receive(t, got, slack)
	flush()
	if err := held.Release(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release after force = %v, want %v", err, lock.ErrLost)
	}
	flush()
	if _, err := a.List(t.Context(), ""); err != nil {
		t.Error(err)
	}
	flush()
	giveBack(t, second.lease)
	unused(t, a, "k")
}

// busyBySlots uses every script of a pool between flushes.
func busyBySlots(t *testing.T, l *lock.Locker) {
	t.Helper()
	one := take(t, l, "pool", lock.Slots(2))
	two := take(t, l, "pool", lock.Slots(2))
	if one.Slot() == two.Slot() {
		t.Errorf("slot %d was given twice", one.Slot())
	}
	giveBack(t, one)
	giveBack(t, two)
}

// While scripts are flushed all the time, nothing is refused and nothing is
// granted twice.
func TestFlushingScriptsAllTheTimeDisturbsNobody(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	lockers := []*lock.Locker{member(t, s.URL()), member(t, s.URL())}
	crowd(t, lockers, suite.Scaled(400), 4, func() { must(t, s.ScriptFlush()) })
}

// A server that cannot be used says so when it is opened.
func TestUnusableServersAreTypedErrorsWithinABound(t *testing.T) {
	t.Parallel()
	locked := redistest.Start(t, redistest.Options{
		Password: "sesame",
		Users:    []string{"mute on >pw ~* +@all resetchannels", "blind on >pw resetkeys &* +@all"},
	})
	dead := redistest.Start(t, redistest.Options{})
	must(t, dead.Kill())
	still := redistest.Start(t, redistest.Options{})
	must(t, still.Pause())
	readOnly := redistest.StartSentinels(t, 1, redistest.Options{}).Servers()[1]
	tests := []struct{ name, url, says string }{
		{"no password", "redis://" + locked.Addr(), "password"},
		{"wrong password", "redis://:wrong@" + locked.Addr(), "password"},
		{"no right to channels", "redis://mute:pw@" + locked.Addr(), "channel"},
		{"no right to keys", "redis://blind:pw@" + locked.Addr(), "key"},
		{"nobody listens", dead.URL(), "refused"},
		{"a server that stands still", still.URL(), ""},
		{"a replica that takes no writes", readOnly.URL(), "replica"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			start := time.Now()
			l, err := openMember(t.Context(), redis.Config{URL: test.url})
			if err == nil {
				dismiss(t, l)
			}
			if !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("OpenLock = %v, want %v", err, lock.ErrUnavailable)
			}
			if took := time.Since(start); timed && took > 5*time.Second {
				t.Errorf("OpenLock took %v", took)
			}
			if err != nil && !contains(err, test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
		})
	}
	must(t, still.Continue())
	for _, s := range []*redistest.Server{locked, still, readOnly} {
		if n, err := s.Do("DBSIZE"); err != nil || n != int64(0) {
			t.Errorf("%v keys were left at %s, %v", n, s.Addr(), err)
		}
	}
}

// What goes wrong after a good start is told within a second, and holds
// nothing.
func TestServersThatBecomeUnusableAreTypedErrorsWithinABound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		spoil, mend func(*redistest.Server) error
	}{
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
		{"paused", (*redistest.Server).Pause, (*redistest.Server).Continue},
		{"read-only", command("REPLICAOF", "127.0.0.1", "1"), command("REPLICAOF", "NO", "ONE")},
		{"no rights any more", command("ACL", "SETUSER", "default", "-@all", "+acl"), command("ACL", "SETUSER", "default", "+@all")},
		{"no replicas", command("CONFIG", "SET", "min-replicas-to-write", "1"), command("CONFIG", "SET", "min-replicas-to-write", "0")},
		{"unable to save", unableToSave, command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")},
		{"full", command("CONFIG", "SET", "maxmemory", "1"), command("CONFIG", "SET", "maxmemory", "0")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{})
			l := member(t, s.URL())
			giveBack(t, take(t, l, "k"))
			must(t, test.spoil(s))
			for _, ask := range []func() error{
				func() error { _, err := l.TryAcquire(t.Context(), "k"); return err },
				func() error { _, err := l.Acquire(t.Context(), "k"); return err },
			} {
				start := time.Now()
				if err := ask(); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) {
					t.Errorf("acquire = %v, want %v", err, lock.ErrUnavailable)
				}
				if took := time.Since(start); timed && took > time.Second+slack {
					t.Errorf("acquire took %v, want about a second at most", took)
				}
			}
			must(t, test.mend(s))
			// A request that the server had received may be done late; what it
			// did is cleaned up long before its TTL.
			eventually(t, "the lock to be there", func() bool {
				lease, err := l.TryAcquire(t.Context(), "k")
				return err == nil && lease.Release() == nil
			})
			unused(t, member(t, s.URL()), "k")
		})
	}
}

func command(args ...any) func(*redistest.Server) error {
	return func(s *redistest.Server) error {
		_, err := s.Do(args...)
		return err
	}
}

// A request has a bound of its own, which the TTL does not shorten (L20).
func TestAShortTTLDoesNotShortenARequest(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{})
			l := memberOf(t, redis.Config{URL: s.URL(), Engine: engine})
			must(t, s.Pause())
			start := time.Now()
			_, err := l.TryAcquire(t.Context(), "k", lock.TTL(100*time.Millisecond))
			if took := time.Since(start); !errors.Is(err, lock.ErrUnavailable) || took < driver.CallTimeout*9/10 {
				t.Errorf("after %v: %v", took, err)
			}
			must(t, s.Continue())
		})
	}
}

// A holder whose key somebody else has overwritten with another type is told,
// and nobody hangs.
func TestWrongTypeAtTheKeyIsATypedError(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	l := member(t, s.URL())
	for _, spoil := range [][]any{
		{"LPUSH", "mega:{k}", "x"}, {"SET", "mega:{k}:order", "x"}, {"SADD", "mega:{k}:state", "x"},
		{"LPUSH", "mega:{}:clock", "x"}, {"SET", "mega:{k}:due", "x"},
	} {
		t.Run(fmt.Sprint(spoil[1]), func(t *testing.T) {
			must(t, s.FlushAll())
			held := take(t, l, "k", lock.TTL(900*time.Millisecond))
			// In one step: a renewal between two would make the key again.
			_, err := s.Do(append([]any{"EVAL", "redis.call('DEL', ARGV[2]); return redis.call(unpack(ARGV))", 0}, spoil...)...)
			must(t, err)
			start := time.Now()
			lease, err := l.Acquire(t.Context(), "k", lock.Wait(0))
			if err == nil {
				t.Errorf("granted twice, with fence %d after %d", lease.Fence(), held.Fence())
				_ = lease.Release()
			}
			if !errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrNotAcquired) {
				t.Errorf("acquire = %v, want a typed error", err)
			}
			if took := time.Since(start); timed && took > time.Second+slack {
				t.Errorf("acquire took %v", took)
			}
			_ = held.Release()
			must(t, s.FlushAll())
			giveBack(t, take(t, l, "k"))
		})
	}
}

// L6: a grant that the server could not store is not pushed. A user who has lost
// SET alone may still publish.
func TestUserWithoutSETPushesNoGrant(t *testing.T) {
	t.Parallel()
	tests := map[string]func(held *lock.Lease, other *lock.Locker) error{
		"release": func(held *lock.Lease, _ *lock.Locker) error { return held.Release() },
		"force": func(held *lock.Lease, other *lock.Locker) error {
			_, err := other.ForceRelease(t.Context(), held.Key(), "test")
			return err
		},
	}
	for name, free := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{})
			l, other := member(t, s.URL()), member(t, s.URL())
			held := take(t, l, "k", lock.TTL(time.Minute))
			got := wait(t, other, "k", lock.Wait(lock.Forever))
			must(t, command("ACL", "SETUSER", "default", "-set")(s))
			if err := free(held, other); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want %v", err, lock.ErrUnavailable)
			}
			must(t, command("ACL", "SETUSER", "default", "+set")(s))
			g := receive(t, got, 10*time.Second)
			state := stateOfKey(t, l, "k")
			if len(state.Holders) != 1 || state.Holders[0].Fence != g.lease.Fence() {
				t.Errorf("the waiter was granted fence %d, the server has %+v", g.lease.Fence(), state.Holders)
			}
			giveBack(t, g.lease)
		})
	}
}
