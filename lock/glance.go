package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// glance is one Inspect of a key for all waiters of this process that give up
// at about the same time, so that their errors can name the holders.
type glance struct {
	locker *Locker
	key    string
	begun  instant

	once  sync.Once
	done  chan struct{} // closed after the Inspect, when state and err are set
	state State
	err   error
}

const (
	glanceFresh = 50 * time.Millisecond  // how long a result may be shared
	glanceBound = driver.CallTimeout     // the timeout for a waiter whose wait has passed
	farewell    = 200 * time.Millisecond // the timeout for a waiter whose context has ended
)

// look returns the newest glance if it is in progress or fresh, or starts a new
// one: a key has one at a time. The caller holds queues.mu.
func (q *queue) look(l *Locker) *glance {
	now := l.clock.now()
	if g := q.glance; g != nil && (now.sub(g.begun) <= glanceFresh || !g.over()) {
		return g
	}
	q.glance = &glance{locker: l, key: q.key, begun: now, done: make(chan struct{})}
	return q.glance
}

// over reports whether the Inspect has finished.
func (g *glance) over() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// result returns the result of the Inspect, or an error if it takes longer than
// bound, or if ctx or the Locker ends first.
func (g *glance) result(ctx context.Context, bound time.Duration) (State, error) {
	g.once.Do(func() {
		if !g.locker.group.Go(g.inspect) {
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
	case <-ctx.Done():
		return State{}, ctx.Err()
	case <-g.locker.gate.closing.Done():
		return State{}, ErrClosed
	}
}

func (g *glance) inspect(ctx context.Context) {
	defer close(g.done)
	ctx, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	g.state, g.err = g.locker.driver.Inspect(ctx, g.key)
}

// complete replaces this process's ticket by its waiters, and its grant by the
// lease that it was handed on to.
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
	at := 0 // without a ticket: the hold is handed on to them before it goes to other processes
	if q.ticket != nil {
		at = slices.IndexFunc(s.Waiters, func(h Holder) bool { return sameHolder(h, q.ticket.request.Holder) })
		if at < 0 {
			return s
		}
		s.Waiters = slices.Delete(s.Waiters, at, at+1)
	}
	s.Waiters = slices.Insert(s.Waiters, at, q.waiters.holders()...)
	return s
}

// holders returns what is in the way in s, with this process's grant replaced by its
// current lease. Other waiters may share s.
func (qs *queues) holders(s State) []Holding {
	all := slices.Clone(s.InTheWay())
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[s.Key]; q != nil && q.hold != nil {
		q.completeHolder(all)
	}
	return all
}

// handedOn reports whether this process has handed on the lease of key with this
// fence.
func (qs *queues) handedOn(key string, fence uint64) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[key]
	return q != nil && q.hold != nil && q.hold.grant.Reserves(fence) && fence < q.fence()
}

// completeHolder replaces the holding of this queue's hold by its current
// lease.
func (q *queue) completeHolder(holdings []Holding) {
	for i := range holdings {
		if q.hold.grant.Reserves(holdings[i].Fence) {
			holdings[i].Holder, holdings[i].Fence = q.holder, q.fence()
		}
	}
}

// fence returns the fence of the hold's current lease.
func (q *queue) fence() uint64 { return q.hold.grant.Fence + uint64(q.handed) }

// sameHolder compares the fields that a backend preserves exactly; times lose some
// digits. A process may have several Lockers, which may send requests at the
// same instant, so a comparison of process and time is not enough.
func sameHolder(a, b Holder) bool {
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
