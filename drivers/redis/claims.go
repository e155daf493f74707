package redis

import (
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// claims are all claims of a driver by token.
type claims struct {
	mu      sync.Mutex // guards what is below, and the claims' own fields
	byToken map[string]*claim
	waiting map[string]*claim // the claims with a place in the queue
	sweepAt int               // size at which sweepLocked removes ended claims
	epoch   uint64            // grows when the connection may lead to another server
	closed  bool
	ending  chan struct{} // closed with closed

	// interrupt makes the waiter that reads the pushes look at its claim. It does not
	// block.
	interrupt func()
}

// minSweep is the number of claims below which nothing is swept.
const minSweep = 1024

func newClaims() *claims {
	return &claims{ending: make(chan struct{}), byToken: map[string]*claim{}, waiting: map[string]*claim{}, sweepAt: minSweep, interrupt: func() {}}
}

// add registers c before its first request is sent, so that no push misses it.
func (cs *claims) add(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.byToken) >= cs.sweepAt {
		cs.sweepLocked()
	}
	cs.byToken[c.r.Token] = c
}

// sweepLocked removes claims that ended without a release, such as those of
// lost leases.
func (cs *claims) sweepLocked() {
	now := driver.Now()
	for token, c := range cs.byToken {
		if !c.until.IsZero() && now.After(c.until) {
			delete(cs.byToken, token)
		}
	}
	cs.sweepAt = max(minSweep, 2*len(cs.byToken))
}

// pooled reports whether the token's request was for a slot of a pool.
func (cs *claims) pooled(token string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byToken[token]
	return c != nil && (c.r.Slots > 1 || c.r.Pool != nil)
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

// remove removes a token. It reports whether a copy of its acquire may be on
// its way, which is true for an unknown token.
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

// isLoose reports what remove returns, and removes nothing.
func (cs *claims) isLoose(token string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c, ok := cs.byToken[token]
	return !ok || c.barred || c.loose
}

// leave is remove for a claim whose release is about to be sent: pushes find it
// until remove.
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

// changed reports whether the server may be another one than the server that
// last confirmed the lease of c.
func (cs *claims) changed(c *claim) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return c.epoch != cs.epoch
}

// disconnected records that the next connection may lead to another server.
func (cs *claims) disconnected() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.epoch++
}

// reconnected records that the connection may lead to another server, and hints
// to each holder that its lease may be gone: the holder checks at once. L4
func (cs *claims) reconnected() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.epoch++
	for _, c := range cs.byToken {
		if !c.until.IsZero() && !c.abandoned && !c.barred && !c.leaving && len(c.lost) == 0 {
			select {
			case c.lost <- nil:
			default: // already notified
			}
		}
	}
}

// abandon records that c has no waiter any more, although the server may know
// the token.
func (cs *claims) abandon(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.abandoned, c.loose, c.wake, c.leaving = true, true, nil, false
	c.until = driver.Now().Add(c.r.TTL + window)
	delete(cs.waiting, c.r.Token)
}

// bar records that a token is about to be released, unless it has a claim here.
func (cs *claims) bar(token string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byToken[token] == nil {
		cs.byToken[token] = &claim{r: driver.Request{Token: token}, barred: true, until: driver.Now().Add(barring)}
	}
}

// isBarred reports whether a token was barred by this process.
func (cs *claims) isBarred(token string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byToken[token]
	return c != nil && c.barred
}

// orphans returns the abandoned claims without a release that may still be live.
func (cs *claims) orphans() []*claim {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	now := driver.Now()
	var out []*claim
	for _, c := range cs.byToken {
		if c.abandoned && !now.After(c.until) {
			out = append(out, c)
		}
	}
	return out
}

// held records until when a claim is live.
func (cs *claims) held(c *claim, deadline time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.until = deadline.Add(2*driver.Margin(c.r.TTL) + window)
	c.epoch, c.entered = cs.epoch, true
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

// repeated records that a copy of the acquire of c may be on its way.
func (cs *claims) repeated(c *claim) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.loose = true
}

// queued gives c a place in the queue.
func (cs *claims) queued(c *claim, number int64, sent time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.wake = make(chan struct{}, 1)
	if cs.closed {
		c.wake <- struct{}{}
		return
	}
	c.number, c.queuedAt = number, sent
	cs.waiting[c.r.Token] = c
	if c.award != nil {
		cs.signalLocked(c)
	}
}

// requeued is queued for a claim whose acquire was repeated. It has no effect on a
// claim that waits no longer: it would have heartbeats for ever. L18
func (cs *claims) requeued(c *claim, number int64, sent time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.waiting[c.r.Token] == c {
		c.number, c.queuedAt = number, sent
	}
}

func (cs *claims) signalLocked(c *claim) {
	select {
	case c.wake <- struct{}{}:
		cs.interrupt()
	default: // already notified: it will check
	}
}

// give passes a grant to the claim of token. known reports whether there is
// such a claim, and news whether the grant is new to it: a held claim has it
// already.
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
		cs.signalLocked(c)
	}
	return true, news
}

// awarded takes the grant that give has stored. It returns the time at which
// the answered place was last confirmed, or reports that it is unknown.
func (cs *claims) awarded(c *claim) (a *award, queuedAt time.Time, loose, closed bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	a, c.award = c.award, nil
	return a, c.queuedAt, c.loose, cs.closed
}

// stillQueued records that a call sent at sent has found the ticket in its
// place.
func (cs *claims) stillQueued(token string, sent time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.waiting[token]; c != nil && sent.After(c.queuedAt) {
		c.queuedAt = sent
	}
}

// loosen records that a claim's acquire is about to be repeated, and reports
// whether the claim still waits.
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

// revoke notifies the holder of token, if it has a claim here, that its lease was
// forced, with the server's record of the reason.
func (cs *claims) revoke(token, reason string) {
	cs.mu.Lock()
	c := cs.byToken[token]
	cs.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case c.lost <- lostBy(c.r.Key, reason):
	default: // already notified
	}
}

// tickets returns the waiting claims, by lock.
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

// close wakes all waiters and refuses new claims.
func (cs *claims) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	close(cs.ending)
	for _, c := range cs.waiting {
		cs.signalLocked(c)
	}
}

// unused returns untouched for the claim of token, or nil if Acquire has returned
// its grant.
func (cs *claims) unused(token string) *driver.Handback {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.byToken[token]; c != nil && !c.entered {
		return untouched(c)
	}
	return nil
}
