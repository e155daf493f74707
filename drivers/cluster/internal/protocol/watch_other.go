//go:build !linux

package protocol

import "net"

// watch is the wait for data on a connection without reading it. This system does
// not support that: callers never read.
type watch struct{}

func (*watch) open(net.Conn) bool { return false }

func (*watch) arm() bool { return false }

func (*watch) disarm() {}

func (*watch) wait() {}

func (*watch) wake() {}

func (*watch) close() {}
