package boxes

import (
	"errors"
	"os"
	"syscall"
)

// errUnsupported reports that a box has no residents on this system.
var errUnsupported = errors.New("boxes: not supported on windows")

func lockFile(*os.File) error        { return errUnsupported }
func ofItsOwn() *syscall.SysProcAttr { return nil }
func kill(int) error                 { return errUnsupported }
