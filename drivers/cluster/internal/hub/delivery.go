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
	full       atomic.Bool
	filling    sync.WaitGroup // the goroutine that waits for that
	requester  bool           // belongs to the reader: the client is registered in hubBus.requesters
	unanswered atomic.Int64   // the size of pending

	mu            sync.Mutex
	registrations map[uint64]*registration
	lost          map[*registration]int           // while full: how many messages were not sent
	failed        []uint64                        // while full: the client's requests whose answers were not sent
	pending       map[protocol.RequestID]*pending // requests that the client has not answered yet
	expiry        *time.Timer                     // calls dropExpired; nil while pending is empty
	probed        bool                            // the client was pinged, after framesAtProbe frames
	framesAtProbe uint64
}

// pending is a request that a client has not answered yet.
type pending struct {
	requester *Client
	until     int64          // when the sender stops waiting, in nanoseconds since 1970; 0 is never
	answered  bool           // guarded by the bus.mu of the client that has the request, as is more
	more      int            // how many times more the client has the request, in place of other clients
	shared    *sharedRequest // nil if no other client has the request
}

// sharedRequest is the common state of a request that several clients have.
type sharedRequest struct {
	mu   sync.Mutex
	left int  // how many clients still have the request
	dead bool // one of the clients has ended
	full bool // one of the clients has no room for it

	answered bool
}

// maxFailed is how many failed requests are remembered while a client takes no
// messages; further ones end at their deadlines.
const maxFailed = 1 << 16

// delivery is a message for one client, with its subscriptions that receive it.
type delivery struct {
	plain   []*registration // registrations without a group; one is enough to serve all of them
	groups  []*registration
	tail    []byte // the message
	request *protocol.RequestID
	pending *pending // the client's pending request once a request is sent
}

// outcome is the result of deliver.
type outcome uint8

const (
	sent    outcome = iota
	dropped         // not sent, but counted
	refused         // the client has ended
)

// deliver queues a delivery for c. It leaves out groups whose registration has
// ended, and returns them.
func (b *batch) deliver(c *Client, x *delivery) (o outcome, again []*registration) {
	bus := &c.bus
	bus.mu.Lock()
	defer bus.mu.Unlock()
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
	err := b.queue(c, f, int(c.hub.backlog.Load()))
	_, oversized := errors.AsType[*protocol.FrameError](err)
	switch {
	case err == nil:
	case errors.Is(err, protocol.ErrFull):
		c.fill()
		bus.count(x)
		return dropped, again
	case oversized: // beside the numbers of its receivers: the line goes on
		bus.count(x)
		for r := range bus.lost {
			c.reportLoss(r) // S4
		}
		b.touch(c)
		return dropped, again
	default: // the line has ended, which the client's own reader will notice
		for _, r := range x.groups {
			r.ended.Store(true)
		}
		return refused, append(again, x.groups...)
	}
	if x.request != nil {
		c.addPending(*x.request, x.pending)
	}
	return sent, again
}

// standing separates the registrations that are valid from those that have ended.
// Nearly always all are valid.
func standing(registrations []*registration) (stand, ended []*registration) {
	for i, r := range registrations {
		if r.ended.Load() {
			ended = append(ended, r)
			continue
		}
		if len(ended) > 0 {
			registrations[i-len(ended)] = r
		}
	}
	return registrations[:len(registrations)-len(ended)], ended
}

func (x *delivery) frame() *protocol.Frame {
	var f *protocol.Frame
	if x.request != nil {
		f = protocol.Begin(protocol.TypeServe).Uint(x.request.Client).Uint(x.request.Number)
	} else {
		f = protocol.Begin(protocol.TypeDeliver)
	}
	f.Bool(len(x.plain) > 0).Uint(uint64(len(x.groups)))
	for _, r := range x.groups {
		f.Uint(r.number)
	}
	return f.Rest(x.tail)
}

// count counts a delivery that was not sent, for each of its registrations. The
// caller holds b.mu.
func (b *clientBus) count(x *delivery) {
	if b.lost == nil {
		b.lost = make(map[*registration]int)
	}
	for _, r := range x.plain {
		if !r.ended.Load() {
			b.lost[r]++
		}
	}
	for _, r := range x.groups {
		b.lost[r]++
	}
}

