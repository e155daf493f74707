//go:build !unix

package shell

import (
	"errors"
	"os"
	"os/exec"
)

// become runs the command, because this system cannot replace a process, and
// returns its exit status.
func become(path string, command, environ []string) error {
	cmd := exec.Command(path, command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, environ
	err := cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return Status(ended.ExitCode())
	}
	if err != nil {
		return cannotRun(command[0], err)
	}
	return nil
}
