package redis_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/history"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// slack is what the tests allow, beside what the contract says, for a machine
// that is busy. What would happen without the tested promise takes longer: a renewal of
// a lease with a TTL of 30 s comes nine seconds after the grant at the earliest, and a
// ticket waits for a lease of ten seconds.
const slack = 3 * time.Second

// noWindow bounds the wait for a grant that no dead waiter may delay: one that looks
// alive delays it by a window.
const noWindow = grantWindow * 9 / 10

// rounds is how often each client of a history does something, and how many
// such histories there are: the checker takes only so much in one, so that more
// scale means more of them.
func rounds(n int) (each, histories int) {
	each = min(suite.Scaled(n), 2*n)
	return each, max(1, suite.Scaled(n)/each)
}

// member opens a Locker of its own on the server at url, as another process
// would have it. It is closed with the test.
func member(t *testing.T, url string) *lock.Locker {
	t.Helper()
	return memberOf(t, redis.Config{URL: url})
}

func memberOf(t *testing.T, c redis.Config) *lock.Locker {
	t.Helper()
	l, err := newMember(openLock(t.Context(), c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dismiss(t, l) })
	return l
}

func openMember(ctx context.Context, c redis.Config) (*lock.Locker, error) {
	return newMember(redis.OpenLock(ctx, c))
}

func newMember(d driver.Driver, err error) (*lock.Locker, error) {
	if err != nil {
		return nil, err
	}
	l, err := lock.New(d, lock.Config{})
	drivers.Store(l, d)
	return l, err
}

// drivers are those of the members, by their Lockers.
var drivers sync.Map

// knows reports whether a request of l for key has heard that it is queued.
func knows(l *lock.Locker, key string) bool {
	d, _ := drivers.Load(l)
	return redis.Queued(d.(driver.Driver), key) > 0
}

// dismiss closes l, also where the server does not answer. Whoever still holds a
// lease loses it.
func dismiss(t *testing.T, l *lock.Locker) {
	t.Helper()
	drivers.Delete(l)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("close: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// take acquires key, which must succeed.
func take(t *testing.T, l *lock.Locker, key string, opts ...lock.Option) *lock.Lease {
	t.Helper()
	var lease *lock.Lease
	must(t, answered(func() (err error) {
		lease, err = l.Acquire(t.Context(), key, opts...)
		return err
	}))
	return lease
}

// wait begins to wait for key and returns once the backend has the waiter, and
// the waiter knows.
func wait(t *testing.T, l *lock.Locker, key string, opts ...lock.Option) <-chan granted {
	t.Helper()
	before := waiters(t, l, key)
	got := make(chan granted, 1)
	var queued atomic.Bool // from then on an outage does not end the call
	go func() {
		lease, err := l.Acquire(t.Context(), key, opts...)
		for errors.Is(err, lock.ErrUnavailable) && !queued.Load() {
			lease, err = l.Acquire(t.Context(), key, opts...)
		}
		got <- granted{lease, err, time.Now()}
	}()
	eventually(t, "the waiter to queue", func() bool { return waiters(t, l, key) > before && knows(l, key) })
	queued.Store(true)
	return got
}

type granted struct {
	lease *lock.Lease
	err   error
	at    time.Time
}

func waiters(t *testing.T, l *lock.Locker, key string) int {
	t.Helper()
	return len(stateOfKey(t, l, key).Waiters)
}

// receive returns what the waiter got, which has to be a lease within bound.
func receive(t *testing.T, got <-chan granted, bound time.Duration) granted {
	t.Helper()
	select {
	case g := <-got:
		if g.err != nil {
			t.Fatalf("the waiter got %v", g.err)
		}
		return g
	case <-time.After(generous(bound)):
		t.Fatalf("the waiter got nothing within %v", bound)
	}
	panic("unreachable")
}

// ends waits for the context of lease to end, and returns its cause.
func ends(t *testing.T, lease *lock.Lease, bound time.Duration) error {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(generous(bound)):
		t.Fatalf("the lease did not end within %v", bound)
	}
	return context.Cause(lease.Context())
}

// over checks that a lease whose key another has been granted looks ended at
// the first glance, and returns the cause.
func over(t *testing.T, lease *lock.Lease) error {
	t.Helper()
	if lease.Context().Err() == nil {
		t.Errorf("the lease with fence %d is alive, %v after its deadline, although another has its key",
			lease.Fence(), time.Since(lease.Deadline()))
	}
	return ends(t, lease, slack)
}

// generous is bound, or much more where upper bounds are not checked.
func generous(bound time.Duration) time.Duration {
	if timed {
		return bound
	}
	return 10*bound + 10*time.Second
}

// least returns the shortest of the times that three calls of fn take: on a busy
// machine a single call may take longer than it needs.
func least(fn func()) time.Duration {
	shortest := time.Hour
	for range 3 {
		start := time.Now()
		fn()
		shortest = min(shortest, time.Since(start))
	}
	return shortest
}

// eventually waits for what another process does, and cannot be waited for
// otherwise.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, time.Duration(max(10, suite.Scaled(10)))*time.Second, what, ok)
}

