//go:build !unix

package locks

import (
	"errors"
	"fmt"
	"os"
)

var errNoFlock = fmt.Errorf("flock: %w", errors.ErrUnsupported)

func lockFile(*os.File) error   { return errNoFlock }
func unlockFile(*os.File) error { return errNoFlock }
