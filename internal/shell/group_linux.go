package shell

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup starts a process in a group of its own. It is killed when the thread
// that has started it ends: the holder may not know the group yet when the
// launcher is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// exited returns a channel that is closed when the process has ended, also while
// its parent does not wait for it, or nil if the system cannot report that.
func exited(pid int) <-chan struct{} {
	fd, err := unix.PidfdOpen(pid, 0)
	gone := make(chan struct{})
	if err == unix.ESRCH {
		close(gone)
		return gone
	}
	if err != nil {
		return nil
	}
	go func() {
		defer close(gone)
		defer func() { _ = unix.Close(fd) }()
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return gone
}

// alive reports whether a member of the group runs. A zombie does not.
func alive(group int) bool {
	if errors.Is(signalGroup(group, 0), syscall.ESRCH) {
		return false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state parent group …; the name may contain anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 2 && string(fields[2]) == strconv.Itoa(group) && !bytes.ContainsAny(fields[0], "ZXx") {
			return true
		}
	}
	return false
}
