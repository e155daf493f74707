package megactx

import "context"

// Go runs fn in the background, on a detached Ctx that outlives the request and
// ends with ErrShuttingDown if fn is not done within the shutdown timeout. Go
// logs the error of fn, or its panic with the stack.
//
// Once the shutdown waits for the tasks, Go starts no more of them: it does not
// call fn, and logs that.
func (c *Ctx) Go(name string, fn func(*Ctx) error) {
	log := c.logger().With("task", name)
	if c.work == nil {
		log.Error("task not begun", "error", ErrNotConfigured)
		return
	}
	d := c.Detach()
	d.Log = log
	c.work.Host.Go(d.Context, name, log, func(std context.Context) error { return fn(d.WithContext(std)) })
}
