package redis

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"

	"github.com/megaframework/mega/lock/driver"
)

// cluster is the backend of a Redis Cluster: one wire for each master, so that
// a master that hangs does not delay calls to the others. The client itself
// follows the redirection of a call that is answered by MOVED or ASK.
type cluster struct {
	client *goredis.ClusterClient
	moving *moving
	// reconnected is called when the server of a key may be another one, and cut when a
	// connection has ended. They are set before the first call.
	reconnected, cut func()

	mu     sync.Mutex // guards the fields below; not held over I/O
	wires  map[*goredis.Client]route
	closed bool

	leaving sync.WaitGroup // the wires to masters that have left
}

// route is the wire to a master, which serves key at least.
type route struct {
	*wire.Wire
	key string
}

func newCluster(client *goredis.ClusterClient) *cluster {
	return &cluster{client: client, moving: newMoving(), reconnected: func() {}, cut: func() {}, wires: map[*goredis.Client]route{}}
}

func (c *cluster) do(ctx context.Context, key string, args []string, limit time.Duration) (any, bool, error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, again, err := c.ask(bounded, ctx, key, args, limit)
	if !goredis.HasErrorPrefix(err, "TRYAGAIN ") {
		return reply, again, err
	}
	source, lost := c.client.MasterForKey(bounded, key)
	if lost != nil {
		return nil, again, err
	}
	reply, err = c.moving.do(bounded, source, args, err)
	return reply, again, err
}

func (c *cluster) ask(bounded, ctx context.Context, key string, args []string, limit time.Duration) (any, bool, error) {
	start := time.Now()
	master, err := c.client.MasterForKey(bounded, key)
	if err != nil {
		c.client.ReloadState(bounded)
		return nil, false, err
	}
	w, fresh, err := c.wire(master, key)
	if err != nil {
		return nil, false, err
	}
	if fresh {
		c.prune(bounded, master)
	}
	reply, err := w.Do(ctx, args, limit-time.Since(start))
	switch {
	case err == nil:
		return reply, false, nil
	case isGone(err), errors.Is(err, driver.ErrClosed):
		// The client or another call has dropped that master; after
		// Close, follow returns the error.
		c.forget(master)
		return c.follow(ctx, args, limit-time.Since(start))
	case goredis.HasErrorPrefix(err, "TRYAGAIN "):
		return nil, false, err
	case isMoved(err):
		if goredis.HasErrorPrefix(err, "CLUSTERDOWN ") {
			c.client.ReloadState(bounded) // the server may have left; the client reloads by itself after MOVED only
		}
		return c.follow(ctx, args, limit-time.Since(start))
	case judge(err) == unknown, judge(err) == refused:
		c.client.ReloadState(bounded) // the slot may have another master by now
	}
	return nil, false, err
}

// follow lets the client find the master of the key. It retries by itself.
func (c *cluster) follow(ctx context.Context, args []string, limit time.Duration) (any, bool, error) {
	w, _, err := c.wire(nil, "")
	if err != nil {
		return nil, false, err
	}
	reply, err := w.Do(ctx, args, limit)
	return reply, true, err
}

// isGone reports whether the client has closed its connections to a node that left
// the Cluster.
func isGone(err error) bool { return err == goredis.ErrClosed } //nolint:errorlint // it is not wrapped

// wire returns the wire to the master of key, and reports whether it is a new one.
// For nil it returns the wire that follows redirections.
func (c *cluster) wire(master *goredis.Client, key string) (w *wire.Wire, fresh bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, driver.ErrClosed
	}
	if r, ok := c.wires[master]; ok {
		return r.Wire, false, nil
	}
	if master == nil {
		w = wire.New(c.client, nil)
	} else {
		w = wire.New(master, nil)
		w.OnReconnect(c.reconnected, c.cut)
	}
	c.wires[master] = route{w, key}
	return w, true, nil
}

// prune forgets the masters that another one has replaced. No call would find
// those that have left closed: calls go to the new one. L18
func (c *cluster) prune(ctx context.Context, fresh *goredis.Client) {
	c.mu.Lock()
	others := maps.Clone(c.wires)
	c.mu.Unlock()
	for master, r := range others {
		if master == nil || master == fresh {
			continue
		}
		if now, err := c.client.MasterForKey(ctx, r.key); err == nil && now != master {
			c.forget(master)
		}
	}
}

// forget ends the wire to a master that has left.
func (c *cluster) forget(master *goredis.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.wires[master]; ok && !c.closed {
		delete(c.wires, master)
		r.Close()
		c.leaving.Go(r.Wait)
		c.reconnected() // its successor may know less
	}
}

func (c *cluster) home(ctx context.Context, key string) any {
	master, _ := c.client.MasterForKey(ctx, key) // a call with key reports the error
	return master
}

// together is 1: only the keys of one lock share a hash slot.
func (c *cluster) together() int { return 1 }

func (c *cluster) onReconnect(fn, cut func()) { c.reconnected, c.cut = fn, cut }

func (c *cluster) repeats() bool { return c.client.Options().MaxRetries > 0 }

func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, w := range c.wires { // the forgotten ones are closed
		w.Close()
	}
	_ = c.moving.close()
}

func (c *cluster) wait() {
	for _, w := range c.wires { // after close they stay the same
		w.Wait()
	}
	c.leaving.Wait()
}
