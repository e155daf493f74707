package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/workers"
)

// The resources that a worker shares with its supervisor: listeners, and a
// connection (the line) on which both make calls.

// The calls on the line. The comment names the caller.
const (
	callConfig   = "config"   // worker: get the files to load the configuration from
	callDecided  = "decided"  // worker: get the place of locks and messages
	callReady    = "ready"    // worker: report that it has started, with its boot report
	callTurn     = "turn"     // worker: ask whether it has to run an OnPrimary function
	callDone     = "done"     // worker: report that it has run the function
	callOthers   = "others"   // worker that ends: ask whether the others continue
	callDraining = "draining" // worker: stops accepting; ask whether the others do, too
	callReload   = "reload"   // supervisor: reload the configuration from these files
	callAlive    = "alive"    // supervisor: check that the worker responds
	callCheck    = "check"    // supervisor: get the readiness, as /readyz?verbose
)

// The answers to callTurn, callOthers and callDraining.
const yes, no = "yes", "no"

// presented is the message of callReady.
type presented struct {
	Report Report        `json:"report"`
	Socket string        `json:"socket"`          // path of the admin socket, for the supervisor; empty without one
	Grace  time.Duration `json:"grace,omitempty"` // the time that it needs to end; its configuration may differ from the supervisor's

	Read *config.Files `json:"read,omitempty"` // files that it has read itself, as the first worker of its generation
}

// membership connects a worker to its supervisor.
type membership struct {
	inherited *workers.Inherited
	node      *cluster.Node
	read      *config.Files // nil if the supervisor had a copy
}

// join takes the listeners and the line that a supervisor has passed to this
// process. In a process without a supervisor it does nothing.
func (b *booting) join() error {
	in, err := workers.Inherit(b.process.Environ)
	if err != nil {
		return supervisorGone(err)
	}
	if in == nil || in.Line == nil {
		return nil
	}
	node, err := cluster.Dial(b.ctx, cluster.Config{Conn: in.Line, Handle: b.answer})
	if err != nil {
		in.Close()
		return supervisorGone(err)
	}
	b.member = &membership{inherited: in, node: node}
	b.party.line = node
	ctx, cancel := context.WithCancelCause(b.ctx)
	b.ctx = ctx
	unhook := b.whenAlone(func() { cancel(errAlone) })
	b.life.endWith(watching, hook{name: "line to the supervisor", budget: lastWord, run: func(ctx context.Context) error {
		unhook()
		in.Close()
		return node.Close(ctx)
	}})
	return nil
}

// errAlone is the reason for the end of a worker without a supervisor.
var errAlone = errors.New("the supervisor is gone")

// whenAlone calls fn when the supervisor exits, until off is called. If the
// process then does not end in time because something in it hangs, whenAlone
// exits the process, since no supervisor can.
func (b *booting) whenAlone(fn func()) (off func()) {
	called, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-called:
			return
		case <-b.member.node.Done():
		}
		fn()
		time.AfterFunc(b.lastMoment(), func() { os.Exit(ExitCut) })
	}()
	return func() {
		close(called)
		<-over
	}
}

// lastMoment returns the timeout for the end of a worker without a supervisor.
func (b *booting) lastMoment() time.Duration {
	if c := b.inForce.Load(); c != nil {
		return c.Shutdown.Timeout + unwindBudget
	}
	return 2 * unwindBudget
}

// alone returns a channel that is closed when the supervisor exits, or nil in a
// process without one.
func (b *booting) alone() <-chan struct{} {
	if b.member == nil {
		return nil
	}
	return b.member.node.Done()
}

// supervised reports whether a supervisor runs this process.
func (b *booting) supervised() bool { return b.member != nil }

// errStarting is the error of calls that need a started program.
var errStarting = errors.New("the worker has not started yet")

// answer handles the supervisor's calls.
func (b *booting) answer(ctx context.Context, _ *cluster.Peer, name string, body []byte) ([]byte, error) {
	switch {
	case name == callAlive:
		return nil, nil
	case b.told.Load() == nil:
		return nil, errStarting
	case name == callReload:
		return nil, b.reloadFrom(body)
	case name == callCheck:
		_, is := b.probes.ready(ctx, true)
		return json.Marshal(is)
	}
	return nil, fmt.Errorf("a worker does not answer %q", name)
}

// presents reports to the supervisor that the program has started.
func (b *booting) presents() {
	if b.member == nil {
		return
	}
	p := presented{Report: *b.told.Load(), Read: b.member.read, Grace: b.config.Shutdown.Timeout + graceTime}
	if b.admin != nil {
		p.Socket = b.admin.Path()
	}
	body, err := json.Marshal(p)
	if err == nil {
		_, err = b.member.node.Call(b.ctx, callReady, body)
	}
	if err != nil { // the supervisor is gone, and the worker will end
		b.log.Error("cannot report readiness to the supervisor", "error", err)
	}
}

// open opens the listener of an address, or takes over the listener that the
// supervisor has passed for it.
func (b *booting) open(a listen.Address) (*listen.Listener, error) {
	if b.member == nil {
		return workers.OpenAddress(b.ctx, a.Addr, b.config.Boot.WaitFor, b.log)
	}
	l, err := b.member.inherited.Listen(a.Apps[0].Name)
	if err != nil {
		return nil, moved(err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, moved(errors.Join(fmt.Errorf("it has passed one of %s", l.Addr().Network()), l.Close()))
	}
	if !listensAt(tcp.Addr(), a.Addr) {
		b.log.Warn("listen address changed; restart the program to apply it", "address", a.Addr, "listening", tcp.Addr())
	}
	return listen.Inherited(tcp, b.member.othersAccept), nil
}

// listensAt reports whether an address matches the configured addr.
func listensAt(a net.Addr, addr string) bool {
	_, want, _ := net.SplitHostPort(addr)
	_, have, _ := net.SplitHostPort(a.String())
	return want == have || want == "0"
}

// leftOver returns an error if the supervisor passed listeners that no app
// uses: connections there would wait forever.
func (b *booting) leftOver() error {
	if b.member == nil {
		return nil
	}
	names := b.member.inherited.Left()
	if len(names) == 0 {
		return nil
	}
	return moved(fmt.Errorf("it has passed one too many: that of %s", strings.Join(names, ", ")))
}

// moved returns the failure for a worker that cannot use the supervisor's
// listeners.
func moved(cause error) error {
	return &Failure{
		Code: "app.cannot_listen", Exit: ExitUnavailable, Cause: cause,
		Text:    "The listeners that the supervisor has passed are not those of the configuration: which apps listen where was changed.",
		Actions: []string{"restart the whole program: its supervisor opens addresses once"},
	}
}

// askTime is the timeout of a call during the shutdown.
const askTime = time.Second

// othersAccept reports whether other workers continue to accept from a listener
// that this worker is about to close: then no connection in its queue is lost.
// If the supervisor runs but does not answer, the result is true, because a
// refusal of new connections would affect all workers. If the supervisor is
// gone, the result is false.
func (m *membership) othersAccept() bool {
	switch m.asks(callDraining) {
	case yes:
		return false
	case no:
		return true
	}
	select {
	case <-m.node.Done():
		return false
	default:
		return true
	}
}

// othersServe reports whether other workers continue to serve while this one
// ends.
func (b *booting) othersServe() bool { return b.member != nil && b.member.asks(callOthers) == yes }

// asks returns the supervisor's answer, or "" if the supervisor is gone or does
// not respond in time.
func (m *membership) asks(what string) string {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	answer, err := m.node.Call(ctx, what, nil)
	if err != nil {
		return ""
	}
	return string(answer)
}
