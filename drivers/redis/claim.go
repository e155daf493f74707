package redis

import (
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// claim is what this process wants, or has, of one token: from before the
// first request until the release. Pushes find it by its token.
type claim struct {
	name string // the holder key in Redis
	r    driver.Request
	tail string     // what of the holder's value does not depend on the grant
	lost chan error // Grant.Lost, with room for a hint and a loss

	// The fields below are guarded by claims.mu.

	// wake receives when award was set, or when there is nothing to wait for
	// any more. It is nil unless the claim is queued.
	wake  chan struct{}
	award *award
	// number is the place in the queue, presented again if the server lost it.
	number int64
	// queuedAt is when the last call that answered "queued" was sent: a push
	// that comes in answer to this place was granted later than that.
	queuedAt time.Time
	// loose says that a copy of an acquire may still be on its way: the token
	// has to be barred at its release, and a push may be of an earlier place,
	// so that it has to be confirmed.
	loose bool
	// abandoned says that its Acquire has returned without knowing the outcome. A
	// release is to be expected; Close makes up for one that did not come.
	abandoned bool
	// leaving says that its release is on its way. A push that comes now, of a
	// grant that a beat had told of before, needs no answer: that would be a
	// second release, and one of the two would find nothing.
	leaving bool
	// barred says that the token was released before anything was known of it: a
	// request with it comes too late.
	barred bool
	// epoch is that of claims when the server was last known to have the lease.
	epoch uint64
	// until is when a held or abandoned claim that nobody released has surely
	// ended.
	until time.Time
}

func (c *claim) grant(fence uint64, slot, span int, deadline time.Time) driver.Grant {
	return driver.Grant{
		Key: c.r.Key, Token: c.r.Token, Fence: fence, Fences: span, Slot: slot,
		TTL: c.r.TTL, NoRenew: c.r.NoRenew, Deadline: deadline, Lost: c.lost,
	}
}

// waited is a grant that came while waiting.
func (c *claim) waited(fence uint64, slot int, deadline time.Time) driver.Grant {
	g := c.grant(fence, slot, c.r.Fences, deadline)
	g.Queued = true
	return g
}

// award is a grant that came while waiting.
type award struct {
	fence uint64
	slot  int
	// sent and left bound how long it lives: at least for left from sent on. A
	// push leaves sent zero.
	sent time.Time
	left time.Duration
}

// claims are all claims of a driver by token.
type claims struct {
	mu      sync.Mutex // guards what is below, and the claims' own fields
	byToken map[string]*claim
	waiting map[string]*claim // those with a place in the queue
	sweepAt int               // size at which ended claims are looked for
	epoch   uint64            // grows when the server may have become another one
	closed  bool
	ending  chan struct{} // closed with closed
}

// minSweep is how many claims are kept before any is looked at.
const minSweep = 1024

func newClaims() *claims {
	return &claims{ending: make(chan struct{}), byToken: map[string]*claim{}, waiting: map[string]*claim{}, sweepAt: minSweep}
}

// add registers c before its first request leaves, so that no push misses it.
func (cs *claims) add(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.byToken) >= cs.sweepAt {
		cs.sweepLocked()
	}
	cs.byToken[c.r.Token] = c
}

// sweepLocked forgets claims that ended without a release, such as those of
// leases that were lost.
func (cs *claims) sweepLocked() {
	now := driver.Now()
	for token, c := range cs.byToken {
		if !c.until.IsZero() && now.After(c.until) {
			delete(cs.byToken, token)
		}
	}
	cs.sweepAt = max(minSweep, 2*len(cs.byToken))
}

// pooled reports whether a token was asked for as a slot of a pool.
func (cs *claims) pooled(token string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byToken[token]
	return c != nil && c.r.Slots > 1
}

// find returns the claim of a token that is held, or nil.
func (cs *claims) find(token string) *claim {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.byToken[token]; c != nil && !c.until.IsZero() && !c.abandoned && !c.barred && !c.leaving {
		return c
	}
	return nil
}

// remove forgets a token. It says whether a copy of its acquire may be on its
// way, which is so for a token that is not known.
func (cs *claims) remove(token string) (loose bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c, ok := cs.byToken[token]
	if !ok || c.barred {
		return true
	}
	delete(cs.byToken, token)
	delete(cs.waiting, token)
	return c.loose
}

// leave is remove for a claim that is about to be released: pushes still find
// it until remove.
func (cs *claims) leave(token string) (c *claim, loose bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c, ok := cs.byToken[token]
	if !ok || c.barred {
		return nil, true
	}
	delete(cs.waiting, token)
	c.leaving, c.until = true, driver.Now().Add(2*driver.CallTimeout)
	return c, c.loose
}

// changed reports whether the server may have become another one since it was
// last known to have the lease of c.
func (cs *claims) changed(c *claim) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return c.epoch != cs.epoch
}

