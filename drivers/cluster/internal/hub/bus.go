package hub

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// hubBus routes messages. The reader of the client that sent a message routes
// it: it copies the message to the lines of the receivers. It reads only the
// subject.
type hubBus struct {
	tables  [2]*hubTable  // of events, and of requests
	returns atomic.Uint64 // the number of events that clients have given back

	mu         sync.RWMutex
	requesters map[uint64]*Client // the clients that have sent a request
}

func newHubBus() *hubBus {
	return &hubBus{
		tables:     [2]*hubTable{driver.Event: newHubTable(), driver.Request: newHubTable()},
		requesters: make(map[uint64]*Client),
	}
}

// handle handles a frame of c, on its reader's goroutine.
func (h *hubBus) handle(c *Client, t protocol.Type, d *protocol.Decoder) error {
	switch t {
	case protocol.TypeEvent:
		return h.event(c, d)
	case protocol.TypeRequest:
		return h.request(c, d)
	case protocol.TypeAnswer:
		return h.answer(c, d)
	case protocol.TypeSync:
		c.send(protocol.Begin(protocol.TypeSynced).Uint(d.Uint()))
	case protocol.TypeJoin:
		return h.join(c, d)
	case protocol.TypeMembers:
		return c.resize(d)
	case protocol.TypeLeave:
		h.end(c.take(d.Uint()))
	case protocol.TypeReturn:
		return h.returned(c, d)
	case protocol.TypeNoMember:
		h.noMember(c, protocol.ReadRequestID(d))
	}
	return nil
}

var (
	errKind  = errors.New("unknown kind of subscription")
	errTwice = errors.New("two subscriptions with one number")
	errName  = errors.New("subject, pattern or group is too long")
)

// maxName is the maximum length of a subject, a pattern and a group. The front
// enforces it, and it bounds the depth of the table, which has one level for
// each token.
const maxName = 255

func (h *hubBus) join(c *Client, d *protocol.Decoder) error {
	r := &registration{client: c, number: d.Uint()}
	r.kind = driver.Kind(d.Byte())
	r.members.Store(members(d))
	r.pattern, r.group = d.String(), d.String()
	if err := d.Err(); err != nil {
		return err
	}
	switch {
	case r.kind > driver.Request:
		return errKind
	case len(r.pattern) > maxName || len(r.group) > maxName:
		return errName
	case !c.bus.add(r):
		return errTwice
	}
	h.tables[r.kind].Add(r.pattern, r.group, r)
	return nil
}

// members reads the number of subscriptions that a process has in a group. The
// result is at least 1, and small enough that sums do not overflow.
func members(d *protocol.Decoder) int64 { return int64(min(max(d.Uint(), 1), 1<<31)) }

// add adds a registration, unless there is one with its number. It reports
// whether it did.
func (b *clientBus) add(r *registration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.registrations[r.number] != nil {
		return false
	}
	if b.registrations == nil {
		b.registrations = make(map[uint64]*registration)
	}
	b.registrations[r.number] = r
	return true
}

// resize sets the number of subscriptions of a registration. One that has just left
// gets the number of messages that were not sent before it ends.
func (c *Client) resize(d *protocol.Decoder) error {
	number, n := d.Uint(), members(d)
	b := &c.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.registrations[number]; r != nil && d.Err() == nil {
		c.reportLoss(r) // S4
		r.members.Store(n)
	}
	return nil
}

// take removes a registration and returns it, or returns nil if there is none.
// The client receives no further message for it, and the number of those that were
// not sent.
func (c *Client) take(number uint64) *registration {
	b := &c.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.registrations[number]
	if r != nil {
		c.reportLoss(r) // S4
		r.ended.Store(true)
		delete(b.registrations, number)
	}
	return r
}

func (h *hubBus) end(r *registration) {
	if r != nil {
		h.tables[r.kind].Remove(r.pattern, r.group, r)
	}
}

// errNoSubject is the error for a message that cannot be routed.
var errNoSubject = errors.New("message without a subject")

