package shell

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
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
	all, err := running()
	return err != nil || slices.ContainsFunc(all, func(p process) bool { return p.group == group })
}

// killUnreported kills the groups of the processes in a session that have the variable
// in their environment, and waits until they are dead. Commands of other sessions have
// a holder of their own.
func killUnreported(session int, variable string) {
	all, _ := running()
	for _, p := range all {
		if p.session != session {
			continue
		}
		environ, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ") // empty if the process has ended
		if slices.Contains(strings.Split(string(environ), "\x00"), variable) {
			killGroup(p.group)
		}
	}
}

// process is a process that is no zombie.
type process struct{ pid, group, session int }

// running returns the processes of the system.
func running() (all []process, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state parent group session …; the name may contain anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 4 || strings.ContainsAny(fields[0], "ZXx") {
			continue
		}
		group, _ := strconv.Atoi(fields[2])
		session, _ := strconv.Atoi(fields[3])
		all = append(all, process{pid, group, session})
	}
	return all, nil
}
