//go:build unix

package shell

import (
	"syscall"
)

// become replaces this process by the command. It returns only an error.
func become(path string, command, environ []string) error {
	return cannotRun(command[0], syscall.Exec(path, command, environ))
}
