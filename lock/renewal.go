package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/lock/driver"
)

// The times of renewal.
const (
	renewAtMost = 10 * time.Second       // bounds the delay until a lease with a long TTL notices a force
	renewShort  = 100 * time.Millisecond // delay of the first renewal of a grant with less than its TTL
	retryAtMost = time.Second
)

// renewInterval returns the time between two renewals.
func renewInterval(ttl time.Duration) time.Duration { return min(ttl/3, renewAtMost) }

// renewalTime returns when a grant that lives for life from now is renewed: after the
// interval of its TTL, or up to a sixteenth of that earlier, at a time that all grants
// with this TTL share. So the renewals of many leases take few calls, however far apart
// the leases were acquired (L12). A grant with less than its TTL is renewed soon, but not
// at once, because most grants are given back or handed on before.
func renewalTime(now instant, ttl, life time.Duration) instant {
	if life < ttl/2 {
		return now.add(min(renewShort, life/3))
	}
	interval := renewInterval(ttl)
	at := now.add(min(interval, life/3))
	return at - at%max(instant(interval/16), 1)
}

// renewBound returns the timeout of a renewal. It is short enough for a second
// attempt. After a failed attempt it lasts until the deadline, in case the
// network is slow.
func (h *hold) renewBound() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	bound := h.ttl / 3
	if h.failing != nil {
		bound = max(bound, h.deadline.sub(h.locker.clock.now()))
	}
	return min(bound.Round(MinTTL/4), driver.CallTimeout)
}

// renew renews holds in batches with the same timeout, so that a hold with a
// short TTL neither waits for one with a long TTL nor shortens its timeout.
func (l *Locker) renew(due []*hold) {
	batches := make(map[time.Duration][]*hold)
	for _, h := range due {
		bound := h.renewBound()
		batches[bound] = append(batches[bound], h)
	}
	for bound, batch := range batches {
		l.group.Go(func(ctx context.Context) { l.renewBatch(ctx, bound, batch) })
	}
}

func (l *Locker) renewBatch(ctx context.Context, bound time.Duration, batch []*hold) {
	grants := make([]driver.Grant, len(batch))
	for i, h := range batch {
		grants[i] = h.renewable()
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	renewals := l.driver.Renew(ctx, grants)
	for i, h := range batch {
		h.renewed(renewals[i], bound)
		l.reschedule(h)
	}
}

// renewable returns the grant with the TTL for its renewal, and with the Handback
// for its release.
func (h *hold) renewable() driver.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.grant
	g.TTL, g.Rev, g.Handback = h.ttl, h.rev, h.handedBack()
	return g
}

// renewed applies the outcome of a renewal that had the timeout bound. An
// outcome that arrives after the end of the hold changes nothing.
func (h *hold) renewed(r driver.Renewal, bound time.Duration) {
	now := h.locker.clock.now()
	h.mu.Lock()
	h.endRenewal()
	if h.ended {
		h.mu.Unlock()
		return
	}
	if r.Err == nil {
		h.live(h.locker.clock.at(r.Deadline), now)
		h.mu.Unlock()
		return
	}
	if errors.Is(r.Err, ErrLost) {
		h.mu.Unlock()
		h.lose(asLost(r.Err))
		return
	}
	h.failing = h.locker.unavailable(r.Err, bound)
	h.renewAt = now.add(group.Jitter(min(h.ttl/20, retryAtMost))) // L12
	err, left := h.failing, h.deadline.sub(now)
	h.mu.Unlock()
	h.locker.health.failed(err)
	h.locker.observe(RenewFailed{Key: h.grant.Key, Err: err, Left: left})
}

// beginRenewal marks a renewal to ttl as in flight. A renewal that shortens the
// grant may take effect without an answer, so the earlier deadline applies at
// once. The caller holds h.mu.
func (h *hold) beginRenewal(now instant, ttl time.Duration, noRenew bool) {
	h.renewing, h.asked, h.again = make(chan struct{}), now, false
	if !noRenew {
		h.kept = max(h.kept, now.add(ttl))
		h.deadline = min(h.deadline, now.add(ttl-driver.Margin(ttl)))
	}
}

