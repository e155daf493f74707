//go:build !unix

package protocol

import "net"

// instant writes to a connection without ever waiting for it. This system does
// not support that.
type instant struct{}

func (*instant) open(net.Conn) {}

func (*instant) write([]byte) (int, error) { return 0, nil }
