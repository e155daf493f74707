//go:build linux || darwin

package cluster

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pair returns the two ends of a new connection: one for a hub in this process,
// and one for the child process that inherits it, which opens it with
// [Inherited]. Other children inherit neither end.
func Pair() (here net.Conn, there *os.File, err error) {
	fds, err := pair()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	there = os.NewFile(uintptr(fds[1]), "hub")
	if here, err = connOf(fds[0]); err != nil {
		_ = there.Close() // err is more specific
		return nil, nil, err
	}
	return here, there, nil
}

// Inherited returns the connection that the process inherited at fd. Processes
// that this one starts do not inherit it.
func Inherited(fd int) (net.Conn, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return nil, fmt.Errorf("descriptor %d was not inherited: %w", fd, err)
	}
	syscall.CloseOnExec(fd)
	return connOf(fd)
}

// connOf returns the connection at fd, which it takes over.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "hub")
	defer func() { _ = f.Close() }() // FileConn has made a copy
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is no connection: %w", fd, err)
	}
	return conn, nil
}

// pair makes two connected sockets that no child inherits by accident. Some
// systems cannot set that in the call that makes the sockets; on these, pair
// prevents the start of a process in between.
func pair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return fds, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	return fds, nil
}
