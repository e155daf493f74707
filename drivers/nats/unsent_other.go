//go:build !linux

package nats

import "net"

// unsent returns 0: this system does not report the bytes that it still holds.
// Bytes count as moved when the system has accepted them.
func unsent(net.Conn) int64 { return 0 }

// discardUnsent makes the close of conn discard the bytes that the system has not
// sent. The server could receive them after those of the next connection (S5).
func discardUnsent(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = c.SetLinger(0) // a closed one sends nothing
	}
}
