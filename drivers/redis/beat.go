package redis

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// beatEvery is how often every ticket is beaten, give or take a fifth: a
	// ticket is stale after three beats that were missed.
	beatEvery  = 600 * time.Millisecond
	beatJitter = beatEvery / 5
	// beatSoonest bounds the heartbeats that look for a holder that has expired:
	// a waiter is served within 50 ms of that.
	beatSoonest = 20 * time.Millisecond
	// resubscribed is within which time after a new subscription everyone looks
	// for what was missed.
	resubscribed = 50 * time.Millisecond
)

// beater is the goroutine that beats the tickets of this process: all of them
// in one call, while there are any.
type beater struct {
	beat func(context.Context) (next time.Duration)
	kick chan time.Duration // at the latest after that time
	done sync.WaitGroup
}

func newBeater(beat func(context.Context) time.Duration) *beater {
	return &beater{beat: beat, kick: make(chan time.Duration, 1)}
}

func (b *beater) start(ctx context.Context) { b.done.Go(func() { b.run(ctx) }) }

func (b *beater) wait() { b.done.Wait() }

// within has the tickets beaten within d at the latest.
func (b *beater) within(d time.Duration) {
	for {
		select {
		case b.kick <- d:
			return
		case earlier := <-b.kick:
			d = min(d, earlier)
		}
	}
}

// hurry is for when something was missed.
func (b *beater) hurry() { b.within(rand.N(resubscribed)) } //nolint:gosec // not a secret

func (b *beater) run(ctx context.Context) {
	var due time.Time // zero: nobody waits
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-b.kick:
			if at := time.Now().Add(d); due.IsZero() || at.Before(due) {
				due = at
			}
		case <-timer.C:
			due = time.Time{}
			if next := b.beat(ctx); next > 0 {
				due = time.Now().Add(next)
			}
		}
		timer.Stop()
		if !due.IsZero() {
			timer.Reset(time.Until(due))
		}
	}
}

// interval is how long until the next beat.
func interval() time.Duration {
	return beatEvery - beatJitter + rand.N(2*beatJitter) //nolint:gosec // not a secret
}

// soon is when to look again, given for how long something is still held.
func soon(left time.Duration) time.Duration {
	switch {
	case left < 0:
		return interval()
	case left == 0: // there is more to do at once
		return time.Millisecond
	}
	return min(interval(), max(left+2*time.Millisecond, beatSoonest))
}

// beatAll beats every ticket and returns when to do so again, or 0.
func (q *queue) beatAll(ctx context.Context) time.Duration {
	tickets := q.claims.tickets()
	if len(tickets) == 0 {
		return 0
	}
	next := interval()
	var mu sync.Mutex // guards next
	var calls sync.WaitGroup
	for _, part := range q.portions(tickets) {
		calls.Go(func() {
			left := q.beatSome(ctx, part)
			mu.Lock()
			defer mu.Unlock()
			next = min(next, left)
		})
	}
	calls.Wait()
	return next
}

// portion is what one call of beat carries: the claims on some locks.
type portion struct {
	locks   []string // their holder keys
	tickets [][]*claim
}

// portions cuts the tickets so that no call carries too much.
func (q *queue) portions(byLock map[string][]*claim) []portion {
	all := make([]string, 0, len(byLock))
	for holder := range byLock {
		all = append(all, holder)
	}
	var out []portion
	for _, locks := range q.backend.shards(all) {
		p, n := portion{}, 0
		for _, lock := range locks {
			cs := byLock[lock]
			for len(cs) > 0 {
				if n == maxKeys {
					out, p, n = append(out, p), portion{}, 0
				}
				k := min(len(cs), maxKeys-n)
				p.locks, p.tickets = append(p.locks, lock), append(p.tickets, cs[:k])
				cs, n = cs[k:], n+k
			}
		}
		out = append(out, p)
	}
	return out
}

func (s *script) onAll(p portion) request {
	argv := make([]any, 0, 2*len(p.locks))
	for i := range p.locks {
		argv = append(argv, len(p.tickets[i]))
		for _, c := range p.tickets[i] {
			argv = append(argv, c.r.Token)
		}
	}
	if s.layout == nil {
		return s.over(p.locks, argv...)
	}
	var keys []string
	for _, holder := range p.locks {
		keys = append(keys, s.layout.keys(holder)...)
	}
	return s.over(append(keys, s.layout.mark(p.locks[0])), argv...)
}

// beatSome beats the tickets of p and returns when to look again. What failed
// for all is tried for each lock: one with a foreign type at its key must not
// make the others look dead.
func (q *queue) beatSome(ctx context.Context, p portion) time.Duration {
	o, err := q.run(ctx, q.scripts.beat.onAll(p))
	if err != nil {
		if len(p.locks) > 1 && judge(err) == final && ctx.Err() == nil {
			for i := range p.locks {
				q.beatSome(ctx, portion{p.locks[i : i+1], p.tickets[i : i+1]})
			}
		}
		return interval()
	}
	a, err := check(o.reply, 0)
	if err != nil {
		return interval()
	}
	next, at := interval(), 0
	for i := range p.locks {
		next = min(next, soon(time.Duration(a.num(at))*time.Millisecond))
		at++
		for _, c := range p.tickets[i] {
			q.beaten(ctx, c, a, at, o.sent)
			at += 4
		}
	}
	return next
}

// beaten takes what a beat found of one ticket.
func (q *queue) beaten(ctx context.Context, c *claim, a answer, at int, sent time.Time) {
	switch token := c.r.Token; a.num(at) {
	case statusQueued:
		q.claims.stillQueued(token, sent)
	case statusGranted:
		_, news := q.claims.give(token, award{
			fence: uint64(a.num(at + 1)), //nolint:gosec // below 2^53
			slot:  int(a.num(at + 2)),
			sent:  sent,
			left:  time.Duration(a.num(at+3)) * time.Millisecond,
		})
		if news {
			q.listen(ctx)
		}
	default:
		q.requeue(ctx, token)
	}
}

// listen looks whether the server still knows this process as a listener, after
// a beat has found a grant that no push had told of: a subscription may be with
// a server that was the master once.
func (q *queue) listen(ctx context.Context) {
	if last := q.listened.Load(); time.Since(time.Unix(0, last)) < time.Second ||
		!q.listened.CompareAndSwap(last, time.Now().UnixNano()) || !q.scripts.counted {
		return
	}
	o, err := q.send(ctx, "pubsub", q.inbox.name, func(bool) *goredis.Cmd {
		return goredis.NewCmd(context.Background(), "pubsub", "numsub", q.inbox.name)
	})
	if err != nil {
		return
	}
	if a, err := check(o.reply, 2); err == nil && a.num(1) == 0 {
		q.inbox.deaf()
	}
}
