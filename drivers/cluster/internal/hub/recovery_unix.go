//go:build linux || darwin

package hub

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
)

// recovery is the wait of a new hub before it grants any lease: every client
// that may hold a lease of an earlier hub must have reported its leases, or
// they must have expired.
type recovery struct {
	lock *rendezvous.HubLock
	news chan struct{} // has an element when a client has reported
	met  chan struct{} // closed when every client of the last hub is back, or after meetBound

	mu      sync.Mutex
	awaited map[string]int64 // clients that have not reported, and the expiry of their leases
	until   int64            // the latest expiry of leases whose clients have ended
	unknown time.Duration    // for so long, while this process runs, clients without a file may connect
	waits   time.Duration    // for so long, while this process runs, limits wait for living clients
	seen    int64            // the time of the last check
}

// freshBound is the time for which a hub with a new lock file grants no lease. An
// earlier hub may have had clients whose files were removed with the old lock file:
// they connect and report their leases in this time.
const freshBound = 2 * time.Second

// Successor is a hub in place of one that has ended. It grants no lease, and
// its clients keep their messages, until its recovery is over.
type Successor struct {
	*Hub
	recovery *recovery
}

// Follow returns the successor of the hub that has left the bounds left. again
// reports whether this process was at a hub before.
func Follow(c Config, lock *rendezvous.HubLock, left rendezvous.Record, again bool) (*Successor, error) {
	r, err := newRecovery(lock, left, again)
	if err != nil {
		return nil, err
	}
	s := &Successor{New(c), r}
	s.shut = true // until open
	s.limits.copied, s.limits.met = true, r.met
	s.number, s.follows = lock.Hub(), left.Hub
	if s.limits.epoch, err = lock.Epoch(s.limits.epoch); err != nil {
		return nil, err
	}
	s.locks.succeed(left.Fence)
	s.locks.reported = func(c *Client) { r.reported(c.file) }
	return s, nil
}

// Recover waits until every client of the earlier hub has reported, or until
// end is closed. It calls clear, once, when no unreported lease can be valid any
// more, with the number of clients that have not reported.
func (s *Successor) Recover(end <-chan struct{}, clear func(silent int)) {
	s.recovery.run(end, s.open, clear)
}

// Drain makes the clients keep their events for the next hub, and delivers the
// queued events of this one (S21). It returns when all events are delivered,
// when no client reads any more, or when ctx ends. No client may join
// meanwhile.
func (s *Successor) Drain(ctx context.Context) { s.drain(ctx) }

// Grant lets the table grant leases.
func (s *Successor) Grant() { s.locks.table.Open() }

// HighestFence returns the highest fence that the hub knows.
func (s *Successor) HighestFence() uint64 { return s.locks.table.HighestFence() }

// newRecovery finds out which clients live. A client that connects later cannot
// hold a lease yet, except if the lock file is new although there was a hub
// before. again reports whether this process was at a hub before. bounds are
// the bounds of the last hub's leases.
func newRecovery(lock *rendezvous.HubLock, bounds rendezvous.Record, again bool) (*recovery, error) {
	living, until, err := lock.Clients(protocol.NodeNanos())
	if err != nil {
		return nil, err
	}
	r := &recovery{lock: lock, until: until, waits: meetBound}
	r.news, r.met = make(chan struct{}, 1), make(chan struct{})
	r.awaited = make(map[string]int64, len(living))
	now := protocol.NodeNanos() // the last hub grants no lease any more
	r.seen = now
	if lock.Fresh() && (again || lock.Blind() || lock.FollowsRemoved() || lock.FollowsLost()) {
		r.unknown = freshBound
	}
	for _, name := range living {
		r.awaited[name] = min(bounds.Expiry, expiryOf(now, lock.Longest(name)))
	}
	return r, nil
}

// expiryOf returns the expiry of leases of at most ttl that were granted no
// later than now.
func expiryOf(now, ttl int64) int64 {
	switch {
	case ttl == 0:
		return 0
	case ttl > math.MaxInt64-now-protocol.MaxSkew:
		return rendezvous.Never
	}
	return now + ttl + protocol.MaxSkew
}

// reported records that a client has reported all its leases.
func (r *recovery) reported(name string) {
	r.mu.Lock()
	delete(r.awaited, name)
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

const (
	// maxPause is the longest pause between two checks of the awaited clients.
	maxPause = 20 * time.Millisecond
	// queueBound is the maximum time for which queued messages, and the queues of
	// locks, wait for the clients of an earlier hub: a stopped client does not
	// delay them further.
	queueBound = 500 * time.Millisecond
	// meetBound is the maximum time for which limits wait for them: a call fails after
	// driver.CallTimeout, and a busy machine may keep a client from running for queueBound.
	meetBound = 2 * time.Second
	// maxStep is the longest time between two checks that is not a pause of this process.
	maxStep = 5 * maxPause
)

// run calls open when every client has reported its leases, or after queueBound. It
// then calls clear when no unreported lease can be valid any more. The argument
// of clear is the number of living clients that have not reported, although
// they may have held a lease. run returns after both calls, or when end is
// closed.
func (r *recovery) run(end <-chan struct{}, open func(), clear func(silent int)) {
	start := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		left, silent, absent := r.status(protocol.NodeNanos())
		// Queues need all clients, leases only those that may hold one: the
		// table opens last, so that the first grants see complete queues (L7).
		if open != nil && (absent == 0 || time.Since(start) >= queueBound) {
			open()
			open = nil
		}
		if open == nil && left <= 0 && protocol.IsClosed(r.met) {
			clear(silent)
			return
		}
		select {
		case <-r.news:
		case <-time.After(pause):
		case <-end:
			return
		}
	}
}

// status returns how long leases may still be valid, how many living clients may
// hold such leases, and how many clients have not reported at all.
func (r *recovery) status(now int64) (left time.Duration, silent, absent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	step := min(time.Duration(now-r.seen), maxStep) // no client connects to a hub that is stopped
	r.seen, r.unknown, r.waits = now, r.unknown-step, r.waits-step
	if r.lock.Contested() {
		r.unknown = freshBound
	}
	last := r.until
	for name, good := range r.awaited {
		lives, until := r.lock.Lives(name, now) // L1: a client that lives may still use its leases
		if !lives {
			delete(r.awaited, name)
			r.until = max(r.until, until)
			last = max(last, until)
			continue
		}
		absent++
		if good > 0 { // otherwise the client has no lease
			silent++
			last = max(last, good)
		}
	}
	if r.unknown <= 0 && (absent == 0 || r.waits <= 0) && !protocol.IsClosed(r.met) {
		close(r.met) // W1
	}
	if r.lock.Emptied() { // L1; last, because the files may be removed while they are read
		last = max(last, r.lock.Left().Expiry)
	}
	return max(time.Duration(last-now), r.unknown), silent, absent
}
