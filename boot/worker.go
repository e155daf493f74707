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
	"github.com/megaframework/mega/internal/supervisor"
)

// What a worker has with its supervisor: listeners, and a line by which each
// calls the other.

// The calls on the line.
const (
	callConfig   = "config"   // of a worker: the files that its configuration is loaded from
	callDecided  = "decided"  // of a worker: where are locks and messages?
	callReady    = "ready"    // of a worker: it has started, and what it came to
	callTurn     = "turn"     // of a worker: is it to do what is done once?
	callDone     = "done"     // of a worker: it has done that
	callOthers   = "others"   // of a worker that ends: do the others go on?
	callDraining = "draining" // of a worker: it is about to accept no more; are the others, too?
	callReload   = "reload"   // of the supervisor: reload the configuration from these files
	callAlive    = "alive"    // of the supervisor: a sign of life
	callCheck    = "check"    // of the supervisor: does the worker want requests? as /readyz?verbose
)

// The answers to callTurn, callOthers and callDraining.
const yes, no = "yes", "no"

// presented is what a worker tells with callReady.
type presented struct {
	Report Report        `json:"report"`
	Socket string        `json:"socket"`          // where the supervisor asks it for its operators; empty where it has none
	Grace  time.Duration `json:"grace,omitempty"` // that it needs to end; more or less than the supervisor's, with another configuration

	Read *config.Files `json:"read,omitempty"` // that it has read itself, as the first worker of its generation
}

// membership is that of a worker among the others of its supervisor.
type membership struct {
	inherited *supervisor.Inherited
	node      *cluster.Node
	read      *config.Files // nil where the supervisor had a copy
}

// join takes what a supervisor has passed to this process. A process without
// one is a member of nothing.
func (b *booting) join() error {
	in, err := supervisor.Inherit(b.process.Environ)
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

// errAlone is why a worker ends whose supervisor is gone.
var errAlone = errors.New("the supervisor is gone")

// whenAlone calls fn when the supervisor is gone, unless it is called off. A
// process that does not end then as it should, because something in it hangs,
// is ended: nobody is left who would.
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

// lastMoment is what a worker without a supervisor may take to end.
func (b *booting) lastMoment() time.Duration {
	if c := b.inForce.Load(); c != nil {
		return c.Shutdown.Timeout + unwindBudget
	}
	return 2 * unwindBudget
}

// alone is closed when the supervisor is gone. There may never have been one.
func (b *booting) alone() <-chan struct{} {
	if b.member == nil {
		return nil
	}
	return b.member.node.Done()
}

// supervised reports whether the process is one of several that a supervisor
// runs.
func (b *booting) supervised() bool { return b.member != nil }

// errStarting is the answer to what can only be asked of a program that has
// started.
var errStarting = errors.New("the worker has not started yet")

// answer answers the supervisor's calls.
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

// presents tells the supervisor that the program has started.
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
	if err != nil { // the supervisor is gone, and the worker is going to end
		b.log.Error("cannot report readiness to the supervisor", "error", err)
	}
}

// open opens the listener of a front, or takes over the one that was passed
// for it.
func (b *booting) open(p front) (*listener, error) {
	if b.member == nil {
		return listenSoon(b.ctx, p.addr, b.config.Boot.WaitFor, b.log)
	}
	l, err := b.member.inherited.Listen(p.sites[0].app)
	if err != nil {
		return nil, moved(err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, moved(errors.Join(fmt.Errorf("it has passed one of %s", l.Addr().Network()), l.Close()))
	}
	if !listensAt(tcp.Addr(), p.addr) {
		b.log.Warn("listen address changed; restart the program to apply it", "address", p.addr, "listening", tcp.Addr())
	}
	return &listener{TCPListener: tcp, others: b.member.othersAccept}, nil
}

// listensAt reports whether an address may be what was configured as addr.
func listensAt(a net.Addr, addr string) bool {
	_, want, _ := net.SplitHostPort(addr)
	_, have, _ := net.SplitHostPort(a.String())
	return want == have || want == "0"
}

// leftOver fails if listeners were passed that nobody has taken: what connects
// there would wait for ever.
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

// moved is why a worker cannot serve from what its supervisor has opened.
func moved(cause error) error {
	return &Failure{
		Code: "app.cannot_listen", Exit: ExitUnavailable, Cause: cause,
		Text:    "The listeners that the supervisor has passed are not those of the configuration: which apps listen where was changed.",
		Actions: []string{"restart the whole program: its supervisor opens addresses once"},
	}
}

// askTime bounds a question whose answer is needed to end.
const askTime = time.Second

// othersAccept reports whether other workers go on accepting from a listener
// that this one is about to leave: then nothing is lost in its queue. Unless the
// supervisor is gone, whoever does not know has to believe that they do: what
// keeps new connections away does so for all.
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

// othersServe reports whether this worker ends alone.
func (b *booting) othersServe() bool { return b.member != nil && b.member.asks(callOthers) == yes }

// asks returns the supervisor's answer; none if it is gone, or stands still.
func (m *membership) asks(what string) string {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	answer, err := m.node.Call(ctx, what, nil)
	if err != nil {
		return ""
	}
	return string(answer)
}
