package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/internal/routes"
)

// Bus is the bus driver of a [Node], of scope Node. Closing it leaves the node
// connected.
//
// Events go straight into the queues of this process's subscriptions without a
// group, and once to the hub. The hub sends them once to each other process
// that subscribes to them. Messages for a group, and requests, go through the
// hub, which chooses the receiver.
type Bus struct {
	node   *Node
	tables [2]*nodeTable // of events and of requests: the subscriptions without a group
	out    outbox
	syncs  syncs
	closed atomic.Bool

	mu            sync.RWMutex
	front         driver.Front
	down          error          // the reason why there is no hub; nil if there is one
	line          *protocol.Line // carries changes of registrations; nil while there is no hub
	last          uint64         // the last number of a registration
	registrations map[registrationKey]*registration
	byNumber      map[uint64]*registration // the same registrations, and those that are ending

	// The state of a change of the hub, which belongs to the reader.
	left   uint64          // the number of the hub that has left, after it had sent everything to this process; 0 if there is none
	spared []*subscription // have missed nothing, unless the hub opens without them

	calls sync.RWMutex // held for reading while a hub frame calls a front or a sink
	quiet bool         // guarded by calls: fronts and sinks are not called any more
}

var _ driver.Driver = (*Bus)(nil)

type nodeTable = routes.Table[*subscription, nodeRoute]

// nodeRoute lists the receivers of one subject in this process.
type nodeRoute struct {
	subject       string
	subscriptions []*subscription
}

func newNodeTable() *nodeTable {
	return routes.New(func(subject string, each []*subscription, _ [][]*subscription) nodeRoute {
		return nodeRoute{subject, each}
	})
}

func newBus(n *Node) *Bus {
	b := &Bus{
		node:          n,
		tables:        [2]*nodeTable{driver.Event: newNodeTable(), driver.Request: newNodeTable()},
		down:          driver.ErrDisconnected,
		registrations: make(map[registrationKey]*registration),
		byNumber:      make(map[uint64]*registration),
	}
	b.out.open(b, n.config.Buffer)
	return b
}

// maxMessage is the largest size of a message, the default of the front. The
// rest of a frame is reserved for the envelope.
const maxMessage = 1 << 20

// lacks are the guarantees that the driver does not give.
var lacks = []driver.Lack{
	{Rule: "S5", Why: "a process whose subscriptions of a group have just been stopped gives their events back, and another one may get them after later ones"},
}

// Info implements [driver.Driver].
func (b *Bus) Info() driver.Info {
	i := driver.Info{Name: "cluster", Scope: driver.Node, MaxPayload: maxMessage, Copies: true, Lacks: lacks}
	if len(b.node.warnings) > 1 {
		i.Warnings = slices.Clone(b.node.warnings[1:]) // the first one is about leases
	}
	return i
}

// Attach implements [driver.Driver].
func (b *Bus) Attach(f driver.Front) error {
	b.mu.Lock()
	if b.front != nil {
		b.mu.Unlock()
		return fmt.Errorf("%w: the bus of a node belongs to one bus.Bus", driver.ErrInvalid)
	}
	b.front = f
	down := b.down
	b.mu.Unlock()
	if down != nil {
		f.Disconnected(down)
	}
	return nil
}

// Publish implements [driver.Driver].
func (b *Bus) Publish(ctx context.Context, m driver.Message) error {
	if b.closed.Load() {
		return driver.ErrClosed
	}
	if err := m.CheckSize(maxMessage); err != nil {
		return err
	}
	f := protocol.AddMessage(protocol.Begin(protocol.TypeEvent), &m)
	err := b.out.publish(ctx, f, &m)
	if err != nil {
		f.Free()
	}
	return err
}

// serve passes an event of this process to its own subscriptions without a
// group.
func (b *Bus) serve(m *driver.Message) {
	r := b.tables[driver.Event].Find(m.Subject)
	if len(r.subscriptions) == 0 {
		return
	}
	own := kept(m)
	for _, x := range r.subscriptions {
		x.sink.Deliver(own)
	}
}

