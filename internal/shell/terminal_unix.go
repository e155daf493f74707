//go:build linux || darwin

package shell

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process. A nil terminal is none.
type terminal struct {
	file *os.File
	own  int // the process group of this process
}

// openTerminal returns nil if this process has no terminal.
func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: f, own: syscall.Getpgrp()}
}

// owner returns the foreground group, or 0.
func (t *terminal) owner() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// foreground reports whether this process is in the foreground.
func (t *terminal) foreground() bool { return t != nil && t.owner() == t.own }

// give makes group the foreground group.
func (t *terminal) give(group int) {
	if t == nil {
		return
	}
	// Only after the command was started, which would inherit it: this process
	// changes the terminal from the background.
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) // the terminal may be gone
}

// takeBack makes this process' group the foreground if group has it, and
// reports whether it had.
func (t *terminal) takeBack(group int) bool {
	if t.owner() != group {
		return false
	}
	t.give(t.own)
	return true
}
