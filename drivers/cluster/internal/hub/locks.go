package hub

import (
	"errors"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// hubLocks handles the lock frames of a hub. It handles a frame on the
// goroutine that has read it: nothing here waits.
type hubLocks struct {
	hub   *Hub
	table *table.Table
	clock protocol.Clock
	// ahead, if not nil, records an expiry and the highest fence for the next
	// hub, before the lease is reported to a client. If it returns false,
	// nothing is reported to the client.
	ahead func(expires time.Time, fence uint64) bool
	// reported, if not nil, is called when a client has reported all its leases
	// and requests from an earlier hub.
	reported func(c *Client)
}

// clientLocks is the lock state of a client in the hub. It belongs to the
// client's reader.
type clientLocks struct {
	owner  *table.Owner  // the owner of all claims of the client
	holder driver.Holder // the last holder: the next one usually shares its strings
}

func newHubLocks(h *Hub) *hubLocks {
	return &hubLocks{hub: h, table: newTable(false), clock: protocol.ReadClock()}
}

// grantWindow is how long a grant to a waiter is valid until its first renewal.
const grantWindow = 2 * time.Second

// newTable returns a table that uses the clock of all processes of the node. If
// shut is true, the table grants nothing until it is opened.
func newTable(shut bool) *table.Table {
	return table.New(table.Config{
		Now:    driver.Now,
		Micros: func() uint64 { return uint64(time.Now().UnixMicro()) },
		Window: grantWindow,
		Shut:   shut,
	})
}

// handle handles a frame of c, on its reader's goroutine.
func (h *hubLocks) handle(c *Client, t protocol.Type, d *protocol.Decoder) error {
	if c.locks.owner == nil {
		c.locks.owner = table.NewOwner(func(e table.Event) { h.push(c, e) })
	}
	switch t {
	case protocol.LockAsk:
		return h.ask(c, d)
	case protocol.LockLeave:
		return h.leaveQueue(c, d)
	case protocol.LockRelease:
		return h.release(c, d)
	case protocol.LockRenew:
		return h.renew(c, d)
	case protocol.LockForce:
		return h.force(c, d)
	case protocol.LockHandback:
		return h.handback(c, d)
	case protocol.LockHeal:
		return h.heal(c, d)
	case protocol.LockInspect:
		h.inspect(c, d)
	case protocol.LockList:
		h.list(c, d)
	case protocol.LockHeld:
		return h.have(c, d)
	case protocol.LockBegin:
		return h.begin(c, d)
	case protocol.LockEnd:
		return h.end(c, d)
	case protocol.LockRest:
		return h.rest(c, d)
	case protocol.LockRun:
		return h.run(d)
	case protocol.LockReported:
		c.reported.Store(true) // its subscriptions came first
		h.hub.limits.leasesReported(c)
		if h.reported != nil {
			h.reported(c)
		}
	}
	return nil
}

// leave handles the end of c, on its reader's goroutine. If c's process has
// ended, its leases are released.
func (h *hubLocks) leave(c *Client, ended bool) {
	switch {
	case c.locks.owner == nil:
	case ended:
		h.table.Drop(c.locks.owner)
	default:
		h.table.Disown(c.locks.owner)
	}
}

func (h *hubLocks) close() { h.table.Close() }

// succeed starts the table after an earlier hub, which gave no higher fence.
// The table grants nothing until it is opened.
func (h *hubLocks) succeed(fence uint64) {
	h.table = newTable(true)
	h.table.Raise(fence)
}

// recorded records g for the next hub, and reports whether g may be reported to
// the client.
func (h *hubLocks) recorded(g *driver.Grant) bool {
	return h.ahead == nil || h.ahead(g.Deadline.Add(driver.Margin(g.TTL)), h.table.HighestFence())
}

// push reports an event of one of c's claims to c. The goroutine that caused
// the event calls push, so the frame is written at once.
func (h *hubLocks) push(c *Client, e table.Event) {
	var f *protocol.Frame
	switch e.Kind {
	case table.Granted:
		if !h.recorded(&e.Grant) {
			return
		}
		f = protocol.Begin(protocol.LockGranted).String(e.Grant.Token)
		protocol.AddGrant(f, &e.Grant, h.clock)
	case table.Refused:
		f = protocol.AddError(protocol.Begin(protocol.LockRefused).String(e.Grant.Token), e.Err)
	case table.Lost:
		f = protocol.AddError(protocol.Begin(protocol.LockLost).String(e.Grant.Token), e.Err)
	}
	var b batch
	b.send(c, f)
	b.flush()
}

// ask queues for a lease, with the time of the first request. Number 0 repeats
// a queued request of an earlier hub: a place in the queue is then not
// answered.
func (h *hubLocks) ask(c *Client, d *protocol.Decoder) error {
	number, since := d.Uint(), d.Int()
	r, err := protocol.ReadRequest(d, &c.locks.holder)
	if err != nil {
		return err
	}
	c.locks.holder = r.Holder
	g, wait, err := h.table.Ask(&r, c.locks.owner, since)
	if number == 0 {
		h.reportAsked(c, &r, g, wait, err)
		return nil
	}
	h.answer(c, number, &g, wait, err)
	return nil
}

// answer answers a question for a grant. It sends nothing if g cannot be
// recorded: the hub ends then, and the next one has the claim.
func (h *hubLocks) answer(c *Client, number uint64, g *driver.Grant, wait bool, err error) {
	f := protocol.Begin(protocol.LockAnswer).Uint(number)
	switch {
	case err != nil:
		protocol.AddFailure(f, err)
	case wait:
		f.Byte(protocol.VerdictQueued).Uint(uint64(g.Resized)) //nolint:gosec // a size
	case h.recorded(g): // L2: before the client can use its fence
		protocol.AddGrant(f.Byte(protocol.VerdictDone), g, h.clock)
	default:
		f.Free()
		return
	}
	c.send(f)
}

func (h *hubLocks) reportAsked(c *Client, r *driver.Request, g driver.Grant, wait bool, err error) {
	switch {
	case err != nil:
		h.push(c, table.Event{Kind: table.Refused, Grant: driver.Grant{Token: r.Token}, Err: err})
	case !wait:
		h.push(c, table.Event{Kind: table.Granted, Grant: g})
	}
}

func (h *hubLocks) leaveQueue(c *Client, d *protocol.Decoder) error {
	number := d.Uint()
	key, token, err := protocol.ReadName(d)
	if err != nil {
		return err
	}
	g, err := h.table.Leave(key, token)
	h.answer(c, number, &g, false, err)
	return nil
}

func (h *hubLocks) release(c *Client, d *protocol.Decoder) error {
	number := d.Uint()
	key, token, err := protocol.ReadName(d)
	if err != nil {
		return err
	}
	h.done(c, number, h.table.Release(&driver.Grant{Key: key, Token: token}))
	return nil
}

func (h *hubLocks) renew(c *Client, d *protocol.Decoder) error {
	number, n := d.Uint(), d.Count()
	f := protocol.Begin(protocol.LockAnswer).Uint(number).Byte(protocol.VerdictDone)
	for range n {
		reported, err := h.renewOne(f, d)
		if err != nil || !reported {
			f.Free()
			return err
		}
	}
	c.send(f)
	return nil
}

// renewOne adds the outcome of one renewal to the answer, and reports whether
// it may be sent. An error is the client's fault.
func (h *hubLocks) renewOne(f *protocol.Frame, d *protocol.Decoder) (reported bool, err error) {
	var g driver.Grant
	if g.Key, g.Token, err = protocol.ReadName(d); err != nil {
		return false, err
	}
	g.TTL, g.NoRenew, g.Rev = time.Duration(d.Int()), d.Bool(), d.Uint()
	if err := errors.Join(d.Err(), protocol.CheckTTL(g.TTL)); err != nil {
		return false, err
	}
	deadline, err := h.table.Renew(&g)
	if err != nil {
		protocol.AddError(f, err)
		return true, nil
	}
	g.Deadline = deadline
	f.Byte(protocol.VerdictDone).Int(h.clock.Nanos(deadline))
	return h.recorded(&g), nil
}

func (h *hubLocks) force(c *Client, d *protocol.Decoder) error {
	number, key := d.Uint(), d.String()
	f, err := protocol.ReadForce(d, &c.locks.holder)
	if err != nil {
		return err
	}
	_, err = h.table.Force(key, f, func(n int) {
		c.send(protocol.Begin(protocol.LockAnswer).Uint(number).Byte(protocol.VerdictDone).Uint(uint64(n)))
		c.batch.flush()
	})
	if err != nil {
		c.send(protocol.AddFailure(protocol.Begin(protocol.LockAnswer).Uint(number), err))
	}
	return nil
}

func (h *hubLocks) inspect(c *Client, d *protocol.Decoder) {
	number, key, slots := d.Uint(), d.String(), d.Left() > 0 && d.Bool()
	if d.Err() != nil {
		return
	}
	s, err := h.table.Inspect(key)
	h.show(c, number, []driver.State{s}, slots, err)
}

func (h *hubLocks) list(c *Client, d *protocol.Decoder) {
	number, prefix, slots := d.Uint(), d.String(), d.Left() > 0 && d.Bool()
	if d.Err() != nil {
		return
	}
	states, err := h.table.List(prefix)
	h.show(c, number, states, slots, err)
}

// part is the approximate size of one part of a long answer.
const part = 64 << 10

func (h *hubLocks) show(c *Client, number uint64, states []driver.State, slots bool, err error) {
	if err != nil {
		c.send(protocol.AddFailure(protocol.Begin(protocol.LockAnswer).Uint(number), err))
		return
	}
	for i := range states {
		h.remind(c, &states[i])
	}
	for _, f := range protocol.AddStates(number, states, slots, part) {
		c.send(f)
	}
}

// have records a lease that the client reports.
func (h *hubLocks) have(c *Client, d *protocol.Decoder) error {
	l, err := protocol.ReadLease(d, h.clock, &c.locks.holder)
	if err != nil {
		return err
	}
	if g, err := h.table.Restore(l, c.locks.owner); err == nil {
		h.recorded(&g) // if the record fails, the hub ends
	} else {
		h.push(c, table.Event{Kind: table.Lost, Grant: l.Grant, Err: err})
	}
	return nil
}
