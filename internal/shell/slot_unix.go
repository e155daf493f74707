//go:build linux || darwin

package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/megaframework/mega/lock"
)

// holdSlot is hold for a slot that is prepared and cleaned (X9).
func (h *holder) holdSlot(ctx context.Context, c *Connection) error {
	pool := &lock.Pool{Key: h.order.Key, Size: h.order.Slots, Init: h.step("init", h.order.Init), Cleanup: h.step("cleanup", h.order.Cleanup)}
	slot, err := c.AcquireSlot(ctx, pool, h.order.options()...)
	if err != nil {
		return err
	}
	err = h.runCommand(slot.Lease)
	switch released := slot.Release(); {
	case released == nil:
	case errors.Is(released, lock.ErrLost):
		err = errors.Join(err, released)
	default: // the status is the command's
		h.note = fmt.Sprintf("Slot %d of %s: %v.", slot.Number(), h.order.Key, released)
	}
	return err
}

// step returns the function that runs line in sh, or nil for no line. It reports to the
// launcher that the wait for the slot is over, and that it goes on after a failure.
func (h *holder) step(name, line string) func(context.Context, *lock.Slot) error {
	if line == "" {
		return nil
	}
	return func(ctx context.Context, s *lock.Slot) error {
		h.send(report{What: preparing})
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.Env = runEnviron(os.Environ(), s.Key(), s.Fence(), s.Number(), s.Token())
		if left := s.Left(); left != nil {
			cmd.Env = append(cmd.Env, "MEGA_RUN_LEFT="+left.Why)
		}
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error {
			killGroup(cmd.Process.Pid) // with what it has started
			return nil
		}
		if err := cmd.Run(); err != nil {
			h.send(report{What: failing})
			return &stepError{name, errors.Join(err, context.Cause(ctx))}
		}
		return nil
	}
}
