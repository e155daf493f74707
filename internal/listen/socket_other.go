//go:build !unix

package listen

import "net"

// pending returns false: this system cannot report unread bytes.
func pending(net.Conn) bool { return false }

// readable returns true: the caller's own call waits.
func readable(uintptr) bool { return true }