// within is eventually with a bound of its own.
func within(t *testing.T, bound time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(generous(bound)); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", bound, what)
		}
	}
}

// during checks for a while that something holds.
func during(t *testing.T, d time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if !holds() {
			t.Fatal(what)
		}
	}
}

// busy checks that nobody else gets key.
func busy(t *testing.T, l *lock.Locker, key string) {
	t.Helper()
	err := answered(func() error { _, err := l.TryAcquire(t.Context(), key); return err })
	if !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("TryAcquire(%q) = %v, want %v", key, err, lock.ErrNotAcquired)
	}
}

// unused checks that nobody holds key or waits for it, in the end.
func unused(t *testing.T, l *lock.Locker, key string) {
	t.Helper()
	eventually(t, "key "+strconv.Quote(key)+" to be unused", func() bool {
		s, err := l.Inspect(t.Context(), key)
		return err == nil && len(s.Holders) == 0 && len(s.Waiters) == 0
	})
}

// free checks that key can be had at once, although tickets of dead waiters may
// still be in its queue.
func free(t *testing.T, l *lock.Locker, key string) {
	t.Helper()
	var lease *lock.Lease
	err := answered(func() (err error) {
		lease, err = l.TryAcquire(t.Context(), key)
		return err
	})
	if err != nil {
		t.Errorf("TryAcquire(%q) = %v, want a free lock", key, err)
		return
	}
	giveBack(t, lease)
}

// scriptOf finds the name of a script in its source.
var scriptOf = regexp.MustCompile(`(?m)^-- (acquire|release|beat|confirm|renew|force|inspect|stamp): `)

// namer names commands: a script by what it does, whatever its hash is.
func namer() func(args []string) string {
	var mu sync.Mutex
	hashes := map[string]string{}
	return func(args []string) string {
		word := redistest.FirstWord(args)
		if len(args) < 2 || word != "EVAL" && word != "EVALSHA" {
			return word
		}
		mu.Lock()
		defer mu.Unlock()
		if word == "EVALSHA" {
			if name, known := hashes[args[1]]; known {
				return name
			}
			return word
		}
		found := scriptOf.FindAllStringSubmatch(args[1], -1)
		if len(found) == 0 {
			return word
		}
		name := found[len(found)-1][1]
		hashes[hash(args[1])] = name
		return name
	}
}

// rig is a server with two members: one reaches it through a proxy, the other
// does not.
type rig struct {
	server       *redistest.Server
	proxy        *redistest.Proxy
	near, remote *lock.Locker // remote is behind the proxy
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := redistest.Start(t, redistest.Options{})
	p := redistest.StartProxy(t, s, namer())
	// The first to open sends the scripts' sources, which the proxy has to see.
	return &rig{server: s, proxy: p, remote: member(t, p.URL()), near: member(t, s.URL())}
}

// witness records what clients see, and checks it at the end.
type witness struct {
	t        *testing.T
	path     string
	recorder *history.Recorder
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	w := &witness{t: t, path: t.TempDir() + "/history"}
	r, err := history.NewRecorder(w.path, "test")
	must(t, err)
	w.recorder = r
	t.Cleanup(func() { _ = r.Close() })
	return w
}