// endRenewal marks the renewal in flight as finished. The caller holds h.mu.
func (h *hold) endRenewal() {
	close(h.renewing)
	h.renewing = nil
}

// live records a successful renewal. The caller holds h.mu.
func (h *hold) live(deadline, now instant) {
	if !h.grant.NoRenew {
		h.deadline = deadline
		h.kept = deadline.add(driver.Margin(h.ttl))
	}
	h.failing, h.doubted, h.confirmed = nil, h.again, now
	h.renewAt = renewalTime(now, h.ttl, h.ttl)
	if h.doubted {
		h.renewAt = now
	}
}

// confirm renews the hold at once and keeps its TTL.
func (h *hold) confirm(lease *Lease) error {
	h.mu.Lock()
	ttl := h.ttl
	h.mu.Unlock()
	return h.extend(context.Background(), lease, ttl)
}

// extend renews the hold to ttl at once, for lease.
func (h *hold) extend(ctx context.Context, lease *Lease, ttl time.Duration) error {
	if lease.live() && ctx.Err() != nil {
		return contextError(ctx) // nothing was sent
	}
	rev, err := h.beginExtend(ctx, lease, ttl)
	if err != nil {
		return err
	}
	h.locker.reschedule(h) // an earlier deadline applies at once
	h.checkWarnings()
	g := h.grant
	g.TTL, g.NoRenew, g.Rev = ttl, false, rev
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	r := h.locker.driver.Renew(bounded, []driver.Grant{g})[0]
	err = h.extended(ctx, lease, r, ttl)
	h.locker.reschedule(h)
	return err
}

// beginExtend waits until no renewal is in flight, marks a renewal to ttl as in
// flight, and returns its revision.
func (h *hold) beginExtend(ctx context.Context, lease *Lease, ttl time.Duration) (rev uint64, err error) {
	for {
		lease.end()
		h.mu.Lock()
		if lease.over {
			defer h.mu.Unlock()
			return 0, lease.gone()
		}
		inFlight := h.renewing
		if inFlight == nil {
			h.beginRenewal(h.locker.clock.now(), ttl, false)
			h.rev++ // L12
			rev := h.rev
			h.mu.Unlock()
			return rev, nil
		}
		h.mu.Unlock()
		select {
		case <-inFlight:
		case <-h.locker.group.Context().Done():
			return 0, ErrClosed
		case <-ctx.Done():
			return 0, contextError(ctx)
		}
	}
}

// gone returns the error of an operation on a lease that is over. The caller
// holds hold.mu.
func (l *Lease) gone() error {
	if errors.Is(l.cause, ErrLost) {
		return l.cause
	}
	return fmt.Errorf("%w: it was released", ErrLost)
}

// extended applies the outcome of an Extend.
func (h *hold) extended(ctx context.Context, lease *Lease, r driver.Renewal, ttl time.Duration) error {
	h.mu.Lock()
	h.endRenewal()
	switch {
	case r.Err == nil && !lease.over:
		h.ttl = ttl
		h.live(h.locker.clock.at(r.Deadline), h.locker.clock.now())
		h.deadline = h.locker.clock.at(r.Deadline) // also under NoRenew
		h.kept = h.deadline.add(driver.Margin(ttl))
		h.mu.Unlock()
		return nil
	case r.Err == nil:
		err := lease.gone()
		h.rev++                          // L12
		h.renewAt = h.locker.clock.now() // renew to the TTL of the next lease
		bury := h.ended && !h.forgotten && errors.Is(lease.cause, ErrLost)
		h.mu.Unlock()
		if bury { // else its release was sent, and may leave the key taken (O5)
			h.bury()
		}
		return err
	}
	// The outcome is unknown. A renewal with a higher revision restores the
	// current TTL, so that a late copy of this request changes nothing.
	h.rev++ // L12
	h.renewAt = h.locker.clock.now()
	h.mu.Unlock()
	if errors.Is(r.Err, ErrLost) {
		lost := asLost(r.Err)
		h.lose(lost)
		return lost
	}
	return h.locker.callError(ctx, r.Err, driver.CallTimeout)
}
