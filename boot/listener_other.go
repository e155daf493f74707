//go:build !linux

package boot

import (
	"errors"
)

// turnAway is not supported on this system.
func turnAway(uintptr) error { return errors.ErrUnsupported }
