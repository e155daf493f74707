package bus

import (
	"context"
	"sync"
	"time"
)

// crew owns the background goroutines of a Bus: those that tell events and end
// subscriptions. Its close ends their context and waits for them.
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

// do runs fn in a goroutine of its own, and says whether it will: a stopped
// crew takes no work.
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

// seal tells a close that nobody works any more. The caller holds c.mu.
func (c *crew) seal() {
	if c.stopped && c.working == 0 {
		close(c.empty)
	}
}

// close takes no more work, and waits for what is being done, but for no
// longer than grace: an Observer may hang. It says whether all is done.
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
