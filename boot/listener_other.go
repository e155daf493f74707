//go:build !linux

package boot

import (
	"errors"
)

// turnAway would keep new connections from the queue while it is emptied.
func turnAway(uintptr) error { return errors.ErrUnsupported }
