package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/cluster/wire"
)

// peerBus is what a hub knows of a peer about messages.
type peerBus struct {
	// full says that more than the hub allows waits for the peer: messages
	// for it are counted, until half of it is gone.
	full    atomic.Bool
	filling sync.WaitGroup // who waits for that
	asks    bool           // the reader's: the hub knows it by its number
	owes    atomic.Int64   // how much is owed

	mu     sync.Mutex
	gone   bool
	wishes map[uint64]*wish
	lost   map[*wish]int    // while full, messages that were not sent
	failed []uint64         // while full, requests of the peer whose answers were not
	owed   map[demand]*debt // requests that the peer has, and has not answered
	writer *time.Timer      // writes off what is owed; nil while nothing is
	probed bool             // the peer was asked for a sign of life, after heard frames
	heard  uint64
}

// demand names a request: its asker's number, and the asker's number of it.
type demand struct{ asker, id uint64 }

// debt is a request that a peer has.
type debt struct {
	asker    *Peer
	until    int64  // when its asker waits no more, in nanoseconds since 1970; 0 is never
	answered bool   // guarded by the bus.mu of the peer that has it
	share    *share // nil if no other peer has it
}

// share is a request that several peers have.
type share struct {
	mu   sync.Mutex
	left int  // of the peers
	dead bool // one of them is

	answered bool
}

// maxFailed is how many requests are remembered to have failed, while a peer
// takes no messages; the others end at their deadlines.
const maxFailed = 1 << 16

// parcel is what is sent to one peer: a message, and who there it is for.
type parcel struct {
	plain  []*wish // those without a group; all are served if there is one
	groups []*wish
	tail   []byte // the message
	demand *demand
	debt   *debt // what the peer owes from then on, for a demand
}

// outcome is what has become of a parcel.
type outcome uint8

const (
	sent    outcome = iota
	dropped         // and counted
	refused         // the peer is gone
)

// deliver queues a parcel for p. A group whose interest has ended is left out,
// and handed back.
func (b *batch) deliver(p *Peer, x *parcel) (o outcome, again []*wish) {
	bus := &p.bus
	bus.mu.Lock()
	defer bus.mu.Unlock()
	if bus.gone {
		return refused, x.groups
	}
	x.groups, again = standing(x.groups)
	if len(x.plain)+len(x.groups) == 0 {
		return refused, again
	}
	f := x.frame()
	defer f.Free()
	if bus.full.Load() {
		bus.count(x)
		return dropped, again
	}
	switch err := b.queue(p, f, int(p.hub.backlog.Load())); {
	case err == nil:
	case errors.Is(err, wire.ErrFull):
		p.fill()
		bus.count(x)
		return dropped, again
	default: // the line has ended, of which the peer's own reader will hear
		for _, w := range x.groups {
			w.ended.Store(true)
		}
		return refused, append(again, x.groups...)
	}
	if x.demand != nil {
		p.owe(*x.demand, x.debt)
	}
	return sent, again
}

// standing parts the interests that stand from those that have ended. Nearly
// always all stand.
func standing(wishes []*wish) (stand, ended []*wish) {
	for i, w := range wishes {
		if w.ended.Load() {
			ended = append(ended, w)
			continue
		}
		if len(ended) > 0 {
			wishes[i-len(ended)] = w
		}
	}
	return wishes[:len(wishes)-len(ended)], ended
}

func (x *parcel) frame() *wire.Frame {
	var f *wire.Frame
	if x.demand != nil {
		f = wire.Begin(typeDemand).Uint(x.demand.asker).Uint(x.demand.id)
	} else {
		f = wire.Begin(typeDeliver)
	}
	f.Bool(len(x.plain) > 0).Uint(uint64(len(x.groups)))
	for _, w := range x.groups {
		f.Uint(w.number)
	}
	return f.Rest(x.tail)
}

