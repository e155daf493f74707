package redis

import (
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// claim is this process's record of one token, from before the first request
// until the release. Pushes find it by its token.
type claim struct {
	name string // the holder key in Redis
	r    driver.Request
	tail string     // the part of the holder's value that is the same for each grant
	lost chan error // Grant.Lost, with room for a hint and a loss

	// The fields below are guarded by claims.mu.

	// wake receives when award was set, or when the wait is over. It is nil
	// unless the claim is queued.
	wake  chan struct{}
	award *award
	// number is the place in the queue. The claim presents it again if the
	// server lost it.
	number int64
	// queuedAt is the time when the last call with the answer "queued" was
	// sent. A push for this place was granted later.
	queuedAt time.Time
	// loose means that a copy of an acquire may still be on its way. Then
	// the release bars the token, and a push may belong to an earlier
	// place, so it must be confirmed.
	loose bool
	// abandoned means that Acquire returned with an unknown outcome. A
	// release should follow; Close sends a missing one.
	abandoned bool
	// leaving means that the release is on its way. A push that arrives
	// now, of a grant that a heartbeat reported before, needs no answer: a
	// second release would find nothing.
	leaving bool
	// barred means that the token was released before its outcome was
	// known: a later request with it comes too late.
	barred bool
	// epoch is the epoch of claims when the server last confirmed the
	// lease.
	epoch uint64
	// entered means that Acquire has returned the grant.
	entered bool
	// until is a time at which a held or abandoned claim without a release
	// has surely ended.
	until time.Time
}

func (c *claim) grant(fence uint64, slot, span int, deadline time.Time) driver.Grant {
	return driver.Grant{
		Key: c.r.Key, Token: c.r.Token, Fence: fence, Fences: span, Slot: slot,
		TTL: c.r.TTL, NoRenew: c.r.NoRenew, Deadline: deadline, Lost: c.lost,
	}
}

// waited is a grant that arrived during the wait.
func (c *claim) waited(fence uint64, slot int, deadline time.Time) driver.Grant {
	g := c.grant(fence, slot, c.r.Fences, deadline)
	g.Queued = true
	return g
}

// award is a grant that arrived during the wait.
type award struct {
	fence uint64
	slot  int
	// sent and left bound the life of the grant: at least left from sent
	// on. sent is zero for a push.
	sent time.Time
	left time.Duration
	// record is what is known of the slot, if it has a state.
	record string
	// refusal is the answer if there is no grant, because of the state of the
	// pool, and nil with a grant. It is a pointer because an award is made for
	// each push, and a tried is several times its size.
	refusal *tried
}

// untouched is the Handback of a claim whose grant was not entered: nobody has
// touched the slot. It is nil for a plain lock or pool.
func untouched(c *claim) *driver.Handback {
	if c.r.Pool == nil {
		return nil
	}
	return &driver.Handback{Status: asItWas}
}
