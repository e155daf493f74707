package megatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/lock"
)

// Locks are the locks of the application, seen from outside: a test uses them
// as another process would, and causes their failures.
type Locks struct {
	t      testing.TB
	driver *fragile
	others *lock.Locker // the leases of "another process"

	mu   sync.Mutex // guards held
	held []*lock.Lease
}

func newLocks(t testing.TB) *Locks {
	t.Helper()
	d := newFragile()
	others, err := lock.New(untouched{d.Lock}, lock.Config{Identify: func(_ context.Context, h *lock.Holder) {
		h.App, h.Host, h.PID = "another", "elsewhere", 1
	}})
	if err != nil { // the zero Config is valid
		t.Fatal(err)
	}
	l := &Locks{t: t, driver: d, others: others}
	t.Cleanup(func() {
		if err := others.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close the locks of the test: %v", err)
		}
	})
	return l
}

// patience is the timeout of a Kit's waits.
const patience = 5 * time.Second

// Hold takes key away from the application, as another process would, until the
// returned function is called, the test ends, or somebody forces the key. It waits
// for a holder inside the application to finish.
func (l *Locks) Hold(key string, opts ...lock.Option) (release func()) {
	l.t.Helper()
	lease, err := l.others.Acquire(l.t.Context(), key, append([]lock.Option{lock.Wait(patience)}, opts...)...)
	if err != nil {
		l.t.Fatalf("hold %q: %v", key, err)
	}
	l.mu.Lock()
	l.held = append(l.held, lease)
	l.mu.Unlock()
	return func() { l.release(lease) }
}

func (l *Locks) release(lease *lock.Lease) {
	l.t.Helper()
	if err := lease.Release(); err != nil && !errors.Is(err, lock.ErrLost) {
		l.t.Errorf("release %q, held by the test: %v", lease.Key(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = slices.DeleteFunc(l.held, func(h *lock.Lease) bool { return h == lease })
}

// letGo releases the leases that the test still holds.
func (l *Locks) letGo() {
	l.t.Helper()
	l.mu.Lock()
	held := slices.Clone(l.held)
	l.mu.Unlock()
	for _, lease := range held {
		l.release(lease)
	}
}

// Expire ends every lease of key, as a partition does in time: the lease's
// context ends with a cause that is lock.ErrLost, and the next waiter gets the
// key. It fails the test if key has no lease. A slot of a pool is left dirty, with the
// reason lock.LeftForced.
func (l *Locks) Expire(key string) {
	l.t.Helper()
	n, err := l.driver.expire(key)
	switch {
	case err != nil:
		l.t.Errorf("expire %q: %v", key, err)
	case n == 0:
		l.t.Errorf("expire %q: nobody holds it", key)
	}
}

// Force ends every lease of key, as an operator's forced release does, and
// returns their number.
func (l *Locks) Force(key, reason string) int {
	l.t.Helper()
	n, err := l.others.ForceRelease(l.t.Context(), key, reason)
	if err != nil {
		l.t.Errorf("force %q: %v", key, err)
	}
	return n
}

// Break makes the backend of the locks unreachable for the application until
// Mend is called: lock operations, also those that wait, return
// lock.ErrUnavailable, and held leases are lost when they expire.
func (l *Locks) Break() { l.driver.breakDown() }

// Mend makes the backend reachable again after Break.
func (l *Locks) Mend() { l.driver.mend() }

// State returns the holders and waiters of key.
func (l *Locks) State(key string) lock.State {
	l.t.Helper()
	state, err := l.others.Inspect(l.t.Context(), key)
	if err != nil {
		l.t.Fatalf("inspect %q: %v", key, err)
	}
	return state
}

// AwaitHolder waits until key has a holder.
func (l *Locks) AwaitHolder(key string) {
	l.t.Helper()
	l.await(key, "a holder", func(s lock.State) bool { return len(s.Holders) > 0 })
}

// AwaitWaiters waits until key has n waiters.
func (l *Locks) AwaitWaiters(key string, n int) {
	l.t.Helper()
	l.await(key, fmt.Sprintf("%d waiters", n), func(s lock.State) bool { return len(s.Waiters) == n })
}

// await polls until seen returns true. No event reports a change of a lock's
// queue to an observer, and under synctest polling costs no time.
func (l *Locks) await(key, what string, seen func(lock.State) bool) {
	l.t.Helper()
	for began := time.Now(); !seen(l.State(key)); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			s := l.State(key)
			l.t.Fatalf("lock %q: waited %v for %s; it has %d holders %v and %d waiters %v", key, patience, what, len(s.Holders), s.Holders, len(s.Waiters), s.Waiters)
		}
	}
}