// count counts a parcel that was not sent, for each interest that it was for.
// The caller holds b.mu.
func (b *peerBus) count(x *parcel) {
	if b.lost == nil {
		b.lost = make(map[*wish]int)
	}
	for _, w := range x.plain {
		if !w.ended.Load() {
			b.lost[w]++
		}
	}
	for _, w := range x.groups {
		b.lost[w]++
	}
}

func (p *Peer) owe(d demand, x *debt) {
	b := &p.bus
	if b.owed == nil {
		b.owed = make(map[demand]*debt)
	}
	b.owed[d] = x
	b.owes.Store(int64(len(b.owed)))
	if b.writer == nil {
		b.writer = time.AfterFunc(overdue, p.writeOff)
	}
}

// overdue is how long after its deadline a request may count still.
const overdue = 250 * time.Millisecond

// maxOverdue is how many requests a silent peer is remembered to owe.
const maxOverdue = 1024

// writeOff forgets requests whose askers wait no more: one that has expired before
// its turn, for example, is never answered. First the peer is asked for a sign of
// life. A peer that stands still keeps its debts, so that requests pass over it
// for as long as it does.
func (p *Peer) writeOff() {
	if p.sift() {
		_ = p.line.Send(wire.Begin(typeCall).Uint(0).String("ping")) // any frame is an answer
	}
}

// sift reports whether the peer is to be asked for a sign of life.
func (p *Peer) sift() (probe bool) {
	now := time.Now().UnixNano()
	b := &p.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	lives := b.probed && p.heard.Load() != b.heard
	for d, x := range b.owed {
		if x.until == 0 || x.until >= now {
			continue
		}
		if lives || len(b.owed) > maxOverdue {
			b.forget(d)
		} else if !b.probed {
			probe = true
		}
	}
	if probe || lives {
		b.probed, b.heard = probe, p.heard.Load()
	}
	if len(b.owed) == 0 || b.gone {
		b.writer = nil
		return false
	}
	b.writer.Reset(overdue)
	return probe
}

// forget takes a debt out. The caller holds b.mu.
func (b *peerBus) forget(d demand) {
	delete(b.owed, d)
	b.owes.Store(int64(len(b.owed)))
}

// reply queues a frame with an answer to a request of p. Where there is no room,
// the request has failed.
func (b *batch) reply(p *Peer, id uint64, f *wire.Frame) {
	defer f.Free()
	bus := &p.bus
	bus.mu.Lock()
	defer bus.mu.Unlock()
	if bus.gone {
		return
	}
	if !bus.full.Load() {
		if err := b.queue(p, f, int(p.hub.backlog.Load())); !errors.Is(err, wire.ErrFull) {
			return // a line that has ended has no asker
		}
		p.fill()
	}
	if len(bus.failed) < maxFailed {
		bus.failed = append(bus.failed, id)
	}
}

// fill begins a time in which p takes no messages. It ends when half of what
// waits is gone: then p is told what it has missed. The caller holds p.bus.mu.
func (p *Peer) fill() {
	p.bus.full.Store(true)
	p.bus.filling.Go(func() {
		if p.line.Room(context.Background(), max(int(p.hub.backlog.Load())/2, 1)) == nil { // else the line has ended
			p.tellLosses()
			p.line.Flush()
		}
	})
}

// tellLosses ends the time in which p took no messages.
func (p *Peer) tellLosses() {
	b := &p.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	for w, n := range b.lost {
		if !w.ended.Load() {
			p.queue(wire.Begin(typeGap).Uint(w.number).Uint(uint64(n)))
		}
	}
	for _, id := range b.failed {
		p.queue(wire.Begin(typeFailed).Uint(id).Byte(failFull))
	}
	b.lost, b.failed = nil, nil
	b.full.Store(false)
}

// queue queues a frame that is small, whatever waits.
func (p *Peer) queue(f *wire.Frame) {
	_ = p.line.Queue(f, 0) // a line that has ended has no reader
	f.Free()
}
