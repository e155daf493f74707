package hub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// clientBus is the message state of a client in the hub.
type clientBus struct {
	// full is true while more bytes wait for the client than the hub allows:
	// further messages for it are counted, until half of the bytes are written.
	full    atomic.Bool
	filling sync.WaitGroup // the goroutine that waits for that
	asks    bool           // belongs to the reader: the client is registered in hubBus.askers
	owes    atomic.Int64   // the size of owed

	mu     sync.Mutex
	gone   bool
	wishes map[uint64]*wish
	lost   map[*wish]int             // while full: how many messages were not sent
	failed []uint64                  // while full: the client's requests whose answers were not sent
	owed   map[protocol.Demand]*debt // requests that the client has not answered yet
	writer *time.Timer               // calls writeOff; nil while owed is empty
	probed bool                      // the client was pinged, after heard frames
	heard  uint64
}

// debt is a request that a client has not answered yet.
type debt struct {
	asker    *Client
	until    int64  // when the sender stops waiting, in nanoseconds since 1970; 0 is never
	answered bool   // guarded by the bus.mu of the client that has the request
	share    *share // nil if no other client has the request
}

// share is the common state of a request that several clients have.
type share struct {
	mu   sync.Mutex
	left int  // how many clients still have the request
	dead bool // one of the clients has ended

	answered bool
}

// maxFailed is how many failed requests are remembered while a client takes no
// messages; further ones end at their deadlines.
const maxFailed = 1 << 16

// parcel is a message for one client, with its subscriptions that receive it.
type parcel struct {
	plain  []*wish // wishes without a group; one is enough to serve all of them
	groups []*wish
	tail   []byte // the message
	demand *protocol.Demand
	debt   *debt // the client's debt once a demand is sent
}

// outcome is the result of delivering a parcel.
type outcome uint8

const (
	sent    outcome = iota
	dropped         // not sent, but counted
	refused         // the client has ended
)

// deliver queues a parcel for p. It leaves out groups whose wish has ended, and
// returns them.
func (b *batch) deliver(p *Client, x *parcel) (o outcome, again []*wish) {
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
	case errors.Is(err, protocol.ErrFull):
		p.fill()
		bus.count(x)
		return dropped, again
	default: // the line has ended, which the client's own reader will notice
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

// standing separates the wishes that are valid from those that have ended.
// Nearly always all are valid.
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

func (x *parcel) frame() *protocol.Frame {
	var f *protocol.Frame
	if x.demand != nil {
		f = protocol.Begin(protocol.TypeDemand).Uint(x.demand.Asker).Uint(x.demand.ID)
	} else {
		f = protocol.Begin(protocol.TypeDeliver)
	}
	f.Bool(len(x.plain) > 0).Uint(uint64(len(x.groups)))
	for _, w := range x.groups {
		f.Uint(w.number)
	}
	return f.Rest(x.tail)
}

// count counts a parcel that was not sent, for each of its wishes. The caller
// holds b.mu.
func (b *clientBus) count(x *parcel) {
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

func (p *Client) owe(d protocol.Demand, x *debt) {
	b := &p.bus
	if b.owed == nil {
		b.owed = make(map[protocol.Demand]*debt)
	}
	b.owed[d] = x
	b.owes.Store(int64(len(b.owed)))
	if b.writer == nil {
		b.writer = time.AfterFunc(overdue, p.writeOff)
	}
}

// overdue is how long a request may still count after its deadline.
const overdue = 250 * time.Millisecond

// maxOverdue is how many unanswered requests of a silent client are remembered.
const maxOverdue = 1024

// writeOff drops requests whose senders have stopped waiting. For example, a
// request that has expired before its turn is never answered. First the hub
// pings the client. A client that stands still keeps its debts, so that further
// requests pass over it as long as it does.
func (p *Client) writeOff() {
	if p.sift() {
		_ = p.line.Send(protocol.Begin(protocol.TypeCall).Uint(0).String("ping")) // any frame counts as an answer
	}
}

// sift reports whether the hub must ping the client.
func (p *Client) sift() (probe bool) {
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

// forget removes a debt. The caller holds b.mu.
func (b *clientBus) forget(d protocol.Demand) {
	delete(b.owed, d)
	b.owes.Store(int64(len(b.owed)))
}

// reply queues a frame with an answer to a request of p. If there is no room,
// the request fails.
func (b *batch) reply(p *Client, id uint64, f *protocol.Frame) {
	defer f.Free()
	bus := &p.bus
	bus.mu.Lock()
	defer bus.mu.Unlock()
	if bus.gone {
		return
	}
	if !bus.full.Load() {
		if err := b.queue(p, f, int(p.hub.backlog.Load())); !errors.Is(err, protocol.ErrFull) {
			return // a line that has ended has no waiter
		}
		p.fill()
	}
	if len(bus.failed) < maxFailed {
		bus.failed = append(bus.failed, id)
	}
}

// fill starts a period in which p takes no messages. The period ends when half
// of the waiting bytes are written: then the losses are reported to p. The
// caller holds p.bus.mu.
func (p *Client) fill() {
	p.bus.full.Store(true)
	p.bus.filling.Go(func() {
		if p.line.Room(context.Background(), max(int(p.hub.backlog.Load())/2, 1)) == nil { // otherwise the line has ended
			p.tellLosses()
			p.line.Flush()
		}
	})
}

// tellLosses ends the period in which p took no messages, and reports the
// losses to p.
func (p *Client) tellLosses() {
	b := &p.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	for w, n := range b.lost {
		if !w.ended.Load() {
			p.queue(protocol.Begin(protocol.TypeGap).Uint(w.number).Uint(uint64(n)))
		}
	}
	for _, id := range b.failed {
		p.queue(protocol.Begin(protocol.TypeFailed).Uint(id).Byte(protocol.FailFull))
	}
	b.lost, b.failed = nil, nil
	b.full.Store(false)
}

// queue queues a small frame, regardless of the bytes that wait already.
func (p *Client) queue(f *protocol.Frame) {
	_ = p.line.Queue(f, 0) // a line that has ended has no reader
	f.Free()
}
