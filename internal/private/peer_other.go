//go:build !linux && !darwin

package private

import "net"

// Supported reports whether the system can identify the user of a connection.
const Supported = false

// PeerOf returns ErrUnsupported: this system does not identify the process at
// the other end of a Unix socket.
func PeerOf(net.Conn) (Peer, error) { return Peer{}, ErrUnsupported }
