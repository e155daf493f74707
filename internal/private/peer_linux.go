package private

import "golang.org/x/sys/unix"

// Supported reports whether the system can identify the user of a connection.
const Supported = true

func credentials(fd int) (Peer, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	return Peer{UID: int(c.Uid), PID: int(c.Pid)}, nil
}
