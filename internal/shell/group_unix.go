//go:build linux || darwin

package shell

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// signalGroup sends a signal to a process group. A group below 2 would be another
// target: this process' own group, or every process.
func signalGroup(group int, s syscall.Signal) error {
	if group < 2 {
		return syscall.ESRCH
	}
	return syscall.Kill(-group, s)
}

// deathTime bounds the wait for a group that was killed: a process in the kernel
// may take longer.
const deathTime = 5 * time.Second

// killGroup kills a group and waits until it is dead.
func killGroup(group int) {
	_ = signalGroup(group, syscall.SIGKILL)
	for start := time.Now(); alive(group) && time.Since(start) < deathTime; {
		time.Sleep(2 * time.Millisecond)
	}
}

// closeInherited closes the descriptors that this process has inherited besides
// the standard ones: a pipe that stays open would keep its reader waiting. The
// descriptors of this program itself close at exec, so they are no others.
func closeInherited() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
