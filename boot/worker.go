package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/workers"
)

// The resources that a worker shares with its supervisor: listeners, and a
// connection (the line) on which both make calls.

// join takes the listeners and the line that a supervisor has passed to this
// process. In a process without a supervisor it does nothing.
func (b *booting) join() error {
	line, err := workers.Join(b.ctx, b.process.Environ, workers.Handlers{
		Started: func() bool { return b.reported.Load() != nil },
		Reload:  func(files *settings.Files) error { _, err := b.reload(files); return err },
		Check:   func(ctx context.Context) any { return b.probes.Ready(ctx, true) },
	})
	if err != nil {
		return selection.NoSupervisor(err)
	}
	if line == nil {
		return nil
	}
	b.line, b.backends.Line = line, line.Node()
	ctx, cancel := context.WithCancelCause(b.ctx)
	b.ctx = ctx
	unhook := b.afterSupervisor(func() { cancel(errAlone) })
	// A reload that the supervisor has begun may still run.
	b.life.endWith(watching, hook{name: "line to the supervisor", budget: hookBudget, run: func(ctx context.Context) error {
		unhook()
		return line.Close(ctx)
	}})
	return nil
}

// inputs returns the files that a supervisor has kept for this process. They
// are empty without a supervisor.
func (b *booting) inputs() (in workers.Inputs, err error) {
	if b.line == nil {
		return in, nil
	}
	if in, err = b.line.Inputs(b.ctx); err != nil {
		return in, selection.NoSupervisor(err)
	}
	return in, nil
}

// stays returns an error if a worker would keep its locks, or receive its
// messages, elsewhere than the other workers of its supervisor.
func (b *booting) stays(d plan.Decisions, c *settings.Config) error {
	if b.line == nil {
		return nil
	}
	var of selection.Pinned
	if err := b.line.Place(b.ctx, &of); err != nil {
		return selection.NoSupervisor(err)
	}
	return of.Stays(d, c)
}

// errAlone is the reason for the end of a worker without a supervisor.
var errAlone = errors.New("the supervisor has exited")

// afterSupervisor calls fn when the supervisor exits, until off is called. If
// the process then does not end in time because something in it hangs,
// afterSupervisor exits the process, since no supervisor can.
func (b *booting) afterSupervisor(fn func()) (off func()) {
	called, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-called:
			return
		case <-b.line.Lost():
		}
		fn()
		time.AfterFunc(b.lastMoment(), func() { os.Exit(failure.ExitCut) })
	}()
	return func() {
		close(called)
		<-over
	}
}

// lastMoment returns the timeout for the end of a worker without a supervisor.
func (b *booting) lastMoment() time.Duration {
	if c := b.current.config.Load(); c != nil {
		return c.Shutdown.Timeout + unwindBudget
	}
	return 2 * unwindBudget
}

// supervised reports whether a supervisor runs this process.
func (b *booting) supervised() bool { return b.line != nil }

// reportReady reports to the supervisor that the program has started.
func (b *booting) reportReady() {
	if b.line == nil {
		return
	}
	socket := ""
	if b.admin != nil {
		socket = b.admin.Path()
	}
	err := b.line.Ready(b.ctx, *b.reported.Load(), socket, workers.Grace(b.plan.Config.Shutdown.Timeout))
	if err != nil && b.ctx.Err() == nil {
		// The supervisor has exited, and the worker will end. If instead a signal
		// ends the worker before the supervisor has answered, nothing has
		// failed: the supervisor has the report, or does not need it.
		b.log.Error("cannot report readiness to the supervisor", "error", err)
	}
}

// open opens the listener of an address, or takes over the listener that the
// supervisor has passed for it. It waits for an address that a worker of an ended
// supervisor still has.
func (b *booting) open(a listen.Address, wait time.Duration) (*listen.Listener, error) {
	if b.line == nil {
		return workers.OpenAddress(b.ctx, a.Addr, wait, b.log)
	}
	l, err := b.line.Listen(a.Apps[0].Name)
	if err != nil {
		return nil, moved(err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, moved(errors.Join(fmt.Errorf("the supervisor passed a listener of the network %s, not of tcp", l.Addr().Network()), l.Close()))
	}
	if !listensAt(tcp.Addr(), a.Addr) {
		b.log.Warn("listen address changed; restart the program to apply it", "address", a.Addr, "listening", tcp.Addr().String())
	}
	return listen.Inherited(tcp, b.line.OthersAccept), nil
}

// listensAt reports whether an address matches the configured addr. A host name in
// addr matches any host.
func listensAt(a net.Addr, addr string) bool {
	wantHost, want, _ := net.SplitHostPort(addr)
	haveHost, have, _ := net.SplitHostPort(a.String())
	if want != have && want != "0" {
		return false
	}
	ip, own := net.ParseIP(cmp.Or(wantHost, "::")), net.ParseIP(haveHost)
	return ip == nil || own == nil || ip.Equal(own) || ip.IsUnspecified() && own.IsUnspecified()
}

// leftOver returns an error if the supervisor passed listeners that no app
// uses: connections there would wait forever.
func (b *booting) leftOver() error {
	if b.line == nil {
		return nil
	}
	names := b.line.Left()
	if len(names) == 0 {
		return nil
	}
	return moved(fmt.Errorf("no app uses the listener of %s", strings.Join(names, ", ")))
}

// moved returns the failure for a worker that cannot use the supervisor's
// listeners.
func moved(cause error) error {
	return &Failure{
		Code: cannotListen, Exit: failure.ExitUnavailable, Cause: cause,
		Text:    "The listeners of the supervisor do not match the configuration. The addresses of the apps have changed.",
		Actions: []string{"Restart the whole program: the supervisor opens its listeners only once"},
	}
}
