//go:build !linux || race

package nonblock

import "net"

// Conn returns conn.
func Conn(conn net.Conn) net.Conn { return conn }
