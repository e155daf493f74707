package nats

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent returns the number of written bytes that the system still holds,
// because the other side has not acknowledged them: they have not moved (S29).
// It returns 0 if the number is unknown.
func unsent(conn net.Conn) int64 {
	n := 0
	err := control(conn, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		return err
	})
	if err != nil { // a closed one moves nothing
		return 0
	}
	return int64(n)
}

// discardUnsent makes the close of conn discard the bytes that the system has not
// sent. The server could receive them after those of the next connection (S5).
func discardUnsent(conn net.Conn) {
	_ = control(conn, func(fd int) error { // a closed one sends nothing
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
}

func control(conn net.Conn, call func(fd int) error) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if done := raw.Control(func(fd uintptr) { err = call(int(fd)) }); done != nil {
		return done
	}
	return err
}
