package cluster

import (
	"fmt"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/internal/routes"
)

// handle handles a frame of the hub, on the reader's goroutine. A malformed
// message is the fault of its sender, which the hub does not check, and does
// not end the line.
func (b *Bus) handle(s *session, t protocol.Type, d *protocol.Decoder) error {
	m := *d
	switch t {
	case protocol.TypeDeliver:
		b.deliver(s.line, driver.Event, nil, &m)
	case protocol.TypeServe:
		b.deliver(s.line, driver.Request, &received{RequestID: protocol.ReadRequestID(&m), line: s.line}, &m)
	case protocol.TypeReply:
		b.reply(&m)
	case protocol.TypeFailed:
		b.failed(d)
	case protocol.TypeGap:
		b.missed(d)
	case protocol.TypeSynced:
		b.syncs.answer(d.Uint(), nil)
	}
	return nil
}

// deliver passes a message from the hub to its receivers.
func (b *Bus) deliver(line *protocol.Line, k driver.Kind, a *received, d *protocol.Decoder) {
	plain, n := d.Bool(), d.Count()
	numbers := *d // the numbers are read twice
	for range n {
		d.Uint()
	}
	r := b.tables[k].FindBytes(d.Bytes())
	m := protocol.ReadMessage(k, r.subject, d)
	if d.Err() != nil {
		b.node.config.Log.Debug("cluster: malformed message refused", "subject", r.subject)
		a.refuse()
		return
	}
	b.calls.RLock()
	defer b.calls.RUnlock()
	if b.quiet {
		return
	}
	x := arrival{bus: b, line: line, m: &m, request: a}
	if a != nil {
		m.Return, m.ID = a, a.Number
	}
	if plain || n != 1 {
		x.toMany(plain, r.subscriptions, n, &numbers)
		return
	}
	if in := x.toGroup(numbers.Uint()); in != nil {
		x.giveBack(in, true)
	}
}

// toMany passes the message to its receivers. It makes sure that a request
// cannot get its last answer before all receivers have the request.
func (x *arrival) toMany(plain bool, members []*subscription, n int, numbers *protocol.Decoder) {
	if x.request != nil {
		x.request.left.Store(1)
	}
	if plain {
		for _, to := range members {
			x.offer(to)
		}
	}
	for range n {
		if in := x.toGroup(numbers.Uint()); in != nil {
			x.giveBack(in, false)
		}
	}
	if x.request != nil && x.request.left.Add(-1) == 0 {
		x.request.refuse()
	}
}

// refuse reports to the hub that no subscription here answers, or answers any
// more.
func (a *received) refuse() {
	if a != nil {
		_ = a.line.Send(protocol.Begin(protocol.TypeNoMember).Uint(a.Client).Uint(a.Number)) // a line that has ended has no waiter
	}
}

// arrival is a message that is being passed to its receivers.
type arrival struct {
	bus     *Bus
	line    *protocol.Line
	m       *driver.Message
	request *received // nil for an event
}

// offer passes the message to a subscription, and reports whether the
// subscription has taken it.
func (x *arrival) offer(to *subscription) bool {
	if x.request == nil {
		return to.sink.Deliver(*x.m)
	}
	x.request.left.Add(1) // before the subscription can answer
	if to.sink.Deliver(*x.m) {
		return true
	}
	x.request.left.Add(-1)
	return false
}

func (x *subscription) load() int { return x.sink.Load() }

// toGroup passes the message to one subscription of a group. If all
// subscriptions are just leaving, it returns the group's registration.
func (x *arrival) toGroup(number uint64) *registration {
	in, members := x.bus.find(number)
	if in == nil || routes.ToOne(members, (*subscription).load, x.offer) {
		return nil
	}
	return in
}

// giveBack makes the hub give the message to another process. done reports that
// no other subscription of this process has the message.
func (x *arrival) giveBack(in *registration, done bool) {
	a := protocol.RequestID{Number: in.number} // the hub reports a gap if no process takes the event
	if x.request != nil {
		a = x.request.RequestID
	} else {
		in.returned.Store(true)
	}
	f := protocol.Begin(protocol.TypeReturn).Uint(a.Client).Uint(a.Number).Bool(done).Byte(byte(in.kind)).String(in.pattern).String(in.group)
	_ = x.line.Send(protocol.AddMessage(f, x.m)) // after the end of the line, the hub cannot give the message back
}

// find returns a registration and its subscriptions.
func (b *Bus) find(number uint64) (*registration, []*subscription) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	in := b.byNumber[number]
	if in == nil {
		return nil, nil
	}
	return in, in.subscriptions.All()
}

// reply handles an answer to a request of this process.
func (b *Bus) reply(d *protocol.Decoder) {
	id, subject := d.Uint(), d.String()
	m := protocol.ReadMessage(driver.Answer, subject, d)
	m.ID = id
	if d.Err() == nil {
		b.callFront(func(f driver.Front) { f.Answer(m) })
	}
}

var (
	errGone = fmt.Errorf("%w: the responder has ended", driver.ErrDisconnected)
	errFull = fmt.Errorf("%w: the backlog of the responder is full", driver.ErrOverloaded)
)

// failed handles the hub's report that no further answer will come.
func (b *Bus) failed(d *protocol.Decoder) {
	id, why := d.Uint(), d.Byte()
	err := errGone // also for the reason of a newer build: the request may have been handled
	switch why {
	case protocol.FailNoResponder:
		err = driver.ErrNoResponders
	case protocol.FailFull:
		err = errFull
	}
	b.callFront(func(f driver.Front) { f.Fail(id, err) })
}

// missed handles the hub's report of how many messages for a registration were
// not sent. Each message for a group was for one subscription only, so that
// only one subscription gets the report.
func (b *Bus) missed(d *protocol.Decoder) {
	number, lost := d.Uint(), int(min(d.Uint(), 1<<62))
	in, members := b.find(number)
	if in != nil && in.group != "" {
		members = members[:min(len(members), 1)]
		if in.returned.Load() && !b.isStanding(in) {
			in.strays.Add(int64(lost))
			return
		}
	}
	for _, x := range members {
		b.gap(x, lost)
	}
}

// gap reports lost messages to a subscription.
func (b *Bus) gap(x *subscription, lost int) {
	b.calls.RLock()
	defer b.calls.RUnlock()
	if !b.quiet {
		x.sink.Gap(lost)
	}
}