func (c *Client) addPending(d protocol.RequestID, x *pending) {
	b := &c.bus
	if b.pending == nil {
		b.pending = make(map[protocol.RequestID]*pending)
	}
	if had := b.pending[d]; had != nil { // for another group
		had.more++
		had.answered = had.answered || x.answered
		return
	}
	b.pending[d] = x
	b.unanswered.Store(int64(len(b.pending)))
	if b.expiry == nil {
		b.expiry = time.AfterFunc(expiryPause, c.dropExpired)
	}
}

// expiryPause is how long a request may still count after its deadline.
const expiryPause = 250 * time.Millisecond

// maxExpired is how many unanswered requests of a silent client are remembered.
const maxExpired = 1024

// dropExpired drops requests whose senders have stopped waiting. For example, a
// request that has expired before its turn is never answered. First the hub
// pings the client. A client that stands still keeps its pending requests, so
// that further requests pass over it as long as it does.
func (c *Client) dropExpired() {
	if c.expire() {
		_ = c.line.Send(protocol.Begin(protocol.TypeCall).Uint(0).String("ping")) // any frame counts as an answer
	}
}

// expire reports whether the hub must ping the client.
func (c *Client) expire() (probe bool) {
	now := time.Now().UnixNano()
	b := &c.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	lives := b.probed && c.frames.Load() != b.framesAtProbe
	for d, x := range b.pending {
		if x.until == 0 || x.until >= now {
			continue
		}
		if lives || len(b.pending) > maxExpired {
			b.forget(d)
		} else if !b.probed {
			probe = true
		}
	}
	if probe || lives {
		b.probed, b.framesAtProbe = probe, c.frames.Load()
	}
	if len(b.pending) == 0 {
		b.expiry = nil
		return false
	}
	b.expiry.Reset(expiryPause)
	return probe
}

// forget removes a pending request. The caller holds b.mu.
func (b *clientBus) forget(d protocol.RequestID) {
	delete(b.pending, d)
	b.unanswered.Store(int64(len(b.pending)))
}

// takePending takes a pending request out, once if the client has it several times.
// The caller holds b.mu.
func (b *clientBus) takePending(d protocol.RequestID, x *pending) *pending {
	if x.more > 0 {
		x.more--
		return &pending{requester: x.requester, until: x.until, answered: x.answered, shared: x.shared}
	}
	b.forget(d)
	return x
}

// reply queues a frame with an answer to a request of c. If there is no room,
// the request fails.
func (b *batch) reply(c *Client, id uint64, f *protocol.Frame) {
	defer f.Free()
	bus := &c.bus
	bus.mu.Lock()
	defer bus.mu.Unlock()
	if !bus.full.Load() {
		if err := b.queue(c, f, int(c.hub.backlog.Load())); !errors.Is(err, protocol.ErrFull) {
			return // a line that has ended has no waiter
		}
		c.fill()
	}
	if len(bus.failed) < maxFailed {
		bus.failed = append(bus.failed, id)
	}
}

// fill starts a period in which c takes no messages. The period ends when half
// of the waiting bytes are written: then the losses are reported to c. The
// caller holds c.bus.mu.
func (c *Client) fill() {
	c.bus.full.Store(true)
	c.bus.filling.Go(func() {
		if c.line.Room(context.Background(), max(int(c.hub.backlog.Load())/2, 1)) == nil { // otherwise the line has ended
			c.reportLosses()
			c.line.Flush()
		}
	})
}

// reportLosses ends the period in which c took no messages, and reports the
// losses to c.
func (c *Client) reportLosses() {
	b := &c.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.lost {
		c.reportLoss(r)
	}
	for _, id := range b.failed {
		c.queue(protocol.Begin(protocol.TypeFailed).Uint(id).Byte(protocol.FailFull))
	}
	b.lost, b.failed = nil, nil
	b.full.Store(false)
}

// reportLoss reports to c how many messages for r were not sent, and forgets the
// number. The caller holds c.bus.mu.
func (c *Client) reportLoss(r *registration) {
	if n := c.bus.lost[r]; n > 0 {
		c.queue(protocol.Begin(protocol.TypeGap).Uint(r.number).Uint(uint64(n)))
		delete(c.bus.lost, r)
	}
}

// queue queues a small frame, regardless of the bytes that wait already.
func (c *Client) queue(f *protocol.Frame) {
	_ = c.line.Queue(f, 0) // a line that has ended has no reader
	f.Free()
}
