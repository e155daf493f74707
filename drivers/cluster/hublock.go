package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/drivers/cluster/wire"
	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// hubLocks is what a hub does about locks. It acts on a frame where it is read:
// nothing here waits.
type hubLocks struct {
	hub   *Hub
	table *table.Table
	clock clock
	// ahead, if set, records an expiry and the highest fence for the next hub
	// before a peer is told of the lease. If it returns false, the peer is told
	// nothing.
	ahead func(expires time.Time, fence uint64) bool
	// told, if set, is told that a peer has said all that it had from an earlier
	// hub.
	told func(p *Peer)
}

// peerLocks is what a hub knows of a peer about locks. It is the reader's.
type peerLocks struct {
	owner  *table.Owner  // of all that the peer has
	holder driver.Holder // the last one: the next one is much like it
}

func newHubLocks(h *Hub) *hubLocks {
	return &hubLocks{hub: h, table: newTable(false), clock: readClock()}
}

// grantWindow is how long a grant lives that was waited for, until it is renewed.
const grantWindow = 2 * time.Second

// newTable returns a table that counts as all processes of the node do. If it is
// shut it grants nothing until it is opened.
func newTable(shut bool) *table.Table {
	return table.New(table.Config{
		Now:    driver.Now,
		Micros: func() uint64 { return uint64(time.Now().UnixMicro()) },
		Window: grantWindow,
		Shut:   shut,
	})
}

// handle acts on a frame of p, on its reader's goroutine.
func (h *hubLocks) handle(p *Peer, t wire.Type, d *wire.Decoder) error {
	if p.locks.owner == nil {
		p.locks.owner = table.NewOwner(func(e table.Event) { h.push(p, e) })
	}
	switch t {
	case lockAsk:
		return h.ask(p, d)
	case lockLeave:
		return h.leaveQueue(p, d)
	case lockRelease:
		return h.release(p, d)
	case lockRenew:
		return h.renew(p, d)
	case lockForce:
		return h.force(p, d)
	case lockInspect:
		h.inspect(p, d)
	case lockList:
		h.list(p, d)
	case lockHave:
		return h.have(p, d)
	case lockTold:
		if h.told != nil {
			h.told(p)
		}
	}
	return nil
}

// leave is told that p is gone, on its reader's goroutine. If its process has
// ended, what it had is free.
func (h *hubLocks) leave(p *Peer, ended bool) {
	switch {
	case p.locks.owner == nil:
	case ended:
		h.table.Drop(p.locks.owner)
	default:
		h.table.Disown(p.locks.owner)
	}
}

func (h *hubLocks) close() { h.table.Close() }

// succeed begins after an earlier hub, which gave no higher fence. Nothing is
// granted until the table is opened.
func (h *hubLocks) succeed(fence uint64) {
	h.table = newTable(true)
	h.table.Raise(fence)
}

// recorded records g for the next hub, and reports whether the peer may be told
// of it.
func (h *hubLocks) recorded(g *driver.Grant) bool {
	return h.ahead == nil || h.ahead(g.Deadline.Add(driver.Margin(g.TTL)), h.table.HighestFence())
}

// push tells p what has become of something that it has. It is called by
// whoever has brought it about, so it is written at once.
func (h *hubLocks) push(p *Peer, e table.Event) {
	var f *wire.Frame
	switch e.Kind {
	case table.Granted:
		if !h.recorded(&e.Grant) {
			return
		}
		f = wire.Begin(lockGranted).String(e.Grant.Token)
		addGrant(f, &e.Grant, h.clock)
	case table.Refused:
		f = addError(wire.Begin(lockRefused).String(e.Grant.Token), e.Err)
	case table.Lost:
		f = addError(wire.Begin(lockLost).String(e.Grant.Token), e.Err)
	}
	var b batch
	b.send(p, f)
	b.flush()
}

// ask queues for a lease, with the time of the first request. Number 0 repeats a
// request of an earlier hub's queue: a place in the queue is not answered.
func (h *hubLocks) ask(p *Peer, d *wire.Decoder) error {
	number, since := d.Uint(), d.Int()
	r, err := request(d, &p.locks.holder)
	if err != nil {
		return err
	}
	p.locks.holder = r.Holder
	g, wait, err := h.table.Ask(&r, p.locks.owner, since)
	if number == 0 {
		h.tellAsked(p, &r, g, wait, err)
		return nil
	}
	f := wire.Begin(lockAnswer).Uint(number)
	switch {
	case err != nil:
		addError(f, err)
	case wait:
		f.Byte(verdictQueued)
	case h.recorded(&g):
		addGrant(f.Byte(verdictDone), &g, h.clock)
	default:
		f.Free()
		return nil
	}
	p.send(f)
	return nil
}

