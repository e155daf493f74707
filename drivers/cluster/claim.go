package cluster

import (
	"errors"
	"time"

	"github.com/megaframework/mega/drivers/cluster/wire"
	"github.com/megaframework/mega/lock/driver"
)

// claim is a request or a grant of this process at the hub, by its token, until
// the hub has confirmed the release, or the claim is given up or lost. The next
// hub hears of the grants, and the requests are repeated there with the time of
// the first.
//
// Its fields are guarded by Lock.mu.
type claim struct {
	state   claimState
	request driver.Request
	first   int64     // when it was first asked for, on the node's clock
	asked   time.Time // of driver.Now, before it was last asked for
	heard   time.Time // of driver.Now, when a hub last confirmed its place in the queue
	grant   driver.Grant
	moved   bool          // the hub that granted it is gone
	err     error         // why it was refused
	done    chan struct{} // closed when it is no longer queued; nil before it was
	lost    chan error    // receives why the grant was taken away
}

type claimState uint8

const (
	claimAsked claimState = iota // there is no answer yet
	claimQueued
	claimHeld
	claimRefused
)

// add begins a claim.
func (x *Lock) add(r *driver.Request) (*claim, error) {
	now := driver.Now()
	c := &claim{request: *r, first: x.clock.told(now), asked: now, lost: make(chan error, 1)}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, driver.ErrClosed
	}
	x.sweep()
	x.claims[r.Token] = c
	return c, nil
}

// forget expects x locked.
func (x *Lock) forget(c *claim) {
	if x.claims[c.request.Token] == c {
		delete(x.claims, c.request.Token)
	}
}

// sweep forgets the leases that nobody has released after they had expired, now
// and then. It expects x locked.
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

// firstSweep is from how many claims it is worth looking for expired ones.
const firstSweep = 64

// enqueue notes that the hub has queued the claim. Its grant may have come
// before. It expects x locked.
func (c *claim) enqueue() {
	c.heard = driver.Now()
	if c.state == claimAsked {
		c.state, c.done = claimQueued, make(chan struct{})
	}
}

// have notes the grant of the claim that d says. It expects x locked.
func (x *Lock) have(c *claim, d *wire.Decoder) {
	r := &c.request
	g := driver.Grant{Key: r.Key, Token: r.Token, Fences: max(r.Fences, 1), TTL: r.TTL, NoRenew: r.NoRenew, Lost: c.lost}
	readGrant(d, &g, x.clock)
	if !g.Queued {
		g.Deadline = earlier(g.Deadline, driver.Deadline(c.asked, g.TTL))
	}
	if d.Err() == nil && (c.state == claimAsked || c.state == claimQueued) {
		c.grant = g
		c.settle(claimHeld, nil)
	}
}

// earlier returns the earlier one. The hub counts from when it had the question;
// whoever asks counts from before it asked, as with every driver.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// settle ends the wait of a claim. It expects x locked.
func (c *claim) settle(s claimState, err error) {
	c.state, c.err = s, err
	if c.done != nil {
		close(c.done)
		c.done = nil
	}
}

// refuse ends a claim that waits. It expects x locked.
func (x *Lock) refuse(c *claim, err error) {
	if c.state == claimAsked || c.state == claimQueued {
		c.settle(claimRefused, err)
	}
	x.forget(c)
}

// granted takes the hub's word that a queued claim is served.
func (x *Lock) granted(d *wire.Decoder) {
	token := d.Bytes()
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.claims[string(token)]; c != nil {
		x.have(c, d)
	}
}

// refused takes the hub's word that a claim is not queued any more.
func (x *Lock) refused(d *wire.Decoder) {
	token := d.Bytes()
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.claims[string(token)]; c != nil {
		x.refuse(c, readError(d.Byte(), d, c.request.Key))
	}
}

// lose takes the hub's word that a grant was taken away. The grant itself may
// be still to come, as the answer to a question.
func (x *Lock) lose(d *wire.Decoder) {
	token := d.Bytes()
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.claims[string(token)]
	if c == nil {
		return
	}
	select {
	case c.lost <- readError(d.Byte(), d, c.request.Key):
	default:
	}
	if c.state == claimHeld {
		x.forget(c)
	}
}

// renewed notes until when a claim is held, or that it is not. It expects x
// locked.
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

// inventory returns the grants and the queued requests of this process as frames
// for a hub that does not know them. It expects x locked.
func (x *Lock) inventory() []*wire.Frame {
	var frames []*wire.Frame
	now := driver.Now()
	for _, c := range x.claims {
		switch c.state {
		case claimHeld:
			c.moved = true
			f := wire.Begin(lockHave)
			addLease(f, &c.grant, &c.request, x.clock)
			frames = append(frames, f)
		case claimQueued:
			// A grant counts from this request: from the first one, its
			// deadline could have passed before it came.
			c.asked = now
			frames = append(frames, c.question(0))
		}
	}
	return append(frames, wire.Begin(lockTold))
}

// question returns the frame that asks for the claim.
func (c *claim) question(number uint64) *wire.Frame {
	f := wire.Begin(lockAsk).Uint(number).Int(c.first)
	addRequest(f, &c.request)
	return f
}

// remains is until when, on the node's clock, something is held that was not
// given back, or 0.
func (x *Lock) remains() (until int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.claims {
		if c.state == claimHeld {
			until = max(until, x.clock.told(c.grant.Deadline.Add(driver.Margin(c.grant.TTL)))+apart)
		}
	}
	return until
}
