package cluster

import (
	"errors"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// claim is a request or a grant of this process at the hub, identified by its
// token. It ends when the hub has confirmed the release, when the claim is
// given up, or when it is lost. The grants are reported to the next hub, and
// the requests are repeated there with the time of the first request.
//
// Its fields are guarded by Lock.mu.
type claim struct {
	state     claimState
	request   driver.Request
	first     int64     // the time of the first request, on the node's clock
	asked     time.Time // of driver.Now, before the last request
	confirmed time.Time // of driver.Now, when a hub last confirmed its place in the queue
	grant     driver.Grant
	moved     bool          // the hub that granted the claim has ended
	rests     bool          // released, and the key stays taken for its cooldown
	leaves    bool          // its release was sent
	doubtful  bool          // and the hub to which it was sent has ended: others may have had the slot since
	err       error         // why the claim was refused
	done      chan struct{} // closed when the claim is no longer queued; nil before it was queued
	lost      chan error    // receives why the grant was taken away
}

type claimState uint8

const (
	claimAsked claimState = iota // the hub has not answered yet
	claimQueued
	claimHeld
	claimRefused
)

// add creates a claim.
func (x *Lock) add(r *driver.Request) (*claim, error) {
	now := driver.Now()
	c := &claim{request: *r, first: x.clock.Nanos(now), asked: now, lost: make(chan error, 1)}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, driver.ErrClosed
	}
	x.sweep()
	x.claims[r.Token] = c
	return c, nil
}

// forget removes a claim. The caller holds x's lock.
func (x *Lock) forget(c *claim) {
	if x.claims[c.request.Token] == c {
		delete(x.claims, c.request.Token)
	}
}

// sweep removes, from time to time, the claims of leases that were not released
// before they expired. The caller holds x's lock.
func (x *Lock) sweep() {
	if len(x.claims) < x.full {
		return
	}
	now := driver.Now()
	for token, c := range x.claims {
		if c.state == claimHeld && now.After(c.grant.Deadline.Add(driver.Margin(c.grant.TTL))) {
			delete(x.claims, token)
		}
	}
	x.full = max(2*len(x.claims), firstSweep)
}

// firstSweep is the number of claims from which a search for expired ones pays
// off.
const firstSweep = 64

// enqueue records that the hub has queued the claim. The grant may have arrived
// before. A hub of an earlier build does not report the earlier size of the pool.
// The caller holds x's lock.
func (c *claim) enqueue(d *protocol.Decoder) {
	c.confirmed = driver.Now()
	if c.state != claimAsked {
		return
	}
	c.state, c.done = claimQueued, make(chan struct{})
	if d.Left() > 0 {
		c.grant.Resized = int(d.Uint())
	}
}

// have records the grant of the claim from d. The caller holds x's lock.
func (x *Lock) have(c *claim, d *protocol.Decoder) {
	r := &c.request
	g := driver.Grant{Key: r.Key, Token: r.Token, Fences: max(r.Fences, 1), TTL: r.TTL, NoRenew: r.NoRenew, Lost: c.lost}
	protocol.ReadGrant(d, &g, x.clock)
	if !g.Queued {
		g.Deadline = earlier(g.Deadline, driver.Deadline(c.asked, g.TTL))
	}
	if d.Err() == nil && (c.state == claimAsked || c.state == claimQueued) {
		c.grant = g
		c.settle(claimHeld, nil)
		if len(c.lost) > 0 { // it was taken away before it arrived
			x.forget(c)
		}
	}
}

// earlier returns the earlier instant. The hub counts from the arrival of the
// request; the requesting process counts from before it sent the request, as
// with every driver.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// settle ends the wait of a claim. The caller holds x's lock.
func (c *claim) settle(s claimState, err error) {
	c.state, c.err = s, err
	if c.done != nil {
		close(c.done)
		c.done = nil
	}
}

// refuse ends a waiting claim with err. The caller holds x's lock.
func (x *Lock) refuse(c *claim, err error) {
	if c.state == claimAsked || c.state == claimQueued {
		c.settle(claimRefused, err)
	}
	x.forget(c)
}

// granted handles the hub's report that a queued claim is granted.
func (x *Lock) granted(d *protocol.Decoder) {
	token := d.Bytes()
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.claims[string(token)]; c != nil {
		x.have(c, d)
	}
}

// refused handles the hub's report that a claim is not queued any more.
func (x *Lock) refused(d *protocol.Decoder) {
	token := d.Bytes()
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.claims[string(token)]; c != nil {
		x.refuse(c, protocol.ReadError(d.Byte(), d, c.request.Key))
	}
}

// lose handles the hub's report that a grant was taken away. The grant itself
// may arrive later, as the answer to a question.
func (x *Lock) lose(d *protocol.Decoder) {
	token := d.Bytes()
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.claims[string(token)]
	if c == nil {
		return
	}
	select {
	case c.lost <- protocol.ReadError(d.Byte(), d, c.request.Key):
	default:
	}
	if c.state == claimHeld {
		x.forget(c)
	}
}

// renewed records the new deadline of a claim, or that it is lost. The caller
// holds x's lock.
func (x *Lock) renewed(g *driver.Grant, r *driver.Renewal) {
	c := x.claims[g.Token]
	switch {
	case c == nil || c.state != claimHeld:
	case errors.Is(r.Err, driver.ErrLost):
		x.forget(c)
	case r.Err == nil:
		c.grant.Deadline = r.Deadline
		if !g.NoRenew && g.Rev >= c.grant.Rev { // L12: a late answer is about an older TTL
			c.grant.TTL, c.grant.Rev = g.TTL, g.Rev
		}
	}
}

// report returns the grants and the queued requests of this process as
// frames for a hub that does not know them. The caller holds x's lock.
func (x *Lock) report() []*protocol.Frame {
	var frames []*protocol.Frame
	now := driver.Now()
	for _, c := range x.claims {
		switch c.state {
		case claimHeld:
			c.moved, c.doubtful = true, c.leaves
			f := protocol.Begin(protocol.LockHeld)
			protocol.AddLease(f, &c.grant, &c.request, x.clock)
			frames = append(frames, f)
			if left := c.grant.Deadline.Add(driver.Margin(c.grant.TTL)).Sub(now); c.rests && left > 0 {
				g := &c.grant
				g.Rest, g.Rev = left, g.Rev+1 // not a late copy: the key must not end with this process
				frames = append(frames, restFrame(0, g))
			}
		case claimQueued:
			// A grant counts from this request. Counted from the first request,
			// its deadline could have passed before it arrived.
			c.asked = now
			frames = append(frames, c.question(0))
		}
	}
	return append(frames, protocol.Begin(protocol.LockReported))
}

// question returns the frame that requests the claim.
func (c *claim) question(number uint64) *protocol.Frame {
	f := protocol.Begin(protocol.LockAsk).Uint(number).Int(c.first)
	protocol.AddRequest(f, &c.request)
	return f
}

// latestExpiry returns the latest expiry of the leases that are still held, on
// the node's clock, or 0. The next hub grants nothing until then. A key in its
// cooldown has no lease, so it does not count.
func (x *Lock) latestExpiry() (until int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.claims {
		if c.state == claimHeld && !c.rests {
			until = max(until, x.clock.Nanos(c.grant.Deadline.Add(driver.Margin(c.grant.TTL)))+protocol.MaxSkew)
		}
	}
	return until
}
