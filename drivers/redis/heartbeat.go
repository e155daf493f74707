package redis

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/refusal"
	"github.com/megaframework/mega/lock/driver"
)

const (
	// heartbeatEvery is the interval between two heartbeats of a ticket, give or
	// take a fifth. A ticket is stale after three missed heartbeats.
	heartbeatEvery = 600 * time.Millisecond
	// heartbeatSoonest is the shortest pause before a heartbeat that checks for
	// an expired holder: a waiter is served within 50 ms of the expiry.
	heartbeatSoonest = 20 * time.Millisecond
	// resubscribed is the time within which each waiter checks for missed
	// pushes after a new subscription.
	resubscribed = 50 * time.Millisecond
)

// heartbeater is the goroutine that sends the heartbeats of this process's tickets,
// in as few calls as the server allows, while there are any.
type heartbeater struct {
	beat func(context.Context) (next time.Duration)
	done sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	due   time.Time // the next heartbeat; zero without one
}

func newHeartbeater(beat func(context.Context) time.Duration) *heartbeater {
	b := &heartbeater{beat: beat, timer: time.NewTimer(time.Hour)}
	b.timer.Stop()
	return b
}

func (b *heartbeater) start(ctx context.Context) { b.done.Go(func() { b.run(ctx) }) }

func (b *heartbeater) wait() { b.done.Wait() }

// within schedules a heartbeat in at most d. It wakes the goroutine only if there
// is none by then: this is called for each ticket.
func (b *heartbeater) within(d time.Duration) {
	at := time.Now().Add(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due.IsZero() || at.Before(b.due) {
		b.due = at
		b.timer.Reset(d)
	}
}

// hurry schedules a heartbeat after a push may have been missed.
func (b *heartbeater) hurry() { b.within(rand.N(resubscribed)) } //nolint:gosec // not a secret

func (b *heartbeater) run(ctx context.Context) {
	defer b.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.timer.C:
			b.begin()
			if next := b.beat(ctx); next > 0 {
				b.within(next)
			}
		}
	}
}

// begin records that a heartbeat is being sent. A later within schedules the next one.
func (b *heartbeater) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = time.Time{}
}

// interval returns the time until the next heartbeat.
func interval() time.Duration {
	return group.Jitter(heartbeatEvery)
}

// soon returns the time of the next check, given the remaining time of a lease.
func soon(left time.Duration) time.Duration {
	switch {
	case left < 0:
		return interval()
	case left == 0: // more work is ready
		return time.Millisecond
	}
	return min(interval(), max(left+2*time.Millisecond, heartbeatSoonest))
}

// sendAll sends a heartbeat for every ticket and returns the time until the
// next one, or 0. It also checks the subscription after a new connection of the
// calls, and while this user may not publish.
func (q *queue) sendAll(ctx context.Context) time.Duration {
	var calls sync.WaitGroup
	if q.suspect.Swap(false) || q.muted.Load() != nil {
		calls.Go(func() { q.checkSubscription(ctx) })
	}
	tickets := q.claims.tickets()
	next := interval()
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout) // other servers wait for the next heartbeat
	defer cancel()
	var mu sync.Mutex // guards next
	each(ctx, q.backend, q.portions(tickets), func(p portion) string { return p.locks[0] }, func(p portion) {
		left := q.sendSome(ctx, bounded, p)
		mu.Lock()
		defer mu.Unlock()
		next = min(next, left)
	})
	calls.Wait()
	if len(tickets) == 0 && !q.suspect.Load() && q.muted.Load() == nil {
		return 0
	}
	return next
}

// portion is the content of one call of beat: the claims on some locks.
type portion struct {
	locks   []string // their holder keys
	tickets [][]*claim
}

// portions divides the tickets so that no call carries too many.
func (q *queue) portions(byLock map[string][]*claim) []portion {
	var out []portion
	for locks := range slices.Chunk(slices.Collect(maps.Keys(byLock)), q.backend.together()) {
		out = appendPortions(out, locks, byLock)
	}
	return out
}

// appendPortions appends the portions of locks that one script can serve together.
func appendPortions(out []portion, locks []string, byLock map[string][]*claim) []portion {
	p, n := portion{}, 0
	for _, lock := range locks {
		for cs := byLock[lock]; len(cs) > 0; {
			if n == maxKeys {
				out, p, n = append(out, p), portion{}, 0
			}
			k := min(len(cs), maxKeys-n)
			p.locks, p.tickets = append(p.locks, lock), append(p.tickets, cs[:k])
			cs, n = cs[k:], n+k
		}
	}
	return append(out, p)
}

