//go:build !linux

package boot

import (
	"errors"
	"net"
)

// turnAway would keep new connections from the queue while it is emptied.
func turnAway(*net.TCPListener) error { return errors.ErrUnsupported }