func (h *hubLocks) tellAsked(p *Peer, r *driver.Request, g driver.Grant, wait bool, err error) {
	switch {
	case err != nil:
		h.push(p, table.Event{Kind: table.Refused, Grant: driver.Grant{Token: r.Token}, Err: err})
	case !wait:
		h.push(p, table.Event{Kind: table.Granted, Grant: g})
	}
}

func (h *hubLocks) leaveQueue(p *Peer, d *wire.Decoder) error {
	number := d.Uint()
	key, token, err := name(d)
	if err != nil {
		return err
	}
	g, err := h.table.Leave(key, token)
	f := wire.Begin(lockAnswer).Uint(number)
	switch {
	case err != nil:
		addError(f, err)
	case h.recorded(&g):
		addGrant(f.Byte(verdictDone), &g, h.clock)
	default:
		f.Free()
		return nil
	}
	p.send(f)
	return nil
}

func (h *hubLocks) release(p *Peer, d *wire.Decoder) error {
	number := d.Uint()
	key, token, err := name(d)
	if err != nil {
		return err
	}
	err = h.table.Release(key, token)
	if number == 0 {
		return nil
	}
	f := wire.Begin(lockAnswer).Uint(number)
	if err != nil {
		addError(f, err)
	} else {
		f.Byte(verdictDone)
	}
	p.send(f)
	return nil
}

func (h *hubLocks) renew(p *Peer, d *wire.Decoder) error {
	number, n := d.Uint(), d.Count()
	f := wire.Begin(lockAnswer).Uint(number).Byte(verdictDone)
	for range n {
		told, err := h.renewOne(f, d)
		if err != nil || !told {
			f.Free()
			return err
		}
	}
	p.send(f)
	return nil
}

// renewOne adds what has become of a grant to the answer, and says whether it may
// be told. An error is that of the peer.
func (h *hubLocks) renewOne(f *wire.Frame, d *wire.Decoder) (told bool, err error) {
	var g driver.Grant
	if g.Key, g.Token, err = name(d); err != nil {
		return false, err
	}
	g.TTL, g.NoRenew, g.Rev = time.Duration(d.Int()), d.Bool(), d.Uint()
	if err := errors.Join(d.Err(), checkTTL(g.TTL)); err != nil {
		return false, err
	}
	deadline, err := h.table.Renew(&g)
	if err != nil {
		addError(f, err)
		return true, nil
	}
	g.Deadline = deadline
	f.Byte(verdictDone).Int(h.clock.told(deadline))
	return h.recorded(&g), nil
}

func (h *hubLocks) force(p *Peer, d *wire.Decoder) error {
	number, key, reason := d.Uint(), d.String(), d.String()
	by := holder(d, &p.locks.holder)
	if err := d.Err(); err != nil {
		return err
	}
	if len(reason) > maxReason {
		return fmt.Errorf("a reason of %d bytes", len(reason))
	}
	if err := checkHolder(&by); err != nil {
		return err
	}
	_, err := h.table.Force(key, reason, by, func(n int) {
		p.send(wire.Begin(lockAnswer).Uint(number).Byte(verdictDone).Uint(uint64(n)))
		p.batch.flush()
	})
	if err != nil {
		p.send(addError(wire.Begin(lockAnswer).Uint(number), err))
	}
	return nil
}

func (h *hubLocks) inspect(p *Peer, d *wire.Decoder) {
	number, key := d.Uint(), d.String()
	if d.Err() != nil {
		return
	}
	s, err := h.table.Inspect(key)
	h.show(p, number, []driver.State{s}, err)
}

func (h *hubLocks) list(p *Peer, d *wire.Decoder) {
	number, prefix := d.Uint(), d.String()
	if d.Err() != nil {
		return
	}
	states, err := h.table.List(prefix)
	h.show(p, number, states, err)
}

// part is about how large a part of a long answer is.
const part = 64 << 10

func (h *hubLocks) show(p *Peer, number uint64, states []driver.State, err error) {
	if err != nil {
		p.send(addError(wire.Begin(lockAnswer).Uint(number), err))
		return
	}
	for _, f := range addStates(number, states, part) {
		p.send(f)
	}
}

// have takes what the peer says that it has.
func (h *hubLocks) have(p *Peer, d *wire.Decoder) error {
	l, err := readLease(d, h.clock, &p.locks.holder)
	if err != nil {
		return err
	}
	if g, err := h.table.Restore(l, p.locks.owner); err == nil {
		h.recorded(&g) // if it cannot be, the hub ends
	} else {
		h.push(p, table.Event{Kind: table.Lost, Grant: l.Grant, Err: err})
	}
	return nil
}
