package lock

import (
	"context"
	"sync"
	"sync/atomic"
)

// gate counts the users of a Locker: waiting calls, their tickets, and leases that
// are held or being released. Close shuts it and waits until it is empty.
type gate struct {
	inside atomic.Int64
	closed atomic.Bool

	// closing ends when the gate is shut. Waiting calls end with it.
	closing context.Context
	shutNow context.CancelFunc

	once  sync.Once
	empty chan struct{} // closed when the gate is shut and empty
}

func (g *gate) init() {
	g.closing, g.shutNow = context.WithCancel(context.Background())
	g.empty = make(chan struct{})
}

// enter counts the caller and returns true, or returns false if the gate is
// shut. After true, the caller must call leave once.
func (g *gate) enter() bool {
	g.inside.Add(1)
	if !g.closed.Load() {
		return true
	}
	g.leave()
	return false
}

// stay counts another user on behalf of one that is inside. The other one must call
// leave once, too.
func (g *gate) stay() { g.inside.Add(1) }

func (g *gate) leave() {
	// leave and close each write their own variable before they read the
	// other's, so at least one of them sees that the gate is shut and empty.
	if g.inside.Add(-1) == 0 && g.closed.Load() {
		g.once.Do(func() { close(g.empty) })
	}
}

func (g *gate) shut() bool { return g.closed.Load() }

// close shuts the gate and ends the waiters.
func (g *gate) close() {
	g.closed.Store(true)
	g.shutNow()
	if g.inside.Load() == 0 {
		g.once.Do(func() { close(g.empty) })
	}
}
