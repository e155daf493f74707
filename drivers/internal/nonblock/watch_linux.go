package nonblock

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Watch is the wait for data on a connection without reading it, so that another
// goroutine can read meanwhile. It is an epoll of its own, which reports the
// connection once each time it is armed; the runtime waits for the epoll. Wake and
// Close may be called at any time, the other methods by one goroutine at a time.
type Watch struct {
	conn syscall.RawConn
	file atomic.Pointer[os.File] // the epoll; nil until Open
	raw  syscall.RawConn         // of file
	fd   int                     // of file

	event   syscall.EpollEvent
	op      int
	changed error
	control func(fd uintptr)      // change, made once so that a call allocates nothing
	ready   func(fd uintptr) bool // fired, likewise
}

// Open reports whether there is such a wait for conn. It may be called again.
func (w *Watch) Open(conn net.Conn) bool {
	if w.file.Load() != nil {
		return true
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	_ = syscall.SetNonblock(fd, true) // otherwise the runtime does not wait for it: see below
	file := os.NewFile(uintptr(fd), "epoll")
	w.conn, w.fd, w.control, w.ready = raw, fd, w.change, w.fired
	if w.raw, err = file.SyscallConn(); err == nil {
		err = file.SetReadDeadline(time.Time{}) // an error if the runtime does not wait for it
	}
	w.file.Store(file)
	w.op = syscall.EPOLL_CTL_ADD
	if err != nil || !w.set(0) {
		w.Close()
		w.file.Store(nil)
		return false
	}
	w.op = syscall.EPOLL_CTL_MOD
	return true
}

// oneShot is EPOLLONESHOT, which the package syscall has as a negative number on
// some architectures.
const oneShot = 1 << 30

// Arm makes Wait return when data or the end of the connection arrives, also if
// it is there already. It reports whether it could do that.
func (w *Watch) Arm() bool { return w.set(syscall.EPOLLIN | oneShot) }

// Disarm reverts Arm.
func (w *Watch) Disarm() { w.set(0) }

func (w *Watch) set(events uint32) bool {
	w.event.Events = events
	if err := w.conn.Control(w.control); err != nil {
		return false // the connection is closed
	}
	return w.changed == nil
}

func (w *Watch) change(fd uintptr) {
	w.event.Fd = int32(fd)
	w.changed = syscall.EpollCtl(w.fd, w.op, int(fd), &w.event)
}

// Until sets the time at which the next Wait returns at the latest; the zero time
// means never. It reverts a Wake.
func (w *Watch) Until(t time.Time) { _ = w.file.Load().SetReadDeadline(t) } // a closed file does not wait

// Wait returns true when the connection was armed and has data, and false after Wake
// or Close, or at the time of Until.
func (w *Watch) Wait() bool {
	err := w.raw.Read(w.ready)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.Until(time.Time{}) // the caller then finds why it was woken
	}
	return err == nil
}

func (w *Watch) fired(fd uintptr) bool {
	var events [1]syscall.EpollEvent
	n, err := syscall.EpollWait(int(fd), events[:], 0)
	return n > 0 || err != nil && !errors.Is(err, syscall.EINTR)
}

// Wake makes Wait return, now or the next time. Any goroutine may call it.
func (w *Watch) Wake() {
	if file := w.file.Load(); file != nil {
		_ = file.SetReadDeadline(time.Unix(1, 0)) // a closed file has no waiter
	}
}

// Close frees the watch, and makes Wait return. It may be called again.
func (w *Watch) Close() {
	if file := w.file.Load(); file != nil {
		_ = file.Close() // nothing is written to it
	}
}