func (w *witness) client(name string, l *lock.Locker) *client {
	return &client{history.NewClient(name, l, w.recorder), l}
}

// join opens a member whose use of locks is recorded.
func (w *witness) join(name string, c redis.Config) *client {
	w.t.Helper()
	return w.client(name, memberOf(w.t, c))
}

// client is a client of a recorded history.
type client struct {
	*history.Client
	locker *lock.Locker
}

// wait begins to wait for "k" and returns once the call waits and, where there
// is a queue, knows that the server has its ticket. Who polls has no place to lose: an
// outage ends its call, and it is made again.
func (p *client) wait(t *testing.T, opts ...lock.Option) <-chan *history.Lease {
	t.Helper()
	queues := p.locker.Info().Engine == redis.EngineQueue
	before := 0
	if queues {
		before = waiters(t, p.locker, "k")
	}
	got := make(chan *history.Lease, 1)
	var queued atomic.Bool
	go func() {
		lease, err := p.Acquire(t.Context(), "k", 1, append(opts, lock.Wait(lock.Forever))...)
		for !queued.Load() && errors.Is(err, lock.ErrUnavailable) {
			lease, err = p.Acquire(t.Context(), "k", 1, append(opts, lock.Wait(lock.Forever))...)
		}
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	eventually(t, "the call to wait", func() bool {
		return p.locker.Stats().Waiting == 1 && (!queues || waiters(t, p.locker, "k") > before && knows(p.locker, "k"))
	})
	queued.Store(queues)
	return got
}

// leaseOf returns what a waiter got, which has to be a lease within bound.
func leaseOf(t *testing.T, got <-chan *history.Lease, bound time.Duration) *history.Lease {
	t.Helper()
	select {
	case lease := <-got:
		if lease == nil {
			t.FailNow()
		}
		return lease
	case <-time.After(generous(bound)):
		t.Fatalf("the waiter got nothing within %v", bound)
	}
	panic("unreachable")
}

// engines are those that keep leases; what they do for waiters differs.
func engines() []string { return []string{redis.EngineQueue, redis.EngineRedislock} }

// checkIn is how long the checker may think.
const checkIn = 30 * time.Second

// verify checks the answers, and that beliefs overlapped for no longer than
// allowed. It returns the longest overlap.
func (w *witness) verify(allowed time.Duration) time.Duration {
	w.t.Helper()
	h, err := history.Read(w.path)
	must(w.t, err)
	if len(h.Beliefs) == 0 {
		w.t.Error("nobody was ever granted anything")
	}
	if err := h.CheckServer(checkIn); err != nil {
		w.t.Errorf("server: %v", err)
	}
	outcomes := map[history.Outcome]int{}
	for _, op := range h.Ops {
		outcomes[op.Outcome]++
	}
	w.t.Logf("checked %d operations, %v", len(h.Ops), outcomes)
	return w.believe(allowed)
}

// lostAcquires counts the acquires that were told of a loss.
func (w *witness) lostAcquires() (n int) {
	w.t.Helper()
	h, err := history.Read(w.path)
	must(w.t, err)
	for _, op := range h.Ops {
		if op.Kind == history.Acquire && op.Outcome == history.Lost {
			n++
		}
	}
	return n
}

// believe checks the beliefs alone.
func (w *witness) believe(allowed time.Duration) time.Duration {
	w.t.Helper()
	h, err := history.Read(w.path)
	must(w.t, err)
	if err := h.CheckBeliefs(allowed); err != nil {
		w.t.Errorf("beliefs: %v", err)
	}
	return h.LongestOverlap()
}

// hash is how EVALSHA names a script.
func hash(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// pick is a random number below n.
func pick(n int) int { return rand.IntN(n) }

// together runs all at once and waits for them.
func together(all ...func()) {
	var wg sync.WaitGroup
	for _, f := range all {
		wg.Go(f)
	}
	wg.Wait()
}
