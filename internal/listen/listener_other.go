//go:build !linux

package listen

import (
	"errors"
)

// TurnAway is not supported on this system.
func TurnAway(uintptr) error { return errors.ErrUnsupported }
