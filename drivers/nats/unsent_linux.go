package nats

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent returns the number of written bytes that the system still holds,
// because the other side has not acknowledged them: they have not moved (S29).
// It returns 0 if the number is unknown.
func unsent(conn net.Conn) int64 {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) // a closed one moves nothing
	if err != nil {
		return 0
	}
	return int64(n)
}
