//go:build linux || darwin

package workers

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// take returns an inherited descriptor as a file that children of this process
// do not inherit.
func take(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return nil, fmt.Errorf("the descriptor %d of the %s was not inherited: %w", fd, name, err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}

// Listener is a socket that workers share. The process that opened it does not
// accept connections from it.
type Listener struct {
	Name string
	fd   int
}

// Listen opens a socket for workers.
func Listen(name string, l *net.TCPListener) (*Listener, error) {
	defer func() { _ = l.Close() }() // the copy is not registered with the poller: this process does not use it
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	shared := &Listener{Name: name}
	var failed error
	err = raw.Control(func(fd uintptr) { shared.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("share listener %s: %w", name, err)
	}
	return shared, nil
}

// Control calls fn with the descriptor.
func (l *Listener) Control(fn func(fd uintptr)) { fn(uintptr(l.fd)) }

// Close closes the supervisor's copy of the socket.
func (l *Listener) Close() error { return os.NewSyscallError("close", unix.Close(l.fd)) }

// file returns a copy of the socket for a child. It does not use
// net.TCPListener.File, which makes the socket blocking for all processes that
// share it.
func (l *Listener) file() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(l.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), l.Name), nil
}
