package cluster

import (
	"context"
	"slices"
	"sync"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// interestKey is the identity of an interest. The hub knows it once, however
// many subscriptions of this process share it.
type interestKey struct {
	kind           driver.Kind
	pattern, group string
}

// interest stands for all subscriptions of this process with the same key.
type interest struct {
	interestKey
	number  uint64
	members []*member // replaced, never modified; guarded by Bus.mu
}

// member is a subscription of this process.
type member struct {
	bus  *Bus
	in   *interest
	sink driver.Sink

	once sync.Once     // guards leave
	gone chan struct{} // closed when no message is on its way to the member any more
}

// Subscribe implements [driver.Driver].
func (b *Bus) Subscribe(ctx context.Context, s driver.Subscription) (driver.Interest, error) {
	x, line, err := b.enter(s)
	if err != nil {
		return nil, err
	}
	if err := b.syncs.wait(ctx, line); err != nil {
		x.leave()
		return nil, err
	}
	return x, nil
}

// enter adds a subscription and registers it at the hub.
func (b *Bus) enter(s driver.Subscription) (*member, *protocol.Line, error) {
	key := interestKey{s.Kind, s.Pattern, s.Group}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed.Load():
		return nil, nil, driver.ErrClosed
	case b.line == nil:
		return nil, nil, b.down
	}
	in := b.interests[key]
	news := in == nil
	if news {
		b.last++
		in = &interest{interestKey: key, number: b.last}
		b.interests[key], b.byNumber[in.number] = in, in
	}
	x := &member{bus: b, in: in, sink: s.Sink}
	in.members = append(slices.Clip(in.members), x)
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

func (in *interest) join(line *protocol.Line) {
	f := protocol.Begin(protocol.TypeJoin).Uint(in.number).Byte(byte(in.kind)).Uint(uint64(len(in.members))).String(in.pattern).String(in.group)
	_ = line.Queue(f, 0)
	f.Free()
}

// resize reports the number of members to the hub. Without a group the hub does
// not use that number.
func (in *interest) resize(line *protocol.Line) {
	if in.group == "" {
		return
	}
	f := protocol.Begin(protocol.TypeMembers).Uint(in.number).Uint(uint64(len(in.members)))
	_ = line.Queue(f, 0)
	f.Free()
}

func (in *interest) leave(line *protocol.Line) {
	f := protocol.Begin(protocol.TypeLeave).Uint(in.number)
	_ = line.Queue(f, 0)
	f.Free()
}

// End implements [driver.Interest].
func (x *member) End(ctx context.Context) error {
	gone := x.leave()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		x.bus.remove(x)
		return ctx.Err()
	}
}

// leave ends the interest of the member. It returns a channel that is closed
// when no message is on its way to the member any more. Until then the member
// gets those messages, if no other member of its group takes them.
func (x *member) leave() <-chan struct{} {
	x.once.Do(func() {
		x.gone = make(chan struct{})
		line := x.bus.retire(x)
		if line == nil {
			x.bus.bury(x)
			return
		}
		x.bus.syncs.begin(line, func(error) { x.bus.bury(x) })
	})
	return x.gone
}

// retire reports to the hub that x leaves, unless there is no hub.
func (b *Bus) retire(x *member) *protocol.Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := x.in
	last := len(in.members) == 1
	if last {
		delete(b.interests, in.interestKey)
	} else {
		in.members = slices.DeleteFunc(slices.Clone(in.members), func(o *member) bool { return o == x })
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

// bury removes x, when no message is on its way to it any more. Its interest
// may still have another member, which leaves last.
func (b *Bus) bury(x *member) {
	b.remove(x)
	b.mu.Lock()
	if in := x.in; b.interests[in.interestKey] != in && len(in.members) == 0 {
		delete(b.byNumber, in.number)
	}
	b.mu.Unlock()
	close(x.gone)
}

// remove ends the deliveries to x.
func (b *Bus) remove(x *member) {
	if x.in.group == "" {
		b.tables[x.in.kind].Remove(x.in.pattern, "", x)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	x.in.members = slices.DeleteFunc(slices.Clone(x.in.members), func(o *member) bool { return o == x })
}

// members returns all subscriptions.
func (b *Bus) members() (all []*member) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, in := range b.interests {
		all = append(all, in.members...)
	}
	return all
}

// rejoin registers every interest at a new hub.
func (b *Bus) rejoin(line *protocol.Line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.line, b.down = line, nil
	for _, in := range b.interests {
		in.join(line)
	}
}

// leaveAll ends every interest. It returns nil if there is no hub.
func (b *Bus) leaveAll() *protocol.Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := b.line
	if line != nil {
		for _, in := range b.interests {
			in.leave(line)
		}
	}
	b.line, b.interests = nil, make(map[interestKey]*interest)
	return line
}
