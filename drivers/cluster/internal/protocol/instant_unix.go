//go:build unix

package protocol

import (
	"errors"
	"net"
	"syscall"

	"github.com/megaframework/mega/drivers/internal/nonblock"
)

// instant writes to a connection without ever waiting for it. It is used by
// one goroutine at a time.
type instant struct {
	raw   syscall.RawConn // nil if the connection has no descriptor
	batch []byte
	n     int
	err   error
	once  func(fd uintptr) bool // attempt, made once so that a write allocates nothing
}

func (w *instant) open(conn net.Conn) {
	if c, ok := conn.(syscall.Conn); ok {
		w.raw, _ = c.SyscallConn()
	}
	w.once = w.attempt
}

// write returns how many bytes were written at once, which may be 0. A full
// connection is not an error.
func (w *instant) write(batch []byte) (int, error) {
	if w.raw == nil {
		return 0, nil
	}
	w.batch, w.n, w.err = batch, 0, nil
	err := w.raw.Write(w.once)
	w.batch = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}

// attempt always returns true, so that the runtime does not wait for the
// connection: only the line's goroutine waits.
func (w *instant) attempt(fd uintptr) bool {
	for w.n < len(w.batch) {
		n, err := nonblock.Write(fd, w.batch[w.n:])
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return true
		case err != nil:
			w.err = err
			return true
		}
		w.n += n
	}
	return true
}
