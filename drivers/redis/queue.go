package redis

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// comfortable is how long a grant must still live for its waiter to enter
// without a confirmation.
const comfortable = window / 2

// queue is the engine that queues in Redis.
type queue struct {
	*engine
	inbox       *inbox
	heartbeater *heartbeater

	refusals  sync.WaitGroup // releases of pushed grants without a waiter
	refusing  chan struct{}  // has room for maxRefusals of them
	requeuing chan struct{}  // has room for the tickets that are queued again at once. L10
	cancel    context.CancelFunc
	listened  atomic.Pointer[time.Time] // the last check of the subscription, if any
	suspect   atomic.Bool               // a check of the subscription is due
	muted     atomic.Pointer[error]     // why this user may not publish, by the last check
	checking  sync.Mutex                // held during a check of it
	heard     chan struct{}             // receives when the push of a check has arrived
}

var (
	_ driver.Driver = (*queue)(nil)
	_ driver.Asker  = (*queue)(nil)
)

// Acquire implements [driver.Driver].
func (q *queue) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, wait, err := q.Ask(ctx, r)
	if wait != nil {
		return wait(ctx)
	}
	return g, err
}

// waiting is the part of Acquire after its request is queued.
type waiting = func(context.Context) (driver.Grant, error)

// Ask implements [driver.Asker].
func (q *queue) Ask(ctx context.Context, r driver.Request) (driver.Grant, waiting, error) {
	if err := cmp.Or(ctx.Err(), q.inbox.refusal(), q.refusal()); err != nil {
		return driver.Grant{}, nil, err
	}
	c := &claim{
		name: q.layout.holder(r.Key),
		r:    r,
		tail: tail(q.inbox.name, r.Holder),
		lost: make(chan error, 2),
	}
	if err := q.begin(); err != nil {
		return driver.Grant{}, nil, err
	}
	q.claims.add(c)
	start := time.Now()
	t, err := q.try(ctx, c, 0)
	if t.loose {
		q.claims.repeated(c)
	}
	if err == nil && t.status == statusQueued {
		q.claims.queued(c, t.number, t.sent)
		q.heartbeater.within(soon(t.left))
		return driver.Grant{Resized: t.resized}, q.waitOf(c, start, t.resized), nil
	}
	defer q.calls.Done()
	switch {
	case err != nil:
		q.claims.abandon(c)
		return driver.Grant{}, nil, err
	case t.status == statusGranted:
		g, err := q.enter(c, t)
		return g, nil, err
	}
	return driver.Grant{}, nil, q.turnAway(ctx, c, t, start)
}

// waitOf returns the part of Acquire that waits for a queued claim. It ends the call
// unless it is paused.
func (q *queue) waitOf(c *claim, start time.Time, resized int) waiting {
	return func(ctx context.Context) (g driver.Grant, err error) {
		defer func() {
			if !errors.Is(err, driver.ErrPaused) {
				q.calls.Done()
			}
		}()
		return q.await(ctx, c, start, resized)
	}
}

// turnAway ends a claim that was neither granted nor queued, and returns the error.
func (q *queue) turnAway(ctx context.Context, c *claim, t tried, start time.Time) error {
	if loose := q.claims.remove(c.r.Token); loose && t.status != statusBarred {
		// A copy that comes later must not be granted. L6
		if _, err := q.leave(ctx, c, loose, driver.CallTimeout-time.Since(start)); err != nil {
			return err
		}
	}
	if err := c.refused(t); err != nil {
		return err
	}
	return &driver.NotAcquiredError{Key: c.r.Key, Holders: t.holders, Full: t.status == statusFull, Resized: t.resized}
}

// The first number of what acquire answers.
const (
	statusSize      = -4
	statusWithdrawn = -3
	statusFull      = -2
	statusBarred    = -1
	statusBusy      = 0
	statusGranted   = 1
	statusQueued    = 2
)

// tried is the result of one call of acquire.
type tried struct {
	status  int64
	grant   driver.Grant // if granted
	record  string       // if granted: of the slot
	resized int
	number  int64         // if queued
	left    time.Duration // if queued: until something may become free by itself
	holders []driver.Holding
	why     string // if barred, by a force
	sent    time.Time
	loose   bool
}

