//go:build unix

package nats

import (
	"errors"
	"net"
	"syscall"
)

// nonBlocking writes to a connection what the system takes at once. One
// goroutine at a time may use it, and nobody else may write meanwhile.
type nonBlocking struct {
	conn  syscall.RawConn
	try   func(fd uintptr) bool
	batch []byte
	n     int
	err   error
}

// newNonBlocking returns nil if conn is not of the system's.
func newNonBlocking(conn net.Conn) *nonBlocking {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	w := &nonBlocking{conn: raw}
	w.try = w.once
	return w
}

func (w *nonBlocking) write(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	w.batch, w.n, w.err = b, 0, nil
	err = w.conn.Write(w.try)
	w.batch = nil
	if err != nil {
		return 0, err
	}
	return w.n, w.err
}

// once is done whatever comes of it: it does not wait for room.
func (w *nonBlocking) once(fd uintptr) bool {
	n, err := syscall.Write(int(fd), w.batch)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Write(int(fd), w.batch)
	}
	w.n = max(n, 0)
	if !errors.Is(err, syscall.EAGAIN) {
		w.err = err
	}
	return true
}
