package lock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/internal/circle"
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

// beginWait adds the wait of c on ctx, which lasts for left at most (negative or Forever
// for no limit) and which end ends early. It returns nil if c can be in no
// circle. It breaks every circle that the wait completes, and returns an error
// if this wait is the one that gives up.
func (l *Locker) beginWait(ctx context.Context, c *call, left time.Duration, end func(error)) (*circle.Wait, error) {
	if left == 0 || c.slots > 1 || c.pool != nil {
		return nil, nil
	}
	held := l.heldOn(ctx)
	if len(held) == 0 {
		return nil, nil
	}
	w := &circle.Wait{Key: c.key, Held: held, Site: siteOfWait(c.forwarded), End: end}
	if left > 0 && left != Forever {
		w.Ends = time.Now().Add(left)
	}
	if at, ok := ctx.Deadline(); ok && (w.Ends.IsZero() || at.Before(w.Ends)) {
		w.Ends = at
	}
	for _, victim := range l.circles.Add(w) {
		err := l.endWait(victim)
		if victim == w {
			return nil, err
		}
		victim.End(err)
	}
	return w, nil
}

// endWait ends w, which may be nil. It returns the error with which w gave up.
func (l *Locker) endWait(w *circle.Wait) error {
	if w == nil {
		return nil
	}
	broken := l.circles.Finish(w)
	if broken == nil {
		return nil
	}
	e := &DeadlockError{}
	holds := broken[len(broken)-1].Key
	for _, w := range broken {
		e.Circle = append(e.Circle, DeadlockWait{Key: w.Key, Site: w.Site, Holds: holds})
		holds = w.Key
	}
	return e
}

// carried is a Lease in the search for circles.
type carried Lease

func (c *carried) Key() string { return c.hold.grant.Key }
func (c *carried) Live() bool  { return (*Lease)(c).peekLive() }

// heldOn returns the leases of l on ctx.
func (l *Locker) heldOn(ctx context.Context) (all []circle.Lease) {
	for _, lease := range LeasesFrom(ctx) {
		if lease.hold.locker == l {
			all = append(all, (*carried)(lease))
		}
	}
	return all
}
