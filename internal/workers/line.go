package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/settings"
)

// Line is a worker's end of its connection to the supervisor. In a process without a
// supervisor the Line is nil; only Lost and OthersServe may be called on it.
type Line struct {
	inherited *Inherited
	node      *cluster.Node
	read      *settings.Files // that this worker has read itself; nil if the supervisor had a copy
}

// Handlers handle the supervisor's calls.
type Handlers struct {
	Started func() bool                 // calls to the others fail before the worker has started
	Reload  func(*settings.Files) error // reload the configuration from the files, or from the disk if nil
	Check   func(context.Context) any   // readiness; encodes as JSON
}

// callTime is the timeout of a call while the worker starts.
const callTime = 15 * time.Second

// Join takes over the listeners and the line that a supervisor has passed to
// this process. It returns nil in a process without a supervisor.
func Join(ctx context.Context, environ []string, h Handlers) (*Line, error) {
	in, err := Inherit(environ)
	if err != nil || in == nil || in.Line == nil {
		return nil, err
	}
	node, err := cluster.Dial(ctx, cluster.Config{Conn: in.Line, Handle: h.answer})
	if err != nil {
		in.Close()
		return nil, err
	}
	return &Line{inherited: in, node: node}, nil
}

// errStarting is the error of calls that need a started program.
var errStarting = errors.New("the worker has not started yet")

// answer handles the supervisor's calls.
func (h Handlers) answer(ctx context.Context, _ *cluster.Client, name string, body []byte) ([]byte, error) {
	switch {
	case name == callAlive:
		return nil, nil
	case !h.Started():
		return nil, errStarting
	case name == callReload:
		return nil, h.reload(body)
	case name == callCheck:
		return json.Marshal(h.Check(ctx))
	}
	return nil, fmt.Errorf("unknown call %q", name)
}

func (h Handlers) reload(body []byte) error {
	if len(body) == 0 {
		return h.Reload(nil) // a supervisor of an older build sends no files
	}
	files := new(settings.Files)
	if err := json.Unmarshal(body, files); err != nil {
		return fmt.Errorf("decode the files of the configuration: %w", err)
	}
	return h.Reload(files)
}

// Node returns the connection, which also carries locks and messages.
func (l *Line) Node() *cluster.Node { return l.node }

// Lost returns a channel that is closed when the supervisor exits, or nil in a
// process without one.
func (l *Line) Lost() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.node.Done()
}

// Close closes the line, and the listeners that Listen has not returned.
func (l *Line) Close(ctx context.Context) error {
	// After the goodbye: the hub takes a process whose line ends without one for
	// dead, and releases its leases (L17).
	defer l.inherited.Close()
	return l.node.Close(ctx)
}

// Listen returns the passed listener of that name. It can be called once for
// each name.
func (l *Line) Listen(name string) (net.Listener, error) { return l.inherited.Listen(name) }

// Left returns the names of the listeners that Listen has not returned yet.
func (l *Line) Left() []string { return l.inherited.Left() }

// Place decodes Config.Place of the supervisor into place.
func (l *Line) Place(ctx context.Context, place any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	body, err := l.node.Call(ctx, callPlace, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, place)
}

// Ready reports to the supervisor that the program has started. report encodes
// as JSON. socket is the path of the worker's admin socket, or empty. grace is
// the time that this worker needs to end.
func (l *Line) Ready(ctx context.Context, report any, socket string, grace time.Duration) error {
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	body, err := json.Marshal(readyMessage{Report: text, Socket: socket, Grace: grace, Read: l.read})
	if err != nil {
		return err
	}
	_, err = l.node.Call(ctx, callReady, body)
	return err
}

// Turn waits until a worker of this generation has run the function of that
// name, and returns false; or until this worker has to run it, and returns
// true.
func (l *Line) Turn(ctx context.Context, name string) (mine bool, err error) {
	answer, err := l.node.Call(ctx, callTurn, []byte(name))
	return string(answer) == yes, err
}

// Done reports that this worker has run the function of its turn.
func (l *Line) Done(ctx context.Context, name string) error {
	_, err := l.node.Call(ctx, callDone, []byte(name))
	return err
}

// askTime is the timeout of a call during the shutdown.
const askTime = time.Second

// OthersAccept reports whether other workers continue to accept from a listener
// that this worker is about to close: then no connection in its queue is lost.
// If the supervisor runs but does not answer, the result is true, because a
// refusal of new connections would affect all workers. If the supervisor is
// gone, the result is false.
func (l *Line) OthersAccept() bool {
	switch l.ask(callDraining) {
	case yes:
		return false
	case no:
		return true
	}
	select {
	case <-l.node.Done():
		return false
	default:
		return true
	}
}

// OthersServe reports whether other workers continue to serve while this one
// ends.
func (l *Line) OthersServe() bool { return l != nil && l.ask(callOthers) == yes }

// ask returns the supervisor's answer, or "" if the supervisor has exited or does
// not respond in time.
func (l *Line) ask(what string) string {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	answer, err := l.node.Call(ctx, what, nil)
	if err != nil {
		return ""
	}
	return string(answer)
}
