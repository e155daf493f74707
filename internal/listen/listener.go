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
	conns      *connections
	limiter    *limiter        // nil for no limit
	spares     *spares         // nil for none
	queue      time.Duration   // how long it goes on accepting while it drains
	others     func() bool     // whether other processes go on accepting; nil if there are none
	late       <-chan struct{} // closed when the time to drain is over; set before draining
	draining   atomic.Bool
	handedOver atomic.Bool // whether other processes have taken over the queue
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

// turnAway makes the kernel refuse new connections.
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

// ReserveDescriptors makes Accept succeed when the program's own work has used
// up the descriptors of the process. Call it before the listener is in use.
func (l *Listener) ReserveDescriptors() {
	l.spares = &spares{want: spareDescriptors}
	l.spares.refill()
}

// Close closes the listener and its spare descriptors.
func (l *Listener) Close() error {
	l.spares.close()
	return l.TCPListener.Close()
}

// Accept returns errDraining when a draining listener's queue is empty, that
// is, when no connection has arrived for a moment. net/http does not treat
// errDraining as a timeout.
func (l *Listener) Accept() (net.Conn, error) {
	bounded := l.limiter.acquire()
	k, err := l.accept()
	if err != nil {
		if bounded {
			l.limiter.release()
		}
		return nil, err
	}
	if bounded {
		k.limiter.Store(l.limiter)
	}
	return k, nil
}

func (l *Listener) accept() (*conn, error) {
	k, err := l.acceptOne()
	if err != nil && l.handedOver.Load() {
		return nil, errDraining
	}
	for err != nil && l.draining.Load() {
		_ = l.SetDeadline(time.Now().Add(lastLook)) // fails on a closed listener, as do the next calls
		if k, err = l.acceptOne(); err == nil {
			break
		}
		if !outOfDescriptors(err) || !l.queued() {
			return nil, errDraining
		}
		select {
		case <-time.After(sparePause): // requests in flight end, and free their descriptors
		case <-l.late:
			return nil, errDraining
		}
	}
	return k, err
}

// acceptOne accepts a connection, if necessary with a spare descriptor.
func (l *Listener) acceptOne() (*conn, error) {
	for {
		l.spares.refill()
		tcp, err := l.AcceptTCP()
		if err == nil {
			return &conn{Conn: tcp, conns: l.conns}, nil
		}
		if l.spares == nil || !outOfDescriptors(err) {
			return nil, err
		}
		// AcceptTCP fails without a free descriptor, even if no connection
		// waits. A spare one is closed only when it is used at once: otherwise
		// the program would take it.
		if l.queued() && l.spares.spend() {
			if tcp, err = l.AcceptTCP(); err == nil {
				return &conn{Conn: tcp, conns: l.conns, spares: l.spares}, nil
			}
		}
		time.Sleep(sparePause) // a deadline or Close ends the next call
	}
}

// sparePause is the interval between two looks into the queue of a listener in
// a process without a free descriptor. It is shorter than the timeout of any
// probe.
const sparePause = 20 * time.Millisecond

// queued reports whether a connection waits in the queue.
func (l *Listener) queued() (ready bool) {
	raw, err := l.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { ready = readable(fd) })
	return err == nil && ready
}

// drain makes Accept end once the queue is empty, or at once if other processes
// go on accepting from the queue. After the end of ctx it does not wait for
// descriptors.
func (l *Listener) drain(ctx context.Context) {
	l.limiter.lift()
	if l.others != nil && l.others() {
		l.handedOver.Store(true)
		_ = l.SetDeadline(time.Now())
		return
	}
	l.late = ctx.Done()
	l.draining.Store(true)
	_ = l.turnAway()                           // otherwise connections of the last moment are lost
	_ = l.SetDeadline(time.Now().Add(l.queue)) // fails on a closed listener, which is drained
}
