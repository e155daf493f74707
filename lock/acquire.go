package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// acquire returns a lease; every public call goes through it. invalid is the
// error of the call's arguments, if any.
func (l *Locker) acquire(ctx context.Context, c *call, invalid error) (*Lease, error) {
	if invalid == nil {
		invalid = l.findDeadlock(ctx, c)
	}
	if invalid == nil && (c.fixed || c.pool != nil) {
		invalid = l.supportsPools()
	}
	if invalid != nil {
		return nil, fmt.Errorf("acquire %q: %w", shorten(c.key), invalid)
	}
	if !l.gate.enter() {
		return nil, fmt.Errorf("acquire %q: %w", c.key, ErrClosed)
	}
	start := l.clock.now()
	c.left = c.wait
	held := false
	defer func() { // also when a driver, an Identify or a context panics: Close must not wait for it
		if !held {
			l.gate.leave()
		}
	}()
	lease, err := l.obtain(ctx, c, start)
	if err != nil {
		return nil, l.refused(ctx, c, l.clock.now().sub(start), err)
	}
	held = true
	return lease, nil
}

// shorten truncates a key that was refused for its size, so that it does not
// fill the logs.
func shorten(key string) string {
	if len(key) > MaxKey {
		return key[:40] + "…"
	}
	return key
}

// findDeadlock returns ErrDeadlock if a live lease on ctx already holds the
// key: the call would wait for itself. A pool has more than one lease, so a
// second call is allowed.
func (l *Locker) findDeadlock(ctx context.Context, c *call) error {
	for held, ok := LeaseFrom(ctx); ok; held, ok = LeaseFrom(held.parent) {
		if held.hold.locker == l && held.hold.grant.Key == c.key && c.slots == 1 && held.live() {
			return fmt.Errorf("%w by the lease with fence %d", ErrDeadlock, held.fence) // L13
		}
	}
	return nil
}

// maxLateGrants is how many grants of a call may arrive too late to be used.
const maxLateGrants = 3

// obtain gets a grant, directly or through the queue, and returns a lease on
// it. It repeats the request if the grant is lost between its arrival and its
// use.
func (l *Locker) obtain(ctx context.Context, c *call, start instant) (*Lease, error) {
	late := 0
	for now := start; ; now = l.clock.now() {
		if l.ended(ctx, now) != nil {
			return nil, contextError(ctx)
		}
		o, err := l.await(ctx, c, start, now)
		if errors.Is(err, ErrLost) && c.wait > 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		lease := newLease(ctx, c, o)
		c.waited = lease.since.sub(start)
		if o.hold.attach(lease, c) {
			l.granted(c, lease, o)
			return lease, nil
		}
		if l.gate.shut() {
			_ = o.hold.giveBack(0) // after a failure, the TTL ends the grant
			return nil, ErrClosed
		}
		o.hold.lose(o.hold.expiry()) // L22: give back a grant past its deadline
		if late++; late == maxLateGrants {
			return nil, fmt.Errorf("%w: %d grants arrived past their deadlines", ErrUnavailable, late)
		}
	}
}

// await waits for c's turn and returns the grant. The call began at start, and this
// try of it now.
func (l *Locker) await(ctx context.Context, c *call, start, now instant) (outcome, error) {
	switch {
	case l.queues == nil && l.asker != nil:
		return l.ask(ctx, c, start, now)
	case l.queues == nil || c.wait == 0 || c.fifo:
		return l.askQueued(ctx, c, remaining(c.wait, l.clock.now().sub(start)))
	}
	return l.queues.wait(ctx, c, start)
}

// remaining returns the rest of a wait. A negative value means no limit.
func remaining(wait, waited time.Duration) time.Duration {
	if wait == Forever {
		return -1
	}
	return max(wait-waited, 0)
}

