package listen

import (
	"math"

	"golang.org/x/sys/unix"
)

// TurnAway makes the kernel refuse new connections and complete pending ones.
// It binds the listener to an interface that does not exist, from which no
// connection request can come. Closing a queue while it fills would instead
// reset connections that their clients consider established.
//
// TurnAway requires Linux 5.7, or CAP_NET_RAW.
func TurnAway(fd uintptr) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, math.MaxInt32)
}