// try calls acquire; number is 0, or the ticket's place.
func (q *queue) try(ctx context.Context, c *claim, number int64) (tried, error) {
	r := q.scripts.acquire.on(c.name, c.r.Token, digits(millis(c.r.TTL)), yesNo(c.r.Wait != 0), wants(c.r), digits(c.r.Fences), c.tail)
	if number != 0 {
		r.args = append(r.args, digits(number))
	}
	o, err := q.run(ctx, r)
	if err != nil {
		return tried{}, err
	}
	t := tried{sent: o.sent, loose: q.loose(o)}
	if digits, ok := o.reply.(string); ok {
		fence, err := strconv.ParseUint(digits, 10, 53)
		if err != nil {
			return tried{}, unexpected(o.reply)
		}
		t.status = statusGranted
		t.grant = c.grant(fence, 0, c.r.Fences, driver.Deadline(o.sent, c.r.TTL))
		return t, nil
	}
	a, err := check(o.reply, 1)
	if err != nil {
		return tried{}, err
	}
	t.status = a.num(0)
	switch t.status {
	case statusGranted:
		t.resized, t.record = int(a.num(3)), a.text(5)
		t.grant = c.grant(uint64(a.num(1)), int(a.num(2)), int(a.num(4)), driver.Deadline(o.sent, c.r.TTL)) //nolint:gosec // below 2^53
	case statusQueued:
		t.number, t.left, t.resized = a.num(1), time.Duration(a.num(3))*time.Millisecond, int(a.num(4))
	case statusBusy, statusFull:
		t.holders, t.resized = holdings(a.sub(1)), int(a.num(2))
	case statusWithdrawn, statusSize:
		t.resized = int(a.num(1))
	case statusBarred:
		t.why = a.text(1)
	}
	return t, nil
}

// enter returns the grant to the caller, unless the driver was closed
// meanwhile.
func (q *queue) enter(c *claim, t tried) (driver.Grant, error) {
	if q.closing.Load() {
		return driver.Grant{}, q.withdrawClosed(c)
	}
	g := t.grant
	g.Resized, g.Found = t.resized, c.found(t.record)
	q.claims.held(c, g.Deadline)
	return g, nil
}

// await waits for the grant of a queued ticket.
func (q *queue) await(ctx context.Context, c *claim, start time.Time, resized int) (driver.Grant, error) {
	var over <-chan time.Time
	var until time.Time
	if c.r.Wait > 0 {
		t := time.NewTimer(c.r.Wait - time.Since(start))
		defer t.Stop()
		over, until = t.C, start.Add(c.r.Wait)
	}
	for {
		q.inbox.lead(ctx, until, c)
		select {
		case <-c.wake:
			g, ok, err := q.woken(ctx, c)
			if ok || err != nil {
				g.Resized = resized
				return g, resizing(err, resized)
			}
		case <-over:
			return driver.Grant{}, resizing(q.withdraw(c), resized)
		case <-ctx.Done():
			if driver.Paused(ctx) {
				return driver.Grant{}, driver.ErrPaused
			}
			q.claims.abandon(c)
			return driver.Grant{}, ctx.Err()
		}
	}
}

// resizing adds to a refusal that the request has changed the size of the pool.
func resizing(err error, before int) error {
	if busy, ok := errors.AsType[*driver.NotAcquiredError](err); ok {
		busy.Resized = before
	}
	return err
}

// woken handles a wake-up, and reports whether it is a grant that may be
// entered.
func (q *queue) woken(ctx context.Context, c *claim) (driver.Grant, bool, error) {
	a, queuedAt, loose, closed := q.claims.awarded(c)
	if closed {
		return driver.Grant{}, false, q.withdrawClosed(c)
	}
	if a == nil {
		return driver.Grant{}, false, nil
	}
	if a.refusal != nil {
		q.claims.remove(c.r.Token)
		return driver.Grant{}, false, c.refused(*a.refusal)
	}
	deadline := driver.Deadline(a.sent, a.left)
	sure := true
	if a.sent.IsZero() {
		// A push does not carry its send time, but the grant came after
		// the last call that found the ticket in the queue.
		deadline, sure = driver.Deadline(queuedAt, window), !loose
	}
	if sure && !c.r.NoRenew && deadline.Sub(driver.Now()) >= comfortable {
		q.claims.held(c, deadline)
		g := c.waited(a.fence, a.slot, deadline)
		g.Found = c.found(a.record)
		return g, true, nil
	}
	return q.confirm(ctx, c)
}

