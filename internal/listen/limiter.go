package listen

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Each listener limits its connections, so that the process does not run out of
// descriptors. Without a descriptor no listener accepts connections, and the
// probes do not respond either. Connections above the limit wait in the queue
// of the listener.

// The shares of the descriptors for connections. The rest is for the work of
// their requests: clients of other services, files, pools.
const (
	appShare = 2  // half of them, for all listeners of apps together
	opsShare = 8  // an eighth of them, at most mostOps
	mostOps  = 64 // connections
	leastOf  = 4  // minimum of connections of any listener
)

// AppConnections returns the limit of each of n listeners of apps; 0 means
// unlimited.
func AppConnections(n int) int {
	return share(descriptors()/appShare, n)
}

// OpsConnections returns the limit of the ops listener; 0 means unlimited.
func OpsConnections() int {
	return min(share(descriptors()/opsShare, 1), mostOps)
}

func share(all, n int) int {
	if all == 0 {
		return 0
	}
	return max(all/max(n, 1), leastOf)
}

// limiter limits the connections of a listener. A nil limiter has no limit.
type limiter struct {
	slots  chan struct{}
	lifted chan struct{} // closed when the listener drains
	conns  *connections
	log    *slog.Logger
	warned atomic.Int64 // time of the last log message, in ns since 1970
}

// fullEvery is the minimum time between two log messages about a full listener.
const fullEvery = time.Minute

// evictPause is the interval between two checks for a closed connection.
const evictPause = 20 * time.Millisecond

// acquire waits for a slot for one more connection, and reports whether the
// connection occupies a slot, which release returns. A listener that drains
// accepts all connections: its clients are promised a response.
func (l *limiter) acquire() bool {
	if l == nil {
		return false
	}
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	for {
		if !l.conns.evict() {
			l.warn()
		}
		select {
		case l.slots <- struct{}{}:
			return true
		case <-l.lifted:
			return false
		case <-time.After(evictPause):
		}
	}
}

func (l *limiter) release() { <-l.slots }

// lift ends the limit: acquire no longer waits. Call it once.
func (l *limiter) lift() {
	if l != nil {
		close(l.lifted)
	}
}

// warn logs that the listener is full, at most once in fullEvery.
func (l *limiter) warn() {
	now, last := time.Now().UnixNano(), l.warned.Load()
	if now-last >= int64(fullEvery) && l.warned.CompareAndSwap(last, now) {
		l.log.Warn("listener full", "connections", cap(l.slots), "reason", "connections use half of the descriptors of the process; raise its limit (ulimit -n, LimitNOFILE)")
	}
}

// evict ends the connection that has waited longest for a request, if longer
// than patience, and reports whether there is one. The connection closes soon,
// unless a request arrives at the last moment.
func (c *connections) evict() bool {
	var oldest *conn
	var since time.Time
	c.all(func(k *conn) bool {
		waits := k.state == waiting && k.due.IsZero() && time.Since(k.since) > patience
		if waits && (oldest == nil || k.since.Before(since)) {
			oldest, since = k, k.since
		}
		return false
	})
	if oldest == nil {
		return false
	}
	oldest.expire(patience)
	return true
}

// Limit limits the connections of the server to n; 0 means unlimited. Call it
// before Serve.
func (s *Server) Limit(n int, log *slog.Logger) {
	if n > 0 {
		s.listener.limiter = &limiter{slots: make(chan struct{}, n), lifted: make(chan struct{}), conns: s.conns, log: log.With("listener", s.name)}
	}
}
