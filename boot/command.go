package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/request"
)

// command is the command that this process runs instead of the program.
type command struct {
	run  func(context.Context) error
	from []failure.Fact // its declaration
}

// command runs one command of the program and returns the exit status. The
// process has no supervisor: it selects drivers as a single process does.
func (p Process) command(ctx context.Context, options []Option) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.Set = append(slices.Clip(p.Set), "cluster.workers=1")
	running, err := Start(ctx, p, options...)
	if err != nil {
		return p.notStarted(err)
	}
	ended := make(chan error, 1)
	go concluded(ctx, running.b.command.run, func(err error) { ended <- err })
	select {
	case err = <-ended:
	case <-p.Hangups: // the terminal has closed
		cancel()
		err = <-ended
	}
	cut := running.Stop()
	switch {
	case err != nil:
		return p.writeFailure(running.b.commandFailed(err))
	case cut != nil:
		logError(running.Log(), "stopped with errors", cut)
		return failure.ExitCut
	}
	return failure.ExitOK
}

// commandFailed returns the failure of the command with the exit status of its
// error.
func (b *booting) commandFailed(err error) *failure.Failure {
	f := &failure.Failure{
		Code: "boot.command_failed", Exit: failure.ExitCut, Text: fmt.Sprintf("The command %q returned an error.", b.process.Command),
		Cause: err, Stack: stackText(err), Facts: b.command.from, Mask: b.veil.Text, Started: true,
	}
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok && coded.ExitCode() > 0 {
		f.Exit = coded.ExitCode()
	}
	return f
}

// isWanted reports whether this process runs a hook: its command alone, or
// everything but the commands.
func (b *booting) isWanted(h plan.Hook) bool {
	if b.process.Command == "" {
		return h.Kind != plan.KindCommand
	}
	return h.Kind == plan.KindCommand && h.Name == b.process.Command
}

// has reports whether a part has the command of this process.
func (b *booting) has(p *plan.Part) bool { return slices.ContainsFunc(p.Hooks, b.isWanted) }

// bindCommand makes f the work of this process.
func (b *booting) bindCommand(f plan.Bound, host *request.Host) {
	b.command = command{
		run:  func(ctx context.Context) error { return f.RunCommand(ctx, host, b.process.Words) },
		from: f.Place(host.App.Name),
	}
}

// lookForSiblings warns a command of processes that do not share its locks.
func (b *booting) lookForSiblings(ctx context.Context) error {
	b.warnOfSiblings(ctx, admin.Folders(b.process.Environ))
	return nil
}
