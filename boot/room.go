package boot

import (
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Each listener has a bound on its connections, so that the descriptors of the
// process do not run out: without a descriptor nothing is accepted, at no
// listener, and nobody can ask the process what is wrong. Connections beyond the
// bound wait in the queue of the listener.

// The shares of the descriptors that connections may have. The rest is for the
// work of their requests: clients of other services, files, pools.
const (
	appShare = 2  // half of them, for all listeners of apps together
	opsShare = 8  // an eighth of them, at most mostOps
	mostOps  = 64 // connections
	leastOf  = 4  // connections of any listener
)

// appConnections is the bound of each of n listeners of apps; 0 for none.
func appConnections(n int) int {
	return share(descriptors()/appShare, n)
}

func opsConnections() int {
	return min(share(descriptors()/opsShare, 1), mostOps)
}

func share(all, n int) int {
	if all == 0 {
		return 0
	}
	return max(all/max(n, 1), leastOf)
}

// room is what a listener has for connections. A nil room has no limit.
type room struct {
	slots  chan struct{}
	lifted chan struct{} // closed when the listener drains
	conns  *connections
	log    *slog.Logger
	warned atomic.Int64 // when the log was last told, in ns since 1970
}

// fullEvery is the least time between two log lines about a full listener.
const fullEvery = time.Minute

// roomPause is the time between two looks for a connection to close.
const roomPause = 20 * time.Millisecond

// enter waits for room for one more connection, and reports whether it takes room.
// A listener that drains takes all: its clients are promised an answer.
func (b *room) enter() bool {
	if b == nil {
		return false
	}
	for {
		select {
		case b.slots <- struct{}{}:
			return true
		case <-b.lifted:
			return false
		default:
		}
		if b.conns.evict() {
			continue
		}
		b.warn()
		select {
		case b.slots <- struct{}{}:
			return true
		case <-b.lifted:
			return false
		case <-time.After(roomPause):
		}
	}
}

func (b *room) leave() { <-b.slots }

func (b *room) lift() {
	if b != nil {
		close(b.lifted)
	}
}

func (b *room) warn() {
	now, last := time.Now().UnixNano(), b.warned.Load()
	if now-last >= int64(fullEvery) && b.warned.CompareAndSwap(last, now) {
		b.log.Warn("listener full", "connections", cap(b.slots), "reason", "half of the descriptors that the process may have are for connections: raise its limit (ulimit -n, LimitNOFILE)")
	}
}

// evict closes the connection that has waited longest for a request, if that is
// longer than patience, and reports whether it did.
func (c *connections) evict() bool {
	c.mu.Lock()
	var oldest *conn
	for its := range c.open {
		waits := its.state == http.StateNew || its.state == http.StateIdle
		if waits && !its.busy(patience) && its.use.Load() == quiet && (oldest == nil || its.since.Before(oldest.since)) {
			oldest = its
		}
	}
	c.mu.Unlock()
	return oldest != nil && oldest.retire()
}

// limit bounds the connections of the server to n; 0 is no bound. It is called
// before serve.
func (s *server) limit(n int, log *slog.Logger) {
	if n > 0 {
		s.listener.room = &room{slots: make(chan struct{}, n), lifted: make(chan struct{}), conns: &s.conns, log: log.With("listener", s.name)}
	}
}

// accepted makes a connection of the server, which gives its room back when it is
// closed.
func (l *listener) accepted(raw net.Conn, bounded bool) *conn {
	k := &conn{Conn: raw, of: l.conns}
	if bounded {
		k.room.Store(l.room)
	}
	return k
}
