package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"syscall"
	"time"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
)

// TakenError is the error for an address that a worker of this program uses.
type TakenError struct {
	by  Holder
	err error
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("%v (worker %d, pid %d)", e.err, e.by.Worker, e.by.PID)
}

func (e *TakenError) Unwrap() error { return e.err }

// takenPause is the interval between two attempts to listen.
const takenPause = 20 * time.Millisecond

// maxLookups limits the attempts to find the process that uses an address. One
// is not enough: while sockets open and close, a read of /proc/net/tcp may miss
// an entry.
const maxLookups = 4

// OpenAddress listens on addr. After the death of a supervisor its workers keep
// the address until they have emptied its queue; OpenAddress waits for them, at
// most for the given time. It does not wait if another process or a running
// program uses the address, and fails.
func OpenAddress(ctx context.Context, addr string, wait time.Duration, log *slog.Logger) (*listen.Listener, error) {
	until := time.Now().Add(wait)
	waiting, lookups := false, 0
	for {
		l, err := listen.Listen(addr)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		by, known := HolderOf(addr)
		switch {
		case !known:
			if lookups++; lookups == maxLookups {
				return nil, err
			}
		case by.Parent > 0 || !time.Now().Before(until):
			return nil, &TakenError{by, err}
		case !waiting:
			log.Warn("waiting for an address", "address", addr, "worker", by.Worker, "pid", by.PID, "reason", "a worker of an ended supervisor still has it")
			waiting = true
		}
		select {
		case <-time.After(takenPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Explain adds facts and actions about the worker that uses the address.
func (e *TakenError) Explain(f *failure.Failure, addr string) {
	if e.by.Parent > 0 {
		f.Text = fmt.Sprintf("The address %s is in use by worker %d of this program, which runs already.", addr, e.by.Worker)
		f.Actions = failure.Actions("Stop it", fmt.Sprintf("kill %d", e.by.Parent), "Restart workers", fmt.Sprintf("kill -USR2 %d", e.by.Parent))
	} else {
		f.Text = fmt.Sprintf("The address %s is in use by worker %d of this program, whose supervisor has ended.", addr, e.by.Worker)
		f.Actions = failure.Actions("Wait longer", "set boot.wait_for; the worker ends within shutdown.timeout", "End the worker", fmt.Sprintf("kill -KILL %d", e.by.PID))
	}
	f.Facts = append(f.Facts, failure.Fact{Name: "pid", Value: strconv.Itoa(e.by.PID)})
}
