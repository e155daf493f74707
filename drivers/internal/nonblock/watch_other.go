//go:build !linux

package nonblock

import (
	"net"
	"time"
)

// Watch is the wait for data on a connection without reading it. This system does
// not support that: Open returns false.
type Watch struct{}

// Open returns false.
func (*Watch) Open(net.Conn) bool { return false }

// Arm returns false.
func (*Watch) Arm() bool { return false }

// Disarm has no effect.
func (*Watch) Disarm() {}

// Until has no effect.
func (*Watch) Until(time.Time) {}

// Wait returns false.
func (*Watch) Wait() bool { return false }

// Wake has no effect.
func (*Watch) Wake() {}

// Close has no effect.
func (*Watch) Close() {}
