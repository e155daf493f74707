package boot

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

var errDraining = errors.New("the listener is draining")

// queueTime is how long a draining listener goes on accepting: the connections
// that the kernel has completed were promised an answer.
const queueTime = 50 * time.Millisecond

// listener can end without refusing the connections that wait in its queue.
type listener struct {
	*net.TCPListener
	draining atomic.Bool
}

func listen(addr string) (*listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &listener{TCPListener: l.(*net.TCPListener)}, nil
}

// Accept returns errDraining, which is no timeout to net/http, when the queue
// has been emptied.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.TCPListener.Accept()
	if err != nil && l.draining.Load() {
		return nil, errDraining
	}
	return conn, err
}

// drain has Accept end once the queue is empty.
func (l *listener) drain() {
	l.draining.Store(true)
	_ = l.SetDeadline(time.Now().Add(queueTime)) // fails on a closed listener, which is drained
}

// silence is how long a new connection may say nothing before it is taken for
// one that a browser opened in advance.
const silence = 500 * time.Millisecond

// connections knows which connections of a server are in use, which
// http.Server.Shutdown alone does not: it closes those that have been accepted
// and not been read from.
type connections struct {
	mu   sync.Mutex // guards open
	open map[net.Conn]connection
}

type connection struct {
	state http.ConnState
	since time.Time
}

// track is an http.Server's ConnState.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[net.Conn]connection{}
	}
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	default:
		c.open[conn] = connection{state, time.Now()}
	}
}

// busy counts the connections that are being served or have just come.
func (c *connections) busy() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		if conn.state == http.StateActive || conn.state == http.StateNew && time.Since(conn.since) < silence {
			n++
		}
	}
	return n
}

// silent returns the connections that were opened and never used.
func (c *connections) silent() (all []net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, is := range c.open {
		if is.state == http.StateNew {
			all = append(all, conn)
		}
	}
	return all
}

// quiet waits until no connection is busy.
func (c *connections) quiet(ctx context.Context) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for c.busy() > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
