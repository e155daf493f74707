package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A hub has a descriptor for each process. One that has no more serves the others,
// and those that come wait for it, as they wait for a hub that does not answer.
func TestNewcomersWaitForAHubWithoutDescriptors(t *testing.T) {
	t.Parallel()
	c := newCourt(t, 10*time.Second)
	raise := short(t, c.come(false).PID())

	for end := time.Now().Add(bound); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		n, err := Dial(ctx, Config{Socket: c.orders.Socket})
		waited := ctx.Err() != nil
		cancel()
		if err == nil { // it has the descriptor of a file that was open for a moment
			defer func() { must(t, n.Close(t.Context())) }()
			continue
		}
		if !strings.Contains(err.Error(), "too many open files") {
			if waited && time.Now().Before(end) { // a busy hub has said nothing yet
				continue
			}
			t.Errorf("got %v, want an error that says what the hub lacks", err)
		}
		if !waited {
			t.Error("Dial did not wait")
		}
		break
	}

	time.AfterFunc(500*time.Millisecond, raise)
	n, err := Dial(t.Context(), Config{Socket: c.orders.Socket})
	must(t, err)
	must(t, n.Close(t.Context()))
}

// short leaves a process one free descriptor. raise returns its limit.
func short(t *testing.T, pid int) (raise func()) {
	t.Helper()
	var before unix.Rlimit
	must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before))
	limit := before
	limit.Cur = 0
	for free := 0; free < 2; limit.Cur++ { // up to the second number that is free, which is above the limit
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, limit.Cur)); err != nil {
			free++
		}
	}
	limit.Cur--
	must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil))
	return func() {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
			t.Error(err)
		}
	}
}
