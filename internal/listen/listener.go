package listen

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

var errDraining = errors.New("the listener is draining")

// queueTime is how long a draining listener goes on accepting. Connections that
// the kernel has established must get an answer. If the kernel can refuse new
// connections meanwhile, this time also lets pending ones complete, unless
// their clients are too far away.
const (
	queueTime = 100 * time.Millisecond
	lastLook  = 10 * time.Millisecond // additional time for connections in the queue of a busy machine
)

// Listener can stop without refusing the connections in its queue.
type Listener struct {
	*net.TCPListener
	conns    *connections
	room     *room         // nil for no limit
	queue    time.Duration // how long it goes on accepting while it drains
	others   func() bool   // whether other processes go on accepting; nil if there are none
	draining atomic.Bool
	left     atomic.Bool // whether other processes have taken over the queue
}

// Listen opens addr.
func Listen(addr string) (*Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Listener{TCPListener: l.(*net.TCPListener)}, nil
}

// Inherited returns the listener that another process has passed. others reports
// whether other processes go on accepting from it.
func Inherited(l *net.TCPListener, others func() bool) *Listener {
	return &Listener{TCPListener: l, others: others}
}

// TurnAway makes the kernel refuse new connections.
func (l *Listener) turnAway() error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = TurnAway(fd) }); err != nil {
		return err
	}
	return failed
}

// Accept returns errDraining when a draining listener's queue is empty, that
// is, when no connection has arrived for a moment. net/http does not treat
// errDraining as a timeout.
func (l *Listener) Accept() (net.Conn, error) {
	bounded := l.room.enter()
	c, err := l.accept()
	if err != nil {
		if bounded {
			l.room.leave()
		}
		return nil, err
	}
	return l.accepted(c, bounded), nil
}

func (l *Listener) accept() (net.Conn, error) {
	tcp, err := l.AcceptTCP()
	if err != nil && l.left.Load() {
		return nil, errDraining
	}
	if err != nil && l.draining.Load() {
		_ = l.SetDeadline(time.Now().Add(lastLook)) // fails on a closed listener, as do the next calls
		if tcp, err = l.AcceptTCP(); err != nil {
			return nil, errDraining
		}
	}
	if err != nil {
		return nil, err
	}
	return tcp, nil
}

// drain makes Accept end once the queue is empty, or at once if other processes
// go on accepting from the queue.
func (l *Listener) drain() {
	l.room.lift()
	if l.others != nil && l.others() {
		l.left.Store(true)
		_ = l.SetDeadline(time.Now())
		return
	}
	l.draining.Store(true)
	_ = l.turnAway()                           // otherwise connections of the last moment are lost
	_ = l.SetDeadline(time.Now().Add(l.queue)) // fails on a closed listener, which is drained
}