func (s *script) onAll(p portion) request {
	argv := make([]string, 0, 2*len(p.locks))
	for i := range p.locks {
		argv = append(argv, digits(len(p.tickets[i])))
		for _, c := range p.tickets[i] {
			argv = append(argv, c.r.Token)
		}
	}
	if s.layout == nil {
		return s.over(p.locks, argv...)
	}
	var keys []string
	for _, holder := range p.locks {
		keys = append(keys, s.layout.names(holder)...)
	}
	return s.over(append(keys, s.layout.mark(p.locks[0])), argv...)
}

// sendSome sends the heartbeats of p and returns the time of the next check. If
// the call fails for all locks, sendSome tries each lock alone: a key of a
// foreign type, or of another version of the format, must not make the other
// tickets look dead. The calls of beat end with bounded.
func (q *queue) sendSome(ctx, bounded context.Context, p portion) time.Duration {
	o, err := q.run(bounded, q.scripts.beat.onAll(p))
	if err != nil {
		if len(p.locks) > 1 && judge(err) == final && bounded.Err() == nil {
			next := interval()
			for i := range p.locks {
				next = min(next, q.sendSome(ctx, bounded, portion{p.locks[i : i+1], p.tickets[i : i+1]}))
			}
			return next
		}
		return interval()
	}
	a, err := check(o.reply, 0)
	if err != nil {
		return interval()
	}
	next, at, missed := interval(), 0, false
	var unknown []string
	for i := range p.locks {
		next = min(next, soon(time.Duration(a.num(at))*time.Millisecond))
		at++
		for _, c := range p.tickets[i] {
			known, late := q.answered(c, a, at, o.sent)
			missed = missed || late
			if !known {
				unknown = append(unknown, c.r.Token)
			}
			at += 5
		}
	}
	q.requeueAll(ctx, unknown)
	if missed { // after the loop, because no grant waits for the check
		q.listen(ctx)
	}
	return next
}

// answered handles the result of a heartbeat for one ticket. It reports whether the
// server knows the ticket, and whether the push of a grant did not arrive.
func (q *queue) answered(c *claim, a answer, at int, sent time.Time) (known, missed bool) {
	switch token := c.r.Token; a.num(at) {
	case statusQueued:
		q.claims.stillQueued(token, sent)
	case statusGranted:
		_, missed = q.claims.give(token, award{
			fence: uint64(a.num(at + 1)), //nolint:gosec // below 2^53
			slot:  int(a.num(at + 2)),
			sent:  sent,
			left:  time.Duration(a.num(at+3)) * time.Millisecond,

			record: a.text(at + 4),
		})
	case statusWithdrawn:
		q.claims.give(token, award{refusal: &tried{status: statusWithdrawn}})
	default:
		return false, false
	}
	return true, missed
}

// requeueAll queues tickets again that the server has lost. The heartbeats of all
// tickets wait for it.
func (q *queue) requeueAll(ctx context.Context, tokens []string) {
	var calls sync.WaitGroup
	for _, token := range tokens {
		q.requeuing <- struct{}{}
		calls.Go(func() {
			q.requeue(ctx, token)
			<-q.requeuing
		})
	}
	calls.Wait()
}

// listen checks the subscription of this process after a heartbeat has found a
// grant whose push did not arrive: the subscription may be at a former master, or
// its connection half open.
func (q *queue) listen(ctx context.Context) {
	now := time.Now()
	if last := q.listened.Load(); last != nil && now.Sub(*last) < time.Second ||
		!q.listened.CompareAndSwap(last, &now) {
		return
	}
	q.checkSubscription(ctx)
}

// checkSubscription subscribes again if a push of its own does not arrive. A check
// that is refused or has no answer is repeated by the next heartbeat.
func (q *queue) checkSubscription(ctx context.Context) {
	if q.inbox.lost.Load() != nil || !q.checking.TryLock() { // the client subscribes again by itself
		return
	}
	defer q.checking.Unlock()
	select {
	case <-q.heard: // the push of an earlier check
	default:
	}
	receivers, err := q.pushSelf(ctx)
	if err != nil {
		var open *wire.OpenError
		if refusal.Of(err) == refusal.None || errors.As(err, &open) {
			q.suspect.Store(true)
			return
		}
		q.muted.Store(&err)
		return
	}
	q.muted.Store(nil)
	if q.scripts.counted && receivers == 0 || !q.hears(ctx) { // the server counts connections that are half open
		q.inbox.deaf()
	}
}

// hears reports whether the push of a check arrives within attemptTimeout.
func (q *queue) hears(ctx context.Context) bool {
	t := time.NewTimer(attemptTimeout)
	defer t.Stop()
	select {
	case <-q.heard:
		return true
	case <-t.C:
		return false
	case <-ctx.Done():
		return true
	}
}
