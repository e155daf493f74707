//go:build !linux && !darwin

package private

import "net"

// Supported reports that the system can tell who connects.
const Supported = false

// PeerOf asks the system who is at the other end of a Unix socket.
func PeerOf(net.Conn) (Peer, error) { return Peer{}, ErrUnsupported }
