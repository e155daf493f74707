//go:build linux || darwin

package private

import (
	"fmt"
	"net"
)

// PeerOf returns the user and the process at the other end of a Unix socket, as
// the system reports them.
func PeerOf(conn net.Conn) (Peer, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("%T is not a connection of a Unix socket", conn)
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var p Peer
	var asked error
	if err := raw.Control(func(fd uintptr) { p, asked = credentials(int(fd)) }); err != nil {
		return Peer{}, err
	}
	if asked != nil {
		return Peer{}, fmt.Errorf("identify the peer: %w", asked)
	}
	return p, nil
}