// ask requests a grant from a driver in this process. A free key needs no derived
// context.
func (l *Locker) ask(ctx context.Context, c *call, start, now instant) (outcome, error) {
	var r driver.Request
	r.At = l.clock.shared(now)
	l.request(ctx, &r, c, remaining(c.wait, now.sub(start)), l.clock.time(start))
	g, wait, err := l.asker.Ask(ctx, r)
	if err != nil {
		l.tidy(r, err)
		return outcome{}, err
	}
	if wait == nil {
		// Too little time has passed to read the clock again.
		return outcome{hold: l.newHold(&g, now), fence: g.Fence, at: now}, nil
	}
	l.resized(c.key, c.slots, g.Resized, now)
	return l.awaitGrant(ctx, c, &r, wait)
}

// askQueued requests a grant, and waits for it in the driver.
func (l *Locker) askQueued(ctx context.Context, c *call, wait time.Duration) (outcome, error) {
	var r driver.Request
	l.request(ctx, &r, c, wait, time.Now())
	return l.awaitGrant(ctx, c, &r, func(ctx context.Context) (driver.Grant, error) {
		if l.asker == nil {
			return l.driver.Acquire(ctx, r)
		}
		g, wait, err := l.asker.Ask(ctx, r)
		if wait == nil {
			return g, err
		}
		l.resized(r.Key, r.Slots, g.Resized, l.clock.now()) // L15: the end of ctx has no answer
		return wait(ctx)
	})
}

// awaitGrant calls wait, which waits for the grant of r, with a context that Close
// ends too.
func (l *Locker) awaitGrant(ctx context.Context, c *call, r *driver.Request, wait func(context.Context) (driver.Grant, error)) (outcome, error) {
	l.counters.waiting.Add(1)
	defer l.counters.waiting.Add(-1)
	returned := false
	defer func() {
		if !returned { // a context or the driver has panicked
			l.tidy(*r, errNotReturned)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.gate.closing, cancel)()
	tracked, deadlock := l.beginWait(ctx, c, r.Wait, func(error) { cancel() }) // A5
	if deadlock != nil {
		cancel() // the request leaves the queue
	}
	defer l.endWait(tracked) // also when the driver panics
	g, err := wait(ctx)
	returned = true
	deadlock = cmp.Or(deadlock, l.endWait(tracked))
	if err != nil {
		l.tidy(*r, err)
		return outcome{}, cmp.Or(deadlock, err)
	}
	now := l.clock.now()
	return outcome{hold: l.newHold(&g, now), fence: g.Fence, at: now, contended: g.Queued}, nil
}

// errNotReturned is the outcome of a request or a run whose call has panicked, or
// has called runtime.Goexit. Nobody returns it.
var errNotReturned = errors.New("the call did not return")

// request fills r, except for At. It does not return a request, and does not call
// holder: each copy costs a fiftieth of a lease in memory.
func (l *Locker) request(ctx context.Context, r *driver.Request, c *call, wait time.Duration, since time.Time) {
	r.Key, r.Token = c.key, newToken() // L3
	r.TTL, r.NoRenew = c.ttl, c.noRenew
	r.Wait, r.FIFO = wait, c.fifo
	r.Slots, r.Fences = c.slots, 1
	r.Holder = l.self
	r.Holder.Label, r.Holder.Since = c.label, since
	if l.config.Identify != nil {
		r.Holder = l.identify(ctx, r.Holder)
	}
	l.describe(r, c)
}

// newToken returns 128 random bits in 22 characters. The generator is the
// runtime's ChaCha8, seeded by the system. Tokens identify leases; they are not
// secrets.
func newToken() string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	var text [22]byte
	half := text[:11]
	for range 2 { // 11 digits of 6 bits hold 64 bits
		bits := rand.Uint64()
		for i := range half {
			half[i] = digits[bits%64]
			bits /= 64
		}
		half = text[11:]
	}
	return string(text[:])
}

// granted reports a granted lease, which attach has counted, to the observer.
func (l *Locker) granted(c *call, lease *Lease, o outcome) {
	if o.contended {
		l.counters.contended.Add(1)
	}
	l.resized(c.key, c.slots, lease.hold.grant.Resized, lease.since)
	if l.observed() {
		l.observe(Acquired{c.key, lease.fence, lease.Slot(), c.waited, o.contended, o.handed})
	}
}

