//go:build unix

package listen

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pending reports whether the kernel has unread bytes of the connection. It
// does not block, and takes nothing out of the buffer. It returns false for a
// connection without a descriptor.
func pending(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		n, _, _ = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err == nil && n > 0
}

// readable reports whether a read, or an accept, of fd would return at once.
func readable(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n > 0 || err != nil
}
