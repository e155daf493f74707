package redis

import (
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// connection is the client and the backend of one or two drivers. The last driver
// that leaves closes them.
type connection struct {
	client  goredis.UniversalClient
	backend backend
	owned   bool // the client is closed with the backend

	mu    sync.Mutex // guards the field below
	users int
}

// join adds a driver, unless the connection has ended.
func (c *connection) join() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users == 0 {
		return false
	}
	c.users++
	return true
}

// leave removes a driver. It waits for the goroutines of the last one.
func (c *connection) leave() {
	c.mu.Lock()
	c.users--
	last := c.users == 0
	c.mu.Unlock()
	if !last {
		return
	}
	c.backend.close()
	if c.owned {
		_ = c.client.Close() // its only error is that it was closed
	}
	c.backend.wait()
}
