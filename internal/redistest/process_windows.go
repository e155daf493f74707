package redistest

import "os/exec"

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
func terminate(*exec.Cmd) error     { return errUnsupported }
func pause(*exec.Cmd) error         { return errUnsupported }
func proceed(*exec.Cmd) error       { return errUnsupported }
