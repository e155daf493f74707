//go:build !unix

package listen

import "net"

// pending returns false: this system cannot report unread bytes.
func pending(net.Conn) bool { return false }
