package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// DeadlockError is an ErrDeadlock of a call that waited in a circle of waits.
type DeadlockError struct {
	// Circle has the waits of the circle. The first is that of the call that
	// got the error. Each holds the key that the previous one waits for.
	Circle []DeadlockWait
}

// DeadlockWait is one wait of a circle.
type DeadlockWait struct {
	Key   string // the key that the call waits for
	Site  string // file:line of the call
	Holds string // the key of a lease on the context of the call
}

func (e *DeadlockError) Error() string {
	waits := make([]string, len(e.Circle))
	for i, w := range e.Circle {
		waits[i] = fmt.Sprintf("%s waits for %q and holds %q", w.Site, w.Key, w.Holds)
	}
	return "lock: deadlock: " + strings.Join(waits, "; ")
}

// Code returns "lock.deadlock".
func (e *DeadlockError) Code() string { return ErrDeadlock.Code() }

// Is reports whether target is ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// circles finds circles of waits among the calls of a Locker (A5). It has the
// waits of calls whose contexts carry leases: nobody waits for a call without a
// lease, so such a call is in no circle.
//
// The leases on a context never change, so a circle is complete when its last
// wait begins: begin is the only place that searches. The search is exact. A
// wait for a key whose lease is live is not over.
type circles struct {
	// mu guards the fields below. A hold's mutex may be taken under it, never
	// the other way round.
	mu     sync.Mutex
	byKey  map[string][]*nested // by the key that the call waits for
	number uint64               // of waits so far
}

// nested is the wait of a call whose context carries leases.
type nested struct {
	key    string
	held   []*Lease
	site   string      // file:line of the call
	ends   time.Time   // when the wait ends without a lease; zero if never
	number uint64      // in the order of beginning
	end    func(error) // ends the wait with the error
	err    error       // the error, if the wait was ended; guarded by circles.mu
}

// begin adds the wait of c on ctx, which lasts for left at most (negative or Forever
// for no limit) and which end ends early. It returns nil if c can be in no
// circle. It breaks every circle that the wait completes, and returns an error
// if this wait is the one that gives up.
func (l *Locker) begin(ctx context.Context, c *call, left time.Duration, end func(error)) (*nested, error) {
	if left == 0 || c.slots > 1 || c.pool != nil {
		return nil, nil
	}
	held := l.leasesOn(ctx)
	if len(held) == 0 {
		return nil, nil
	}
	n := &nested{key: c.key, held: held, site: siteOfWait(c.forwarded), end: end}
	if left > 0 && left != Forever {
		n.ends = time.Now().Add(left)
	}
	if at, ok := ctx.Deadline(); ok && (n.ends.IsZero() || at.Before(n.ends)) {
		n.ends = at
	}
	for _, victim := range l.circles.add(n) {
		if victim == n {
			return nil, n.err
		}
		victim.end(victim.err)
	}
	return n, nil
}

// leasesOn returns the leases of l on ctx.
func (l *Locker) leasesOn(ctx context.Context) []*Lease {
	return slices.DeleteFunc(LeasesFrom(ctx), func(held *Lease) bool { return held.hold.locker != l })
}

// add adds n, and removes and returns the waits that have to give up.
func (cs *circles) add(n *nested) (victims []*nested) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.number++
	n.number = cs.number
	if cs.byKey == nil {
		cs.byKey = make(map[string][]*nested)
	}
	cs.byKey[n.key] = append(cs.byKey[n.key], n)
	for n.err == nil { // it may complete several circles
		circle := cs.find(n)
		if circle == nil {
			break
		}
		first := slices.MinFunc(circle, (*nested).compare)
		first.err = describe(circle, first)
		cs.remove(first)
		victims = append(victims, first)
	}
	return victims
}

// compare orders waits by their end. On a tie the younger is first.
func (n *nested) compare(m *nested) int {
	switch {
	case n.ends.Equal(m.ends):
		return int(m.number) - int(n.number)
	case n.ends.IsZero():
		return 1
	case m.ends.IsZero():
		return -1
	}
	return n.ends.Compare(m.ends)
}

// find returns a circle of waits that begins with n, or nil. Each wait of it is
// for a key that the previous one holds. The caller holds cs.mu.
func (cs *circles) find(n *nested) []*nested {
	seen := map[*nested]bool{}
	var from func(w *nested) []*nested
	from = func(w *nested) []*nested {
		seen[w] = true
		for _, lease := range w.held {
			key := lease.hold.grant.Key
			waits := cs.byKey[key]
			if len(waits) == 0 || !lease.holds() {
				continue
			}
			if key == n.key && w != n {
				return []*nested{w}
			}
			for _, next := range waits {
				if seen[next] {
					continue
				}
				if rest := from(next); rest != nil {
					return append([]*nested{w}, rest...)
				}
			}
		}
		return nil
	}
	return from(n)
}

// describe returns the error of the wait first of a circle that find returned.
func describe(circle []*nested, first *nested) *DeadlockError {
	e := &DeadlockError{}
	at := slices.Index(circle, first)
	for i := range circle {
		w := circle[(at-i+len(circle))%len(circle)]
		next := circle[(at-i+1+len(circle))%len(circle)]
		e.Circle = append(e.Circle, DeadlockWait{Key: w.key, Site: w.site, Holds: next.key})
	}
	return e
}

// finish removes n, which may be nil, and returns the error that ended it.
func (cs *circles) finish(n *nested) error {
	if n == nil {
		return nil
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if n.err == nil {
		cs.remove(n)
	}
	return n.err
}

// remove removes n. The caller holds cs.mu.
func (cs *circles) remove(n *nested) {
	rest := slices.DeleteFunc(cs.byKey[n.key], func(w *nested) bool { return w == n })
	if len(rest) == 0 { // L18
		delete(cs.byKey, n.key)
		return
	}
	cs.byKey[n.key] = rest
}