// kept returns a copy of m that does not change: the front reuses the memory of
// its own message.
func kept(m *driver.Message) driver.Message {
	own := *m
	own.Header = maps.Clone(m.Header)
	own.Data = make([]byte, len(m.Data))
	copy(own.Data, m.Data)
	return own
}

// Request implements [driver.Driver].
func (b *Bus) Request(ctx context.Context, m driver.Message) error {
	if b.closed.Load() {
		return driver.ErrClosed
	}
	if err := m.CheckSize(maxMessage); err != nil {
		return err
	}
	line := b.out.current()
	if line == nil {
		return b.disconnection()
	}
	return b.send(ctx, line, protocol.AddMessage(protocol.Begin(protocol.TypeRequest).Uint(m.ID), &m), &m)
}

// send sends a frame that is dropped when line ends.
func (b *Bus) send(ctx context.Context, line *protocol.Line, f *protocol.Frame, m *driver.Message) error {
	err := b.out.send(ctx, &lineBound{line: line, frame: f}, m)
	if err != nil {
		f.Free()
		return err
	}
	line.Flush()
	return nil
}

// disconnection returns the reason why there is no hub.
func (b *Bus) disconnection() error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.down == nil {
		return driver.ErrDisconnected // the connection is just coming back
	}
	return b.down
}

// received is a request from the hub, with the number of subscriptions that
// have it. It is the driver's Return.
type received struct {
	protocol.RequestID
	line *protocol.Line // the line of the request
	left atomic.Int32
}

// Answer implements [driver.Driver].
func (b *Bus) Answer(ctx context.Context, request, answer driver.Message) error {
	if b.closed.Load() {
		return driver.ErrClosed
	}
	if err := answer.CheckSize(maxMessage); err != nil {
		return err
	}
	a := request.Return.(*received)
	done := !answer.More && a.left.Add(-1) == 0
	f := protocol.AddMessage(protocol.Begin(protocol.TypeAnswer).Uint(a.Client).Uint(a.Number).Bool(done), &answer)
	err := b.send(ctx, a.line, f, &answer)
	if errors.Is(err, driver.ErrDisconnected) {
		return nil // the hub that knew the sender has ended, and the sender has its error
	}
	return err
}

// Flush implements [driver.Driver]. If another hub takes over meanwhile, Flush
// goes on with that hub. A loss is reported by each running Flush, and by those
// that begin until one of them has reported it (S28).
func (b *Bus) Flush(ctx context.Context) error {
	all, reported := b.out.confirmations.losses()
	for {
		if b.closed.Load() {
			return driver.ErrClosed
		}
		err := b.flush(ctx)
		if errors.Is(err, driver.ErrDisconnected) && ctx.Err() == nil && b.node.mayReturn() {
			continue
		}
		if errors.Is(err, driver.ErrDisconnected) && ctx.Err() == nil {
			err = b.unsent(ctx)
		}
		complete := err == nil
		if err != nil && ctx.Err() != nil { // S21
			if n := b.out.unconfirmed(); n > 0 {
				err = fmt.Errorf("%d accepted messages not confirmed: %w", n, err)
			} else if !b.closed.Load() { // as in unsent
				err = nil // the hub has all of them
			}
		}
		return errors.Join(b.out.confirmations.report(all, reported, complete), err)
	}
}

// unsent returns an error about the events that no hub will get, because none comes
// any more. Without such events nothing is left to flush.
func (b *Bus) unsent(ctx context.Context) error {
	select {
	case <-b.node.Done(): // the events on the line that ended are counted
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", b.disconnection(), ctx.Err())
	}
	if n := b.out.events(); n > 0 {
		return fmt.Errorf("%w: %d messages were not sent", b.disconnection(), n)
	}
	if b.closed.Load() { // Close discards messages
		return driver.ErrClosed
	}
	return nil
}

// flush waits until the hub has handled all messages that were accepted before. It
// does not wait for a hub if nothing is left.
func (b *Bus) flush(ctx context.Context) error {
	if b.out.isIdle() {
		return nil
	}
	line, err := b.out.await(ctx)
	if err != nil {
		return err
	}
	return b.flushBy(ctx, line)
}

