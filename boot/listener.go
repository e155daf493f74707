package boot

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

var errDraining = errors.New("the listener is draining")

// queueTime is how long a draining listener goes on accepting: what the kernel
// has connected was promised an answer. Where new connections can be kept away
// meanwhile, those under way complete, unless their clients are further off.
const (
	queueTime = 100 * time.Millisecond
	lastLook  = 10 * time.Millisecond // then, for who has waited in the queue of a busy machine
)

// listener can end without refusing the connections that wait in its queue.
type listener struct {
	*net.TCPListener
	conns    *connections
	room     *room         // nil for no bound
	queue    time.Duration // for which it goes on accepting
	others   func() bool   // whether other processes go on accepting; nil where there are none
	draining atomic.Bool
	left     atomic.Bool // to the others, with all that is in the queue
}

func listen(addr string) (*listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &listener{TCPListener: l.(*net.TCPListener)}, nil
}

// turnAway keeps new connections from the queue.
func (l *listener) turnAway() error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = turnAway(fd) }); err != nil {
		return err
	}
	return failed
}

// Accept returns errDraining, which is no timeout to net/http, when the queue
// has been emptied: when nobody has come out of it for a moment.
func (l *listener) Accept() (net.Conn, error) {
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

func (l *listener) accept() (net.Conn, error) {
	tcp, err := l.AcceptTCP()
	if err != nil && l.left.Load() {
		return nil, errDraining
	}
	if err != nil && l.draining.Load() {
		_ = l.SetDeadline(time.Now().Add(lastLook)) // fails on a closed listener, and so does what follows
		if tcp, err = l.AcceptTCP(); err != nil {
			return nil, errDraining
		}
	}
	if err != nil {
		return nil, err
	}
	return tcp, nil
}

// drain has Accept end once the queue is empty, or at once if others go on
// accepting what is in it.
func (l *listener) drain() {
	l.room.lift()
	if l.others != nil && l.others() {
		l.left.Store(true)
		_ = l.SetDeadline(time.Now())
		return
	}
	l.draining.Store(true)
	_ = l.turnAway()                           // without it, what connects in the last moment is lost
	_ = l.SetDeadline(time.Now().Add(l.queue)) // fails on a closed listener, which is drained
}
