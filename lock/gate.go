package lock

import (
	"context"
	"sync"
	"sync/atomic"
)

// gate counts who is inside a Locker: calls that wait, and leases that are
// held or being released. Close shuts it and waits until it is empty.
type gate struct {
	inside atomic.Int64
	closed atomic.Bool

	// closing ends when the gate is shut; waiters end with it.
	closing context.Context
	shutNow context.CancelFunc

	once  sync.Once
	empty chan struct{} // closed when the gate is shut and nobody is inside
}

func (g *gate) init() {
	g.closing, g.shutNow = context.WithCancel(context.Background())
	g.empty = make(chan struct{})
}

// enter says whether the caller may come in; who came in must leave once.
func (g *gate) enter() bool {
	g.inside.Add(1)
	if !g.closed.Load() {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	// Both sides change their own word before they read the other's, so at
	// least one of leave and close sees that the gate is shut and empty.
	if g.inside.Add(-1) == 0 && g.closed.Load() {
		g.once.Do(func() { close(g.empty) })
	}
}

func (g *gate) shut() bool { return g.closed.Load() }

// close refuses whoever comes from now on and ends the waiters.
func (g *gate) close() {
	g.closed.Store(true)
	g.shutNow()
	if g.inside.Load() == 0 {
		g.once.Do(func() { close(g.empty) })
	}
}
