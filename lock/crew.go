package lock

import (
	"context"
	"sync"
)

// crew owns the background goroutines of a Locker: tickets, renewals and
// clean-ups. close ends their context and waits for them.
type crew struct {
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex // guards stopped: no goroutine starts during the final wait
	stopped bool
	work    sync.WaitGroup
}

func (c *crew) init() { c.ctx, c.stop = context.WithCancel(context.Background()) }

// do runs fn in a new goroutine and returns true. After close it returns false
// and does not run fn.
func (c *crew) do(fn func(ctx context.Context)) bool {
	if !c.begin() {
		return false
	}
	go func() {
		defer c.work.Done()
		fn(c.ctx)
	}()
	return true
}

// begin counts the caller's goroutine as one of the crew until it calls
// work.Done.
func (c *crew) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	c.work.Add(1)
	return true
}

func (c *crew) close() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
}
