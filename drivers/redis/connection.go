package redis

import (
	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
)

// connection is the client and the backend of a driver.
type connection struct {
	client  goredis.UniversalClient
	feed    *wire.Feed // of the client's subscription; nil with a client of the user
	backend backend
	owned   bool // the client is closed with the backend
}

// close closes both, and waits for their goroutines. It is called once.
func (c *connection) close() {
	c.backend.close()
	if c.owned {
		_ = c.client.Close() // its only error is that it was closed
	}
	c.backend.wait()
}
