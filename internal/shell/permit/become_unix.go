//go:build unix

package permit

import (
	"syscall"

	"github.com/megaframework/mega/internal/shell"
)

// become replaces this process by the command. It returns only an error.
func become(path string, command, environ []string) error {
	return shell.CannotRun(command[0], syscall.Exec(path, command, environ))
}
