package boot

import (
	"math"

	"golang.org/x/sys/unix"
)

// turnAway has the kernel refuse new connections and complete those that are
// being made: it binds the listener to an interface that does not exist, which
// no request for a connection comes from. A queue that is closed while it is
// being filled resets connections that their clients take for made.
//
// It takes Linux 5.7, or CAP_NET_RAW.
func turnAway(fd uintptr) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, math.MaxInt32)
}
