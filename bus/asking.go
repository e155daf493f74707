package bus

import (
	"context"
	"time"
)

// blockedInterval is the minimum time between two reports of Blocked for a
// subscription.
const blockedInterval = time.Second

// beginAsking counts a request that a handler makes to the responder whose
// handler it is, and returns that responder, or nil for any other request.
func (b *Bus) beginAsking(ctx context.Context, subject string) *Sub {
	d := deliveryFrom(ctx)
	if d == nil || d.request() == nil || d.sub.bus != b || !matches(d.sub.pattern, subject) {
		return nil
	}
	s := d.sub
	if d.extra.asking.Add(1) == 1 && int(s.asking.Add(1)) == s.concurrency {
		s.reportBlocked(subject)
	}
	return s
}

func (s *Sub) endAsking(ctx context.Context) {
	if deliveryFrom(ctx).extra.asking.Add(-1) == 0 {
		s.asking.Add(-1)
	}
}

// reportBlocked reports that every handler waits for a request to s itself.
func (s *Sub) reportBlocked(subject string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.blocked) >= blockedInterval {
		s.blocked = now
		s.bus.notify(Blocked{SubID: s.subID(), Subject: subject, Handlers: s.concurrency})
	}
}
