package redistest

import (
	"errors"
	"os"
	"os/exec"
)

// errUnsupported reports that the system has no such signal.
var errUnsupported = errors.New("redistest: not supported on windows")

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
func terminate(*exec.Cmd) error     { return errUnsupported }
func pause(*exec.Cmd) error         { return errUnsupported }
func proceed(*exec.Cmd) error       { return errUnsupported }

// lockByte does not exclude other processes.
func lockByte(*os.File, int) bool { return true }
func unlockByte(*os.File, int)    {}