// find returns the receivers of the message.
func (h *hubBus) find(k driver.Kind, tail []byte) (*route, error) {
	d := protocol.NewDecoder(tail)
	subject := d.Bytes()
	if d.Err() != nil || len(subject) == 0 {
		return nil, errNoSubject
	}
	if len(subject) > maxName {
		return nil, errName
	}
	return h.tables[k].FindBytes(subject), nil
}

// event routes an event. The sending process has served its own subscriptions
// without a group.
func (h *hubBus) event(c *Client, d *protocol.Decoder) error {
	tail := d.Rest()
	r, err := h.find(driver.Event, tail)
	if err != nil {
		return err
	}
	for _, x := range c.deliveries(r, c) {
		x.tail = tail
		_, again := c.batch.deliver(x.to, &x.delivery)
		for _, r := range again { // the chosen subscriptions of these groups have just left
			h.reassign(c, r.groupKey, r.client, delivery{tail: tail})
		}
	}
	return nil
}

// addressed is a delivery and its receiver.
type addressed struct {
	delivery
	to *Client
}

// deliveries makes one delivery for each client that receives a message. It
// leaves out the client except, for subscriptions without a group. The
// deliveries are valid until the next call.
func (c *Client) deliveries(r *route, except *Client) []addressed {
	all := c.batch.deliveries[:0]
	for _, t := range r.plain {
		if t.client != except {
			all = append(all, addressed{delivery{plain: t.registrations}, t.client})
		}
	}
	for _, g := range r.groups {
		if one := g.choose(nil); one != nil {
			all = add(all, one)
		}
	}
	c.batch.deliveries = all
	return all
}

func add(all []addressed, one group) []addressed {
	to := one[0].client
	for i := range all {
		if all[i].to == to {
			all[i].groups = append(all[i].groups, one...)
			return all
		}
	}
	return append(all, addressed{delivery{groups: one}, to})
}

// reassign gives x, without its registrations, to a subscription of a group in another
// client than except, and returns the outcome: refused if no such subscription is left.
func (h *hubBus) reassign(c *Client, to groupKey, except *Client, x delivery) outcome {
	for {
		r, err := h.find(to.kind, x.tail)
		if err != nil {
			return refused
		}
		x.groups = r.of(to).choose(except)
		if x.groups == nil {
			return refused
		}
		if o, _ := c.batch.deliver(x.groups[0].client, &x); o != refused {
			return o
		}
	}
}

// returned gives a message that no subscription in the process of c takes to
// another process: the subscriptions in c's process have just been stopped.
func (h *hubBus) returned(c *Client, d *protocol.Decoder) error {
	a := protocol.ReadRequestID(d)
	done := d.Bool()
	to := groupKey{kind: driver.Kind(d.Byte())}
	to.pattern, to.group = d.String(), d.String()
	tail := d.Rest()
	if err := d.Err(); err != nil {
		return err
	}
	switch {
	case to.kind > driver.Request:
		return errKind
	case to.kind == driver.Request:
		h.reassignRequest(c, a, done, to, tail)
	default:
		if h.reassign(c, to, c, delivery{tail: tail}) == refused && a.Number > 0 {
			c.send(protocol.Begin(protocol.TypeGap).Uint(a.Number).Uint(1)) // S4; an earlier build sends no number
		}
		h.returns.Add(1) // afterwards: a round of drain that begins in between does not include the event
	}
	return nil
}

// leave handles the end of c, on its reader's goroutine.
func (h *hubBus) leave(c *Client) {
	registrations, owed := c.bus.close()
	for _, r := range registrations {
		h.end(r)
	}
	for a, x := range owed {
		for range x.more + 1 {
			h.settle(c, a.Number, x, protocol.FailGone)
		}
	}
	h.mu.Lock()
	delete(h.requesters, c.number)
	h.mu.Unlock()
	c.bus.filling.Wait()
}

// close stops all messages to the client, and returns its registrations and
// pending requests. The line of the client has ended before.
func (b *clientBus) close() (map[uint64]*registration, map[protocol.RequestID]*pending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	registrations, owed := b.registrations, b.pending
	if b.expiry != nil {
		b.expiry.Stop()
	}
	for _, r := range registrations {
		r.ended.Store(true)
	}
	b.registrations, b.pending, b.lost, b.failed = nil, nil, nil, nil
	return registrations, owed
}
