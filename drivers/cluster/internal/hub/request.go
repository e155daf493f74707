package hub

import (
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// request routes a request of c, and records which clients have it.
func (h *hubBus) request(c *Client, d *protocol.Decoder) error {
	a := protocol.RequestID{Client: c.number, Number: d.Uint()}
	tail := d.Rest()
	r, err := h.find(driver.Request, tail)
	if err != nil {
		return err
	}
	h.remember(c)
	all := c.deliveries(r, nil)
	var s *sharedRequest
	if len(r.plain)+len(r.groups) > 1 {
		s = &sharedRequest{left: len(all)}
	}
	until := protocol.DeadlineOf(tail)
	for i := range all {
		h.deliverRequest(c, &all[i], a, &pending{requester: c, until: until, shared: s}, tail)
	}
	if len(all) == 0 {
		h.fail(c, c, a.Number, protocol.FailNoResponder)
	}
	return nil
}

// deliverRequest sends a request to a client. For groups whose chosen
// subscriptions have just left, it sends the request to other subscriptions.
func (h *hubBus) deliverRequest(c *Client, x *addressed, a protocol.RequestID, owed *pending, tail []byte) {
	x.tail, x.request, x.pending = tail, &a, owed
	o, again := c.batch.deliver(x.to, &x.delivery)
	for _, r := range again {
		part := owed.split() // owed stays until the end, so that the request does not fail between two groups
		if part == nil {
			part, o = owed, sent
		}
		h.settleUnsent(c, a.Number, part, h.reassign(c, r.groupKey, r.client, delivery{tail: tail, request: &a, pending: part}))
	}
	h.settleUnsent(c, a.Number, owed, o)
}

// settleUnsent settles a request that a client did not get, with the outcome as the
// reason.
func (h *hubBus) settleUnsent(c *Client, id uint64, x *pending, o outcome) {
	switch o {
	case dropped:
		h.settle(c, id, x, protocol.FailFull)
	case refused:
		h.settle(c, id, x, protocol.FailNoResponder)
	}
}

// split returns a pending request for one more client that has the request, or
// nil if only one client can have it.
func (x *pending) split() *pending {
	if x.shared == nil {
		return nil
	}
	x.shared.mu.Lock()
	defer x.shared.mu.Unlock()
	x.shared.left++
	return &pending{requester: x.requester, until: x.until, shared: x.shared}
}

// remember registers c, so that it can be found by its number.
func (h *hubBus) remember(c *Client) {
	if c.bus.requester {
		return
	}
	c.bus.requester = true
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requesters[c.number] = c
}

func (h *hubBus) requester(number uint64) *Client {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.requesters[number]
}

// answer passes an answer of c on to the client that sent the request.
func (h *hubBus) answer(c *Client, d *protocol.Decoder) error {
	a, done := protocol.ReadRequestID(d), d.Bool()
	if err := d.Err(); err != nil {
		return err
	}
	x := c.bus.answered(a, done)
	to := h.requester(a.Client)
	if to == nil {
		return nil // the client has ended, and does not wait any more
	}
	c.batch.reply(to, a.Number, protocol.Begin(protocol.TypeReply).Uint(a.Number).Rest(d.Rest()))
	if done && x != nil {
		h.settle(c, a.Number, x, protocol.FailNoResponder)
	}
	return nil
}

// answered records an answer, and removes the pending request if the answer was
// the last one. It returns nil if there was no pending request.
func (b *clientBus) answered(a protocol.RequestID, done bool) *pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.pending[a]
	if x == nil {
		return nil
	}
	x.answered = true
	if done {
		return b.takePending(a, x)
	}
	return x
}

// noMember handles the report that no subscription in the process of c takes the
// request any more.
func (h *hubBus) noMember(c *Client, a protocol.RequestID) {
	if x := c.bus.pass(a, true); x != nil {
		h.settle(c, a.Number, x, protocol.FailNoResponder)
	}
}

// reassignRequest gives a request to a process other than c's. Unless done is
// true, it gives only the part of the request that is for one group.
func (h *hubBus) reassignRequest(c *Client, a protocol.RequestID, done bool, to groupKey, tail []byte) {
	x := c.bus.pass(a, done)
	if x == nil {
		return
	}
	h.settleUnsent(c, a.Number, x, h.reassign(c, to, c, delivery{tail: tail, request: &a, pending: x}))
}

// pass takes the pending request out for another client. Unless done is true,
// this client keeps a part. It returns nil if there was no pending request.
func (b *clientBus) pass(a protocol.RequestID, done bool) *pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.pending[a]
	switch {
	case x == nil:
		return nil
	case done:
		return b.takePending(a, x)
	}
	return x.split()
}

// settle records that one client owes no answer any more, and the reason. If no
// other client has the request, and its sender may still wait, the hub reports
// the failure to the sender.
func (h *hubBus) settle(c *Client, id uint64, x *pending, why byte) {
	if x.shared == nil {
		if !x.answered || why == protocol.FailGone {
			h.fail(c, x.requester, id, why)
		}
		return
	}
	s := x.shared
	s.mu.Lock()
	s.left--
	s.answered = s.answered || x.answered
	s.dead = s.dead || why == protocol.FailGone
	s.full = s.full || why == protocol.FailFull
	last, dead, full, answered := s.left == 0, s.dead, s.full, s.answered
	s.mu.Unlock()
	switch {
	case !last:
	case dead:
		h.fail(c, x.requester, id, protocol.FailGone)
	case answered:
	case full:
		h.fail(c, x.requester, id, protocol.FailFull)
	default:
		h.fail(c, x.requester, id, why)
	}
}

// fail reports to the sender of a request that no further answer will come.
func (h *hubBus) fail(c, asker *Client, id uint64, why byte) {
	c.batch.reply(asker, id, protocol.Begin(protocol.TypeFailed).Uint(id).Byte(why))
}
