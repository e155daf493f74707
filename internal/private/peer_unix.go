//go:build linux || darwin

package private

import (
	"fmt"
	"net"
)

// PeerOf asks the system who is at the other end of a Unix socket.
func PeerOf(conn net.Conn) (Peer, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("%T is no connection of a Unix socket", conn)
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
		return Peer{}, fmt.Errorf("ask who connects: %w", asked)
	}
	return p, nil
}