// resized reports that a call has changed the size of a pool, unless old, the size
// before, is 0.
func (l *Locker) resized(key string, slots, old int, now instant) {
	if old != 0 && l.sizes.shouldReport(key, old, slots, now) { // L15
		l.observe(PoolResized{Key: key, Old: old, New: slots})
	}
}

// refused counts a call that ends without a lease, reports it to the observer,
// and returns the error for the caller.
func (l *Locker) refused(ctx context.Context, c *call, waited time.Duration, err error) error {
	err = fmt.Errorf("acquire %q: %w", c.key, l.refusal(ctx, c, waited, err))
	l.health.failed(err)
	if busy, ok := errors.AsType[*NotAcquiredError](err); ok {
		l.resized(c.key, c.slots, busy.Resized, l.clock.now())
		l.counters.contended.Add(1)
		if ctx.Err() == nil && c.wait > 0 && !busy.Full && !busy.Withdrawn { // these two are refused at once
			l.counters.timedOut.Add(1)
		}
	}
	l.observe(NotAcquired{Key: c.key, Err: err})
	return err
}

// refusal classifies the error of a call that ends without a lease. The end of
// the caller's context is added to the other facts: it is neither hidden nor
// treated as an outage.
func (l *Locker) refusal(ctx context.Context, c *call, waited time.Duration, err error) error {
	var busy *NotAcquiredError
	switch {
	case errors.Is(err, ErrUnavailable) && ctx.Err() != nil:
		return beside(ctx, err)
	case isContextError(err) && ctx.Err() == nil && l.gate.shut():
		return ErrClosed // Close ended the context of the driver call
	case errors.As(err, &busy):
		full := *busy
		full.Key, full.Waited = c.key, waited
		full.Request = l.holder(ctx, "", time.Time{}).Request
		if full.Err != nil && ctx.Err() != nil {
			full.Err = contextError(ctx)
		}
		return &full
	case isContextError(err) && ctx.Err() != nil && !errors.Is(err, ErrNotAcquired):
		return contextError(ctx) // L21: neither busy nor unavailable is confirmed
	case errors.Is(err, ErrNotAcquired), errors.Is(err, ErrLost):
		return &NotAcquiredError{Key: c.key, Waited: waited}
	}
	return l.unavailable(err, askBound) // a context that has ended is of a timeout, not ctx
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// sizes records the reported differences of pool sizes: each pair of sizes of a
// key is reported once, and a key at most once a minute (L15).
type sizes struct {
	mu       sync.Mutex // guards reported
	reported map[string]*reportedSizes
}

// reportedSizes holds the reported pairs of one key.
type reportedSizes struct {
	at    instant
	pairs map[[2]int]struct{}
}

const (
	reportPause = time.Minute
	maxReported = 1024 // keys; a forgotten key may be reported again
	maxPairs    = 64   // per key
)

// shouldReport reports whether the observer should receive the change now. The
// direction of the change does not matter.
func (s *sizes) shouldReport(key string, before, after int, now instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pair := [2]int{min(before, after), max(before, after)}
	t := s.reported[key]
	if t == nil {
		if !s.hasRoom(now) {
			return false
		}
		t = &reportedSizes{at: now.add(-reportPause)}
		s.reported[key] = t
	}
	if _, ok := t.pairs[pair]; ok || now.sub(t.at) < reportPause {
		return false
	}
	if t.pairs == nil || len(t.pairs) >= maxPairs {
		t.pairs = make(map[[2]int]struct{})
	}
	t.at, t.pairs[pair] = now, struct{}{}
	return true
}

// hasRoom reports whether another key can be recorded. If there are too many
// keys, it first forgets the keys without a report in the last minute.
func (s *sizes) hasRoom(now instant) bool {
	if len(s.reported) >= maxReported {
		maps.DeleteFunc(s.reported, func(_ string, t *reportedSizes) bool { return now.sub(t.at) >= reportPause })
	}
	if s.reported == nil {
		s.reported = make(map[string]*reportedSizes)
	}
	return len(s.reported) < maxReported
}
