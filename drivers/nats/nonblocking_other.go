//go:build !unix

package nats

import "net"

// nonBlocking is not to be had here: the goroutine of a pipe sends everything.
type nonBlocking struct{}

func newNonBlocking(net.Conn) *nonBlocking { return nil }

func (*nonBlocking) write([]byte) (int, error) { return 0, nil }
