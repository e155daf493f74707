package supervisor

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

// Reap reaps the orphans of the system that end: the kernel makes the first
// process of a container their parent, and keeps each as a zombie until its parent
// waits for it. In a process that is no such parent it does nothing. The returned
// function ends it and waits for its goroutine.
//
// It leaves the children of this process alone, whose exit statuses somebody else
// waits for: package os has a descriptor of each of them (a pidfd), and of no
// orphan.
func Reap(log *slog.Logger) (end func()) {
	if os.Getpid() != 1 && !isSubreaper() {
		return func() {}
	}
	return reap(log, reapEvery)
}

// reapEvery is the time between two looks at the children. A zombie is an orphan
// if two looks find it: one of a child that was started without package os has
// been waited for in between.
const reapEvery = 2 * time.Second

func isSubreaper() bool {
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return err == nil && is != 0
}

func reap(log *slog.Logger, every time.Duration) (end func()) {
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err != nil {
		log.Warn("orphans not reaped", "error", err) // an old kernel: they cannot be told from children
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

// reapUntil looks at the children now, and when one has died.
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

// reapAll reaps the zombies that two looks find, until a look finds none.
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

// zombies returns the children of this process that have ended and that package os
// does not wait for.
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
		return nil // any of them may be somebody's
	}
	for _, pid := range children {
		delete(all, pid)
	}
	return all
}

// waitedFor returns the processes that this one has a pidfd of.
func waitedFor() (pids []int, err error) {
	entries, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", e.Name()))
		if err != nil {
			continue // it was closed
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