// flushBy is flush for the hub at the end of line. It returns ErrDisconnected if the
// hub leaves: the queue waits for the next one (S21).
func (b *Bus) flushBy(ctx context.Context, line *protocol.Line) error {
	x := &lineBound{line: line}
	err := b.syncs.waitBy(ctx, func(f *protocol.Frame) error {
		x.frame = f
		err := b.out.send(ctx, x, &driver.Message{})
		if err != nil {
			f.Free()
		}
		line.Flush()
		return err
	})
	if err != nil {
		return err
	}
	b.out.confirmations.confirm(line, x.handed, false)
	if x.ahead {
		return driver.ErrDisconnected
	}
	return nil
}

// Close implements [driver.Driver].
func (b *Bus) Close(ctx context.Context) (err error) {
	if b.closed.Swap(true) {
		return nil
	}
	if line := b.leaveAll(); line != nil {
		err = b.flushBy(ctx, line) // sends the queue
		if errors.Is(err, driver.ErrDisconnected) {
			err = nil // no subscription is left to end
		}
	}
	if n := b.out.events(); err == nil && n > 0 {
		err = fmt.Errorf("%w: %d accepted messages not confirmed", driver.ErrDisconnected, n) // S4
	}
	b.calls.Lock()
	b.quiet = true
	b.calls.Unlock()
	b.out.close()
	b.syncs.fail(driver.ErrClosed) // S22: the hub may never answer
	for _, t := range b.tables {
		t.Clear()
	}
	return err
}

// callFront calls the front, unless the bus has stopped its calls.
func (b *Bus) callFront(what func(driver.Front)) {
	b.mu.RLock()
	f := b.front
	b.mu.RUnlock()
	b.calls.RLock()
	defer b.calls.RUnlock()
	if f != nil && !b.quiet {
		what(f)
	}
}

// connected handles a new connection to a hub. It registers every subscription at
// the hub, and reports the gap to it before the reader handles a message for it. A
// subscription that ends meanwhile waits for the reader, too: its End does not
// report the gap again.
//
// There is no gap if all of this holds: the hub before has sent everything, this hub
// is the next one after it, and opens with the subscriptions of this process. No
// process publishes at a hub before it opens.
func (b *Bus) connected(s *session) {
	if b.closed.Load() {
		return
	}
	b.spared = b.rejoin(s.line)
	if !s.shut || b.left == 0 || s.follows != b.left {
		b.absent()
	}
	b.left = 0
}

// absent reports the gap to the subscriptions that may have missed messages.
func (b *Bus) absent() {
	for _, x := range b.spared {
		b.gap(x, -1)
	}
	b.spared = nil
}

// whole handles the hub's report that it has sent everything and leaves. A hub that
// opened without this process has reported that before.
func (b *Bus) whole(s *session) { b.left = s.self }

// opened handles the hub's report that it knows the subscriptions of all
// processes. Messages that were held back now go to the hub.
func (b *Bus) opened(s *session) {
	b.spared = nil
	if b.closed.Load() {
		return
	}
	b.out.resume(s.line)
	b.syncs.begin(s.line, func(err error) {
		if err == nil {
			b.callFront(driver.Front.Connected)
		}
	})
}

// disconnected handles the end of the connection to the hub.
func (b *Bus) disconnected(why error) {
	err := fmt.Errorf("%w: %w", driver.ErrDisconnected, why)
	b.mu.Lock()
	b.down, b.line = err, nil
	b.mu.Unlock()
	lost := b.out.cut()
	b.syncs.fail(err)
	b.callFront(func(f driver.Front) {
		f.Disconnected(err)
		if lost.messages > 0 {
			f.Lost(lost.messages, lost.bytes, err) // S28
		}
	})
}

// withoutHub handles an attempt to find the next hub that has failed: why is the
// reason from now on why there is none (S23).
func (b *Bus) withoutHub(why error) {
	err := fmt.Errorf("%w: %w", driver.ErrDisconnected, why)
	b.mu.Lock()
	b.down = err
	b.mu.Unlock()
	b.callFront(func(f driver.Front) { f.Disconnected(err) })
}

// leaving handles the announcement that the hub shuts down in order: messages
// wait for the next hub (S21), and this hub confirms the messages that it has.
func (b *Bus) leaving() {
	b.out.pause()
	b.out.confirmations.ask()
}
