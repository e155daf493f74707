package workers

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reap collects the exit statuses of orphans. The kernel makes the first
// process of a container the parent of all orphans, and keeps each one as a
// zombie until its parent waits for it. In any other process Reap does nothing.
// The returned function ends the reaping and waits for its goroutine.
//
// Reap ignores the children of this process, because other code waits for their
// exit statuses. It distinguishes them by their descriptor (a pidfd): package
// os has one of each child, and none of an orphan.
func Reap(log *slog.Logger) (end func()) {
	if os.Getpid() != 1 && !isSubreaper() {
		return func() {}
	}
	return reap(log, reapEvery)
}

// reapEvery is the time between two scans of the children. A zombie is an
// orphan if two scans find it: a child that was started without package os has
// been waited for in between.
const reapEvery = 2 * time.Second

func isSubreaper() bool {
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return err == nil && is != 0
}

func reap(log *slog.Logger, every time.Duration) (end func()) {
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err != nil {
		log.Warn("orphans not reaped", "error", err) // an old kernel: orphans cannot be distinguished from children
		return func() {}
	} else {
		_ = unix.Close(fd)
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	ctx, cancel := context.WithCancel(context.Background())
	var reaping sync.WaitGroup
	reaping.Go(func() {
		defer signal.Stop(died)
		reapUntil(ctx, log, died, every)
	})
	return func() {
		cancel()
		reaping.Wait()
	}
}

// reapUntil scans the children at once, and after each death.
func reapUntil(ctx context.Context, log *slog.Logger, died <-chan os.Signal, every time.Duration) {
	for {
		reapAll(ctx, log, every)
		select {
		case <-died:
		case <-ctx.Done():
			return
		}
	}
}

// reapAll reaps the zombies that two scans find, until a scan finds none.
func reapAll(ctx context.Context, log *slog.Logger, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for before := zombies(); len(before) > 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := zombies()
		for pid := range now {
			if before[pid] {
				reapOne(log, pid)
				delete(now, pid)
			}
		}
		before = now
	}
}

func reapOne(log *slog.Logger, pid int) {
	var status unix.WaitStatus
	if got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err == nil && got == pid {
		log.Debug("orphan reaped", "pid", pid, "status", int(status))
	}
}

// zombies returns the children of this process that have ended and that package
// os does not wait for.
func zombies() map[int]bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if state, parent := stateOf(pid); state == 'Z' && parent == os.Getpid() {
			all[pid] = true
		}
	}
	if len(all) == 0 {
		return nil
	}
	children, err := waitedFor()
	if err != nil {
		return nil // other code may wait for any of them
	}
	for _, pid := range children {
		delete(all, pid)
	}
	return all
}

// waitedFor returns the processes for which this process has a pidfd.
func waitedFor() (pids []int, err error) {
	entries, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", e.Name()))
		if err != nil {
			continue // the descriptor was closed
		}
		for line := range bytes.Lines(text) {
			if of, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
				if pid, err := strconv.Atoi(string(bytes.TrimSpace(of))); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids, nil
}
