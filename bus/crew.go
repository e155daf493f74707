package bus

import (
	"context"
	"sync"
	"time"
)

// crew owns the background goroutines of a Bus: the ones that report events and
// end subscriptions. Its close ends their context and waits for them.
type crew struct {
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex // guards the fields below
	stopped bool
	working int
	empty   chan struct{} // closed when stopped and nobody works
}

func (c *crew) init() {
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.empty = make(chan struct{})
}

// do runs fn in a new goroutine and reports true, or reports false if the crew
// is stopped.
func (c *crew) do(fn func(ctx context.Context)) bool {
	if !c.begin() {
		return false
	}
	go func() {
		defer c.done()
		fn(c.ctx)
	}()
	return true
}

// begin counts the caller's goroutine as one of the crew until it calls done.
func (c *crew) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	c.working++
	return true
}

func (c *crew) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.working--
	c.seal()
}

// seal wakes a waiting close if no goroutine is left. The caller holds c.mu.
func (c *crew) seal() {
	if c.stopped && c.working == 0 {
		close(c.empty)
	}
}

// close refuses new work, and waits up to grace for the running goroutines,
// since an Observer may hang. It reports whether all have returned.
func (c *crew) close(grace time.Duration) bool {
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		c.seal()
	}
	c.mu.Unlock()
	c.stop()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.empty:
		return true
	case <-timer.C:
		return false
	}
}