// disconnected notes that the server may become another one.
func (cs *claims) disconnected() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.epoch++
}

// reconnected notes that the server may have become another one, and hints to
// each holder that its lease may be gone: it asks at once. L4
func (cs *claims) reconnected() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.epoch++
	for _, c := range cs.byToken {
		if !c.until.IsZero() && !c.abandoned && !c.barred && !c.leaving && len(c.lost) == 0 {
			select {
			case c.lost <- nil:
			default: // it was told
			}
		}
	}
}

// abandon notes that nobody waits for c any more, although the server may know
// of it.
func (cs *claims) abandon(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.abandoned, c.loose, c.wake, c.leaving = true, true, nil, false
	c.until = driver.Now().Add(c.r.TTL + window)
	delete(cs.waiting, c.r.Token)
}

// bar notes that a token is about to be released, unless it is known here.
func (cs *claims) bar(token string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byToken[token] == nil {
		cs.byToken[token] = &claim{r: driver.Request{Token: token}, barred: true, until: driver.Now().Add(barring)}
	}
}

// isBarred says whether a token was barred by this process.
func (cs *claims) isBarred(token string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byToken[token]
	return c != nil && c.barred
}

// orphans are the claims that were abandoned and not released.
func (cs *claims) orphans() []*claim {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var out []*claim
	for _, c := range cs.byToken {
		if c.abandoned {
			out = append(out, c)
		}
	}
	return out
}

// held notes until when a claim is live.
func (cs *claims) held(c *claim, deadline time.Time, loose bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.until = deadline.Add(2*driver.Margin(c.r.TTL) + window)
	c.epoch = cs.epoch
	c.loose = c.loose || loose
	c.wake = nil
	delete(cs.waiting, c.r.Token)
}

// renewed is held for a token.
func (cs *claims) renewed(token string, deadline time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byToken[token]
	if c == nil {
		return
	}
	c.epoch = cs.epoch
	if deadline.After(c.until) {
		c.until = deadline.Add(2*driver.Margin(c.r.TTL) + window)
	}
}

// queued gives c a place in the queue.
func (cs *claims) queued(c *claim, number int64, sent time.Time, loose bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		c.wake = make(chan struct{}, 1)
		c.wake <- struct{}{}
		return
	}
	c.number, c.queuedAt, c.loose = number, sent, c.loose || loose
	if c.wake == nil {
		c.wake = make(chan struct{}, 1)
	}
	cs.waiting[c.r.Token] = c
	if c.award != nil {
		c.signalLocked()
	}
}

func (c *claim) signalLocked() {
	select {
	case c.wake <- struct{}{}:
	default: // it has been told, and will look
	}
}

// give hands a grant to the claim of token. It says whether there is such a
// claim, and whether the grant is news to it: one that is held has it already.
func (cs *claims) give(token string, a award) (known, news bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c, known := cs.byToken[token]
	if !known || c.abandoned || c.barred {
		return false, false
	}
	if !c.until.IsZero() || c.leaving {
		return true, false
	}
	news = c.award == nil
	c.award = &a
	if c.wake != nil {
		c.signalLocked()
	}
	return true, news
}

// awarded takes what give has left, and says when the place that it answers
// was confirmed last, or that this is not known.
func (cs *claims) awarded(c *claim) (a *award, queuedAt time.Time, loose, closed bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	a, c.award = c.award, nil
	return a, c.queuedAt, c.loose, cs.closed
}

// stillQueued notes that a call sent at sent has found the ticket in its place.
func (cs *claims) stillQueued(token string, sent time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.waiting[token]; c != nil && sent.After(c.queuedAt) {
		c.queuedAt = sent
	}
}

// loosen says that a claim's acquire is about to be sent again, and whether it
// still waits.
func (cs *claims) loosen(token string) (c *claim, number int64, waits bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c = cs.waiting[token]
	if c == nil || c.award != nil {
		return nil, 0, false
	}
	c.loose = true
	return c, c.number, true
}

// tell says to the holder of token that it was taken away.
func (cs *claims) tell(token string, err error) {
	cs.mu.Lock()
	c := cs.byToken[token]
	cs.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case c.lost <- err:
	default: // it knows
	}
}

// tickets are the waiting claims, by lock.
func (cs *claims) tickets() map[string][]*claim {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.waiting) == 0 {
		return nil
	}
	byLock := make(map[string][]*claim, len(cs.waiting))
	for _, c := range cs.waiting {
		byLock[c.name] = append(byLock[c.name], c)
	}
	return byLock
}

// close wakes everyone who waits, and refuses new claims.
func (cs *claims) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	close(cs.ending)
	for _, c := range cs.waiting {
		c.signalLocked()
	}
}

func (cs *claims) len() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.byToken)
}
