package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// glance is one look at a key for all the waiters of this process that give up
// at about the same time, so that they can say who was in the way.
type glance struct {
	locker *Locker
	key    string
	begun  instant

	once  sync.Once
	done  chan struct{} // closed when the look is over; state and err are set before
	state State
	err   error
}

const (
	glanceFresh = 50 * time.Millisecond  // how long a look may be shared
	glanceBound = driver.CallTimeout     // how long a waiter whose wait has passed waits for it
	farewell    = 200 * time.Millisecond // how long a waiter whose context has ended does
)

// look returns the newest glance if it is under way or fresh, or a new one: a key
// has one at a time. The caller holds queues.mu.
func (q *queue) look(l *Locker) *glance {
	now := l.clock.now()
	if g := q.glance; g != nil && (now.sub(g.begun) <= glanceFresh || !g.over()) {
		return g
	}
	q.glance = &glance{locker: l, key: q.key, begun: now, done: make(chan struct{})}
	return q.glance
}

// over reports whether the look is over.
func (g *glance) over() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// result returns what the look saw, if it is over within bound.
func (g *glance) result(bound time.Duration) (State, error) {
	g.once.Do(func() {
		if !g.locker.crew.do(g.inspect) {
			g.err = ErrClosed
			close(g.done)
		}
	})
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-g.done:
		return g.state, g.err
	case <-timer.C:
		return State{}, context.DeadlineExceeded
	}
}

func (g *glance) inspect(ctx context.Context) {
	defer close(g.done)
	ctx, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	g.state, g.err = g.locker.driver.Inspect(ctx, g.key)
}

// complete puts the waiters behind this process's ticket in its place, and the
// lease that was handed on in that of the grant.
func (qs *queues) complete(s State) State {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[s.Key]
	if q == nil {
		return s
	}
	if q.hold != nil {
		q.completeHolder(s.Holders)
	}
	at := len(s.Waiters)
	if q.ticket != nil {
		at = slices.IndexFunc(s.Waiters, func(h Holder) bool { return same(h, q.ticket.request.Holder) })
		if at < 0 {
			return s
		}
		s.Waiters = slices.Delete(s.Waiters, at, at+1)
	}
	// Without a ticket they will be handed the hold, before all others.
	if q.ticket == nil {
		at = 0
	}
	s.Waiters = slices.Insert(s.Waiters, at, q.waiters.holders()...)
	return s
}

// holders returns the holders of s, with the lease that was handed on in the
// place of the grant. Other waiters may share s.
func (qs *queues) holders(s State) []Holding {
	all := slices.Clone(s.Holders)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[s.Key]; q != nil && q.hold != nil {
		q.completeHolder(all)
	}
	return all
}

// completeHolder corrects the holding that is this queue's hold.
func (q *queue) completeHolder(holdings []Holding) {
	first, last := q.hold.grant.Fence, q.hold.grant.Fence+uint64(q.hold.grant.Fences)-1
	for i := range holdings {
		if f := holdings[i].Fence; f >= first && f <= last {
			holdings[i].Holder, holdings[i].Fence = q.holder, first+uint64(q.handed)
		}
	}
}

// same compares what survives the way through a backend: times lose some of
// their digits. A process may have several Lockers, which may ask in the same
// instant, so that it is not enough to compare who and when.
func same(a, b Holder) bool {
	apart := a.Since.Sub(b.Since).Abs()
	a.Since, b.Since = time.Time{}, time.Time{}
	return a == b && apart < time.Millisecond
}

func (ls *list) holders() (all []Holder) {
	for w := ls.first; w != nil; w = w.next {
		all = append(all, w.holder)
	}
	return all
}
