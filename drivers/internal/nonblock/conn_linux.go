//go:build linux && !race

package nonblock

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// Conn wraps a TCP or Unix connection, and owns it from then on. Read and Write do
// not announce their system calls to the scheduler; errors, deadlines and
// concurrency stay the same. The result is a [syscall.Conn]. Conn returns any
// other connection unchanged.
func Conn(conn net.Conn) net.Conn {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return conn
	}
	system := conn.(syscall.Conn)
	raw, err := system.SyscallConn()
	if err != nil {
		return conn // closed: each call fails
	}
	s := &socket{Conn: conn, system: system}
	s.in = direction{name: "read", call: syscall.SYS_READ, wait: raw.Read}
	s.out = direction{name: "write", call: syscall.SYS_WRITE, wait: raw.Write}
	s.in.once, s.out.once = s.in.attempt, s.out.attempt
	return s
}

// Write writes a part of p to the descriptor of a socket that does not block, and
// returns its length. A socket without room returns syscall.EAGAIN.
func Write(fd uintptr, p []byte) (int, error) {
	n, errno := move(syscall.SYS_WRITE, fd, p)
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}

func move(call, fd uintptr, p []byte) (int, syscall.Errno) {
	if len(p) == 0 {
		return 0, 0
	}
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(min(len(p), most)))
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}

type socket struct {
	net.Conn
	system  syscall.Conn // the same
	in, out direction
}

// direction is one direction of a socket.
type direction struct {
	name string
	call uintptr
	wait func(func(fd uintptr) bool) error // calls its argument until it returns true
	once func(fd uintptr) bool             // attempt, made once so that a call allocates nothing

	mu    sync.Mutex // serialises the callers of one direction
	p     []byte
	n     int
	errno syscall.Errno
}

// attempt reports whether the call has ended: bytes moved, or it failed.
func (d *direction) attempt(fd uintptr) bool {
	d.n, d.errno = move(d.call, fd, d.p)
	return d.errno != syscall.EAGAIN
}

// moveLocked moves a part of p, and waits until that is possible.
func (d *direction) moveLocked(p []byte) (int, error) {
	d.p = p
	err := d.wait(d.once)
	d.p = nil
	if err != nil {
		if inner, ok := errors.AsType[*net.OpError](err); ok { // it names a raw call, and one side only
			err = inner.Err
		}
		return 0, err
	}
	if d.errno != 0 {
		return 0, os.NewSyscallError(d.name, d.errno)
	}
	return d.n, nil
}

// Read implements [net.Conn].
func (s *socket) Read(p []byte) (int, error) {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	n, err := s.in.moveLocked(p)
	switch {
	case err != nil:
		return 0, s.failed(&s.in, err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements [net.Conn].
func (s *socket) Write(p []byte) (written int, err error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	for {
		n, err := s.out.moveLocked(p[written:])
		written += n
		if err != nil {
			return written, s.failed(&s.out, err)
		}
		if written == len(p) {
			return written, nil
		}
	}
}

func (s *socket) failed(d *direction, err error) error {
	return &net.OpError{Op: d.name, Net: s.LocalAddr().Network(), Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}

// SyscallConn implements [syscall.Conn].
func (s *socket) SyscallConn() (syscall.RawConn, error) { return s.system.SyscallConn() }
