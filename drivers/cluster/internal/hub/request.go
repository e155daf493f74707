package hub

import (
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// ask routes a request of p, and records which clients have it.
func (h *hubBus) ask(p *Client, d *protocol.Decoder) error {
	a := protocol.Demand{Asker: p.number, ID: d.Uint()}
	tail := d.Rest()
	r, err := h.find(driver.Request, tail)
	if err != nil {
		return err
	}
	h.know(p)
	all := p.parcels(r, nil)
	var s *share
	if len(r.plain)+len(r.groups) > 1 {
		s = &share{left: len(all)}
	}
	until := protocol.DeadlineOf(tail)
	for i := range all {
		h.demand(p, &all[i], a, &debt{asker: p, until: until, share: s}, tail)
	}
	if len(all) == 0 {
		h.fail(p, p, a.ID, protocol.FailNobody)
	}
	return nil
}

// demand sends a request to a client. For groups whose chosen members have just
// left, it sends the request to other members.
func (h *hubBus) demand(p *Client, x *addressed, a protocol.Demand, owed *debt, tail []byte) {
	x.tail, x.demand, x.debt = tail, &a, owed
	o, again := p.batch.deliver(x.to, &x.parcel)
	for _, w := range again {
		part := owed
		if o == sent {
			part = owed.split()
		}
		o = sent
		if part != nil && h.rehand(p, w.kind, w.pattern, w.group, w.peer, tail, &a, part) != sent {
			h.settle(p, a.ID, part, protocol.FailNobody)
		}
	}
	switch o {
	case dropped:
		h.settle(p, a.ID, owed, protocol.FailFull)
	case refused:
		h.settle(p, a.ID, owed, protocol.FailNobody)
	}
}

// split returns a debt for one more client that has the request, or nil if only
// one client can have it.
func (x *debt) split() *debt {
	if x.share == nil {
		return nil
	}
	x.share.mu.Lock()
	defer x.share.mu.Unlock()
	x.share.left++
	return &debt{asker: x.asker, until: x.until, share: x.share}
}

// know registers p, so that it can be found by its number.
func (h *hubBus) know(p *Client) {
	if p.bus.asks {
		return
	}
	p.bus.asks = true
	h.mu.Lock()
	defer h.mu.Unlock()
	h.askers[p.number] = p
}

func (h *hubBus) asker(number uint64) *Client {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.askers[number]
}

// answer passes an answer of p on to the client that sent the request.
func (h *hubBus) answer(p *Client, d *protocol.Decoder) error {
	a, done := protocol.ReadDemand(d), d.Bool()
	if err := d.Err(); err != nil {
		return err
	}
	x := p.bus.pay(a, done)
	to := h.asker(a.Asker)
	if to == nil {
		return nil // the client has ended, and does not wait any more
	}
	p.batch.reply(to, a.ID, protocol.Begin(protocol.TypeReply).Uint(a.ID).Rest(d.Rest()))
	if done && x != nil {
		h.settle(p, a.ID, x, protocol.FailNobody)
	}
	return nil
}

// pay records an answer, and removes the debt if the answer was the last one.
// It returns nil if there was no debt.
func (b *clientBus) pay(a protocol.Demand, done bool) *debt {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.owed[a]
	if x == nil {
		return nil
	}
	x.answered = true
	if done {
		b.forget(a)
	}
	return x
}

// nobody handles the report that no member in the process of p takes the
// request any more.
func (h *hubBus) nobody(p *Client, a protocol.Demand) {
	if x := p.bus.pass(a, true); x != nil {
		h.settle(p, a.ID, x, protocol.FailNobody)
	}
}

// askOthers gives a request to a process other than p's. Unless done is true,
// it gives only the part of the request that is for one group.
func (h *hubBus) askOthers(p *Client, a protocol.Demand, done bool, pattern, group string, tail []byte) {
	x := p.bus.pass(a, done)
	if x == nil {
		return
	}
	if h.rehand(p, driver.Request, pattern, group, p, tail, &a, x) != sent {
		h.settle(p, a.ID, x, protocol.FailNobody)
	}
}

// pass takes the debt out for another client. Unless done is true, this client
// keeps a part. It returns nil if there was no debt.
func (b *clientBus) pass(a protocol.Demand, done bool) *debt {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.owed[a]
	switch {
	case x == nil:
		return nil
	case done:
		b.forget(a)
		return x
	}
	return x.split()
}

// settle records that one client owes no answer any more, and the reason. If no
// other client has the request, and its sender may still wait, the hub reports
// the failure to the sender.
func (h *hubBus) settle(p *Client, id uint64, x *debt, why byte) {
	if x.share == nil {
		if !x.answered || why == protocol.FailGone {
			h.fail(p, x.asker, id, why)
		}
		return
	}
	s := x.share
	s.mu.Lock()
	s.left--
	s.answered = s.answered || x.answered
	s.dead = s.dead || why == protocol.FailGone
	last, dead, answered := s.left == 0, s.dead, s.answered
	s.mu.Unlock()
	switch {
	case !last:
	case dead:
		h.fail(p, x.asker, id, protocol.FailGone)
	case !answered:
		h.fail(p, x.asker, id, why)
	}
}

// fail reports to the sender of a request that no further answer will come.
func (h *hubBus) fail(p, asker *Client, id uint64, why byte) {
	p.batch.reply(asker, id, protocol.Begin(protocol.TypeFailed).Uint(id).Byte(why))
}