// confirm renews a grant to its TTL, in one round trip. If the grant is gone,
// the ticket is queued again in its old place. If the answer is missing, a
// heartbeat finds the state.
func (q *queue) confirm(ctx context.Context, c *claim) (driver.Grant, bool, error) {
	o, err := q.run(ctx, q.scripts.confirm.on(c.name, c.r.Token, digits(millis(c.r.TTL)), "0", yesNo(c.r.NoRenew)))
	if ctx.Err() != nil && !driver.Paused(ctx) {
		q.claims.abandon(c)
		return driver.Grant{}, false, ctx.Err()
	}
	if err != nil {
		q.heartbeater.hurry()
		return driver.Grant{}, false, nil //nolint:nilerr // a queued call rides out an outage
	}
	a, err := check(o.reply, 1)
	if err != nil {
		q.claims.abandon(c)
		return driver.Grant{}, false, err
	}
	if a = a.sub(0); a.num(0) != 1 {
		if reason := a.text(1); reason != "" {
			q.claims.remove(c.r.Token)
			return driver.Grant{}, false, lostBy(c.r.Key, reason)
		}
		q.requeue(ctx, c.r.Token)
		return driver.Grant{}, false, nil
	}
	deadline := driver.Deadline(o.sent, c.r.TTL)
	q.claims.held(c, deadline)
	g := c.waited(uint64(a.num(1)), int(a.num(2)), deadline) //nolint:gosec // below 2^53
	g.Found = c.found(a.text(4))
	return g, true, nil
}

// requeue queues a ticket again that the server has lost.
func (q *queue) requeue(ctx context.Context, token string) {
	c, number, waits := q.claims.loosen(token)
	if !waits {
		return
	}
	t, err := q.try(ctx, c, number)
	switch {
	case err != nil:
		q.heartbeater.hurry()
	case t.status == statusQueued:
		q.claims.requeued(c, t.number, t.sent)
		q.heartbeater.within(soon(t.left))
	case t.status == statusWithdrawn, t.status == statusSize, t.why != "":
		q.claims.give(token, award{refusal: &t})
	case t.status == statusGranted:
		known, _ := q.claims.give(token, award{fence: t.grant.Fence, slot: t.grant.Slot, sent: t.sent, left: c.r.TTL, record: t.record})
		if !known {
			q.refuse(c.name, token)
		}
	}
}

// refusal returns the error of calls while this user may not publish, or nil. L21
func (q *queue) refusal() error {
	if err := q.muted.Load(); err != nil {
		return *err
	}
	return nil
}

// check has the next heartbeat check the subscription and the right to publish.
func (q *queue) check() {
	q.suspect.Store(true)
	q.heartbeater.hurry()
}

// subscribed handles a new subscription after an interruption: the pushes in
// between are lost.
func (q *queue) subscribed() {
	q.heartbeater.hurry()
	q.claims.reconnected()
}

// reconnected handles a new connection of the calls. The subscription may be at
// another server: a connection to a server that stands still does not end.
func (q *queue) reconnected() {
	q.claims.reconnected()
	q.check()
}

// received takes a push.
func (q *queue) received(m message) {
	switch m.kind {
	case "w2":
		q.freeIn(m)
	case "f2":
		q.claims.revoke(m.token, m.reason)
	default:
		if known, _ := q.claims.give(m.token, award{fence: m.fence, slot: m.slot, record: m.record}); !known {
			q.refuse(m.name, m.token)
		}
	}
}

// freeIn takes a push about the time until something becomes free, or the push of a
// check.
func (q *queue) freeIn(m message) {
	if m.token == self {
		select {
		case q.heard <- struct{}{}:
		default:
		}
	}
	q.heartbeater.within(soon(m.left))
}

// Close implements [driver.Driver].
func (q *queue) Close(ctx context.Context) error { return q.close(ctx, q.shut) }

// shut ends the goroutines beside the calls: first the one for pushes, so that
// every arrived push is answered.
func (q *queue) shut() {
	q.inbox.drain()
	q.inbox.close()
	q.inbox.wait()
	q.cancel()
	q.heartbeater.wait()
	q.refusals.Wait()
}
