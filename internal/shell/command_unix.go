//go:build linux || darwin

package shell

import (
	"context"
	"os"
	"runtime"
	"syscall"
	"time"
)

// Command runs a command without a lease, in a group of its own, for a process
// that runs several at once. When ctx ends, the group gets SIGTERM, and SIGKILL
// after the grace. The error is a Status if the command has run.
func Command(ctx context.Context, p Process, command []string, stdio Stdio, grace time.Duration) error {
	path, err := stdio.Find(command[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the command dies with the thread that has started it, see ownGroup
	defer runtime.UnlockOSThread()
	child, err := os.StartProcess(path, command, &os.ProcAttr{
		Dir: stdio.Dir, Env: p.Environ, Files: []*os.File{stdio.In, stdio.Out, stdio.Err}, Sys: ownGroup(),
	})
	if err != nil {
		return cannotRun(command[0], err)
	}
	group := child.Pid
	_ = child.Release() // statuses waits for it
	states, stop := statuses(group), ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case s, ok := <-states:
			switch {
			case !ok:
				return errUnwaited()
			case s.Stopped():
			default:
				return statusOf(s)
			}
		case <-stop:
			stop, late = nil, time.After(grace)
			_ = signalGroup(group, syscall.SIGTERM)
			_ = signalGroup(group, syscall.SIGCONT) // a stopped process gets the signal when it continues
		case <-late:
			_ = signalGroup(group, syscall.SIGKILL)
		}
	}
}
