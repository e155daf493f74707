package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/internal/routes"
	"github.com/megaframework/mega/internal/group"
)

// registrationKey is the identity of a registration. The hub knows it once,
// however many subscriptions of this process share it.
type registrationKey struct {
	kind           driver.Kind
	pattern, group string
}

// registration stands for all subscriptions of this process with the same key.
type registration struct {
	registrationKey
	number        uint64
	subscriptions routes.List[*subscription]
	staying       int          // those that do not leave; guarded by Bus.mu
	returned      atomic.Bool  // events of the group were given back to the hub
	strays        atomic.Int64 // messages that no process has taken after the last subscription here had left
}

// subscription is a subscription of this process.
type subscription struct {
	bus  *Bus
	in   *registration
	sink driver.Sink
	left bool // retire was called; guarded by Bus.mu

	once sync.Once     // guards leave
	gone chan struct{} // closed when no message is on its way to the subscription any more
	err  error         // set before gone is closed: messages may have been lost, and no gap is reported
}

// Subscribe implements [driver.Driver]. If the hub ends meanwhile, or has just ended,
// Subscribe goes on with the next one (S7). The subscription stays until then: it may have
// received messages, and gets the gap as others do (S10).
func (b *Bus) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	x, line, err := b.enter(s)
	for errors.Is(err, driver.ErrDisconnected) && b.awaitHub(ctx) != nil {
		x, line, err = b.enter(s)
	}
	if err != nil {
		return nil, err
	}
	err = b.syncs.wait(ctx, line)
	for errors.Is(err, driver.ErrDisconnected) {
		if line = b.awaitHub(ctx); line == nil {
			break
		}
		err = b.syncs.wait(ctx, line)
	}
	if err == nil {
		return x, nil
	}
	_ = x.End(ctx) // it has not begun
	return nil, err
}

// awaitHub waits for the next hub until ctx ends. It returns nil if there is none.
func (b *Bus) awaitHub(ctx context.Context) *protocol.Line {
	if !b.node.mayReturn() || !group.Sleep(ctx, time.Millisecond) { // until the node has noticed the end of the line
		return nil
	}
	line, err := b.out.await(ctx)
	if err != nil {
		return nil
	}
	return line
}

// enter adds a subscription and registers it at the hub.
func (b *Bus) enter(s driver.Subscription) (*subscription, *protocol.Line, error) {
	key := registrationKey{s.Kind, s.Pattern, s.Group}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed.Load():
		return nil, nil, driver.ErrClosed
	case b.line == nil:
		return nil, nil, b.down
	}
	in := b.registrations[key]
	news := in == nil
	if news {
		b.last++
		in = &registration{registrationKey: key, number: b.last}
		b.registrations[key], b.byNumber[in.number] = in, in
	}
	x := &subscription{bus: b, in: in, sink: s.Sink}
	in.subscriptions.Add(x)
	in.staying++
	if s.Group == "" {
		b.tables[s.Kind].Add(s.Pattern, "", x)
	}
	if news {
		in.join(b.line)
	} else {
		in.resize(b.line)
	}
	return x, b.line, nil
}

// The hub receives changes in the order in which they are made, because they
// are queued under Bus.mu. The frames are not written yet here, and a waiter
// for the answer gets an error if the line has ended.

func (in *registration) join(line *protocol.Line) {
	f := protocol.Begin(protocol.TypeJoin).Uint(in.number).Byte(byte(in.kind)).Uint(uint64(in.staying)).String(in.pattern).String(in.group)
	_ = line.Queue(f, 0)
	f.Free()
}

// resize reports the number of subscriptions to the hub, which uses it for a group,
// and reports the losses of the registration first.
func (in *registration) resize(line *protocol.Line) {
	f := protocol.Begin(protocol.TypeMembers).Uint(in.number).Uint(uint64(in.staying))
	_ = line.Queue(f, 0)
	f.Free()
}

func (in *registration) leave(line *protocol.Line) {
	f := protocol.Begin(protocol.TypeLeave).Uint(in.number)
	_ = line.Queue(f, 0)
	f.Free()
}

// End implements [driver.Registration]. Earlier events of this process reach the
// subscription, unless they wait for the next hub.
func (x *subscription) End(ctx context.Context) error {
	passed := x.bus.out.awaitPassed(ctx)
	gone := x.leave()
	select {
	case <-gone:
		if x.err == nil && !passed { // S4
			return driver.ErrDisconnected
		}
		return x.err
	case <-ctx.Done():
		x.bus.remove(x)
		return ctx.Err()
	}
}

// leave ends the registration of the subscription. It returns a channel that is
// closed when no message is on its way to the subscription any more. Until then
// the subscription gets those messages, if no other subscription of its group
// takes them.
func (x *subscription) leave() <-chan struct{} {
	x.once.Do(func() {
		x.gone = make(chan struct{})
		line := x.bus.retire(x)
		if line == nil {
			x.bus.bury(x, driver.ErrDisconnected)
			return
		}
		x.bus.syncs.begin(line, func(err error) {
			if err == nil && x.in.returned.Load() { // the hub decides about the events that it got back before
				x.bus.syncs.begin(line, func(err error) { x.bus.bury(x, err) })
				return
			}
			x.bus.bury(x, err)
		})
	})
	return x.gone
}

// retire reports to the hub that x leaves, unless there is no hub. Until bury, a
// subscription without a group still gets the messages and the gaps on their way.
// In a group, others get them, if there are any.
func (b *Bus) retire(x *subscription) *protocol.Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := x.in
	x.left = true
	in.staying--
	last := in.staying == 0
	switch {
	case last:
		delete(b.registrations, in.registrationKey)
	case in.group != "":
		in.subscriptions.Remove(x)
	}
	if b.line == nil {
		return nil
	}
	if last {
		in.leave(b.line)
	} else {
		in.resize(b.line)
	}
	return b.line
}

// isStanding reports whether a registration has a subscription that does not leave.
func (b *Bus) isStanding(in *registration) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return in.staying > 0
}

// bury removes x, when no message is on its way to it any more. Its registration
// may still have another subscription, which leaves last. err is not nil if the
// connection has ended before.
func (b *Bus) bury(x *subscription, err error) {
	if lost := x.in.strays.Swap(0); lost > 0 {
		b.gap(x, int(lost)) // S4
	}
	b.remove(x)
	b.mu.Lock()
	if in := x.in; b.registrations[in.registrationKey] != in && in.subscriptions.Len() == 0 {
		delete(b.byNumber, in.number)
	}
	b.mu.Unlock()
	x.err = err // S4
	close(x.gone)
}

// remove ends the deliveries to x.
func (b *Bus) remove(x *subscription) {
	if x.in.group == "" {
		b.tables[x.in.kind].Remove(x.in.pattern, "", x)
	}
	x.in.subscriptions.Remove(x)
}

// rejoin registers every registration at a new hub, and returns their
// subscriptions. A subscription that is not among them has ended during the
// outage, and its End reports the gap.
func (b *Bus) rejoin(line *protocol.Line) (all []*subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.line, b.down = line, nil
	for _, in := range b.registrations {
		in.join(line)
		for _, x := range in.subscriptions.All() {
			if !x.left {
				all = append(all, x)
			}
		}
	}
	return all
}

// leaveAll ends every registration. It returns nil if there is no hub.
func (b *Bus) leaveAll() *protocol.Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := b.line
	if line != nil {
		for _, in := range b.registrations {
			in.leave(line)
		}
	}
	b.line, b.registrations = nil, make(map[registrationKey]*registration)
	return line
}
