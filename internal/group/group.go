// Package group owns goroutines that work in the background of one object and
// end with it.
package group

import (
	"context"
	"sync"
	"time"
)

// Group is a set of goroutines with one owner, which waits for them. Init comes
// first; then its methods may be called concurrently.
type Group struct {
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex // guards the fields below: no goroutine starts once Close waits
	closed  bool
	running int
	empty   chan struct{} // closed when closed is true and running is 0
}

// Init makes g ready.
func (g *Group) Init() {
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.empty = make(chan struct{})
}

// Context returns the context of the goroutines, which ends with Close.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs fn in a new goroutine and returns true. After Close it returns false
// and does not run fn.
func (g *Group) Go(fn func(ctx context.Context)) bool {
	if !g.Begin() {
		return false
	}
	go func() {
		defer g.Done()
		fn(g.ctx)
	}()
	return true
}

// Ended returns a channel that is closed when Close was called and no goroutine is
// left.
func (g *Group) Ended() <-chan struct{} { return g.empty }

// Begin counts the caller's goroutine as one of the group until it calls Done.
// After Close it returns false and does not count the goroutine.
func (g *Group) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.running++
	return true
}

// Done ends what Begin began.
func (g *Group) Done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.signal()
}

// signal wakes the callers of Close if no goroutine is left. The caller holds
// g.mu.
func (g *Group) signal() {
	if g.closed && g.running == 0 {
		close(g.empty)
	}
}

// Close ends the context, refuses further goroutines, and waits for the running
// ones, for at most grace unless that is negative. It reports whether all of
// them have returned. It may be called again.
func (g *Group) Close(grace time.Duration) bool {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.signal()
	}
	g.mu.Unlock()
	g.stop()
	if grace < 0 {
		<-g.empty
		return true
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-g.empty:
		return true
	case <-timer.C:
	}
	select { // both may be ready, as with a grace of 0
	case <-g.empty:
		return true
	default:
		return false
	}
}
