package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/wire"
)

// outbox is where messages leave the process: on the line to the hub, or, while
// there is none, into memory until there is one again. Both are bounded.
type outbox struct {
	node  *Node
	limit int
	line  atomic.Pointer[wire.Line] // nil while messages are held back

	mu   sync.Mutex
	held []driver.Message
	size int           // of these
	room chan struct{} // closed and replaced when they have left
}

// weight is what a message that is held back counts beside its data and header.
const weight = 256

func (o *outbox) open(n *Node) {
	o.node, o.limit, o.room = n, n.config.Buffer, make(chan struct{})
}

// send queues the frame of m once there is room on the line. It fails with
// ErrOverloaded when there is none in time, and with ErrDisconnected if the
// line has ended.
func (o *outbox) send(ctx context.Context, line *wire.Line, f *wire.Frame, m *driver.Message) error {
	err := line.Queue(f, o.limit)
	if errors.Is(err, wire.ErrFull) {
		return o.sendLater(ctx, line, f, m)
	}
	return ended(err)
}

// sendLater is send for a line that is full.
func (o *outbox) sendLater(ctx context.Context, line *wire.Line, f *wire.Frame, m *driver.Message) error {
	ctx, cancel := driver.RoomContext(ctx, m) // S6
	defer cancel()
	for {
		line.FlushSoon()
		if line.Room(ctx, o.limit) != nil && ctx.Err() != nil {
			return fmt.Errorf("%w: %d bytes wait for the hub: %w", driver.ErrOverloaded, line.Backlog(), ctx.Err())
		}
		if err := line.Queue(f, o.limit); !errors.Is(err, wire.ErrFull) {
			return ended(err)
		}
	}
}

// ended returns the error of a line that takes no more frames.
func ended(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
}

// hold keeps a message until there is a hub, and reports whether it has: false
// if there is a hub by now. dead is a line that has ended, of which the node may
// not know yet.
func (o *outbox) hold(ctx context.Context, dead *wire.Line, m *driver.Message) (held bool, err error) {
	held, room := o.tryHold(dead, m)
	if room == nil {
		return held, nil
	}
	ctx, cancel := driver.RoomContext(ctx, m) // S6
	defer cancel()
	for ; ; held, room = o.tryHold(dead, m) {
		if room == nil {
			return held, nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return false, fmt.Errorf("%w: %d bytes wait for a hub: %w", driver.ErrOverloaded, o.limit, ctx.Err())
		case <-o.node.Done():
			return false, fmt.Errorf("%w: %d bytes wait, and the hub does not come back", driver.ErrOverloaded, o.limit)
		}
	}
}

// tryHold returns what to wait for if there is no room.
func (o *outbox) tryHold(dead *wire.Line, m *driver.Message) (held bool, room <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if line := o.line.Load(); line != nil && line != dead {
		return false, nil
	}
	if o.size >= o.limit {
		return false, o.room
	}
	o.held = append(o.held, kept(m))
	o.size += weight + m.Size()
	return true, nil
}

// release sends what was held back by line, and gives it to serve, in order;
// then messages leave by line at once.
func (o *outbox) release(line *wire.Line, serve func(*driver.Message)) error {
	for {
		held := o.take(line)
		if held == nil {
			return nil
		}
		for i := range held {
			f := addMessage(wire.Begin(typeEvent), &held[i])
			err := line.Queue(f, 0)
			f.Free()
			if err != nil {
				o.putBack(held[i:])
				return err
			}
			serve(&held[i])
		}
		line.Flush()
	}
}

// take takes all that is held back, or, if that is nothing, opens the line.
func (o *outbox) take(line *wire.Line) []driver.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := o.held
	o.held, o.size = nil, 0
	close(o.room)
	o.room = make(chan struct{})
	if len(held) == 0 {
		o.line.Store(line)
		return nil
	}
	return held
}

// putBack holds again what could not be sent, before what has come meanwhile.
func (o *outbox) putBack(held []driver.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = append(held, o.held...)
	for i := range held {
		o.size += weight + held[i].Size()
	}
}

// block makes messages be held back.
func (o *outbox) block() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line.Store(nil)
}

// drop forgets what is held back.
func (o *outbox) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held, o.size = nil, 0
	close(o.room)
	o.room = make(chan struct{})
}

// syncs are questions to the hub whether it has acted on all that was sent
// before.
type syncs struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]func(error)
}

// wait returns when the hub has acted on all that was sent by line before.
func (s *syncs) wait(ctx context.Context, line *wire.Line) error {
	done := make(chan error, 1)
	number := s.begin(line, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		s.end(number)
		return ctx.Err()
	}
}

// begin asks the hub, and calls then when it has answered, or with an error
// when the line has ended.
func (s *syncs) begin(line *wire.Line, then func(error)) (number uint64) {
	s.mu.Lock()
	s.last++
	number = s.last
	if s.waiting == nil {
		s.waiting = make(map[uint64]func(error))
	}
	s.waiting[number] = then
	s.mu.Unlock()
	if err := line.Send(wire.Begin(typeSync).Uint(number)); err != nil {
		s.answer(number, fmt.Errorf("%w: %w", driver.ErrDisconnected, err))
	}
	return number
}

// answer answers one question.
func (s *syncs) answer(number uint64, err error) {
	if then := s.end(number); then != nil {
		then(err)
	}
}

func (s *syncs) end(number uint64) func(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	then := s.waiting[number]
	delete(s.waiting, number)
	return then
}

// fail answers all questions with err.
func (s *syncs) fail(err error) {
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, then := range waiting {
		then(err)
	}
}
