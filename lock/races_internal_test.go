package lock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// leased returns a Locker with a lease of the key k.
func leased(t *testing.T) (*Locker, *Lease) {
	t.Helper()
	l, err := New(remote{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return l, lease
}

// What lose does, stopped between its unlock and ending.end.
func TestErrReportsTheEndOfTheLease(t *testing.T) {
	l, lease := leased(t)
	ctx := lease.Context()
	ctx.Done()
	h := lease.hold
	h.mu.Lock()
	e := h.endCurrent(&LostError{Cause: Expired})
	h.mu.Unlock()
	// the goroutine in lose is preempted here
	if ctx.Err() == nil {
		t.Errorf("live %v, Err %v", lease.live(), ctx.Err())
	}
	e.end(&LostError{Cause: Expired})
	l.gate.leave()
	_ = l.Close(context.Background())
}

// What obtain does, stopped after attach: the lease is lost before its call returns.
func TestNoMoreLeasesEndThanBegin(t *testing.T) {
	l, err := New(remote{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.newCall("k", nil)
	if err != nil {
		t.Fatal(err)
	}
	l.gate.stay()
	c.left = c.wait
	o, err := l.await(t.Context(), &c, 0, l.clock.now())
	if err != nil {
		t.Fatal(err)
	}
	if !o.hold.attach(newLease(t.Context(), &c, o), &c) {
		t.Fatal("the grant is over")
	}
	o.hold.lose(&LostError{Cause: Expired}) // the call is preempted meanwhile
	if s := l.Stats(); s.Active != 0 || s.Acquired != 1 || s.Lost != 1 {
		t.Errorf("got %+v", s)
	}
	_ = l.Close(context.Background())
}

// Two reschedules at once; the later place wins over the earlier need.
func TestOfTwoPlacesInTheScheduleTheEarlierHolds(t *testing.T) {
	l, err := New(remote{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(t.Context(), "k", TTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	h := lease.hold
	far := l.clock.now().add(time.Minute)
	near := l.clock.now().add(30 * time.Second)
	lost := 0
	for range 200000 {
		h.mu.Lock()
		h.renewAt = far
		h.mu.Unlock()
		var wg sync.WaitGroup
		wg.Go(func() { l.reschedule(h) }) // a renewal has come back
		wg.Go(func() {                    // hint: ask at once
			h.mu.Lock()
			h.renewAt = near
			h.mu.Unlock()
			l.reschedule(h)
		})
		wg.Wait()
		l.schedule.mu.Lock()
		if h.next != near {
			lost++
		}
		l.schedule.mu.Unlock()
	}
	if lost > 0 {
		t.Errorf("%d of 200000 hints were overwritten", lost)
	}
	_ = lease.Release()
	_ = l.Close(context.Background())
}

// What the watch of an earlier lease of the same grant finds, late, is not about this one.
func TestALateWatchOfAnEarlierLeaseChangesNothing(t *testing.T) {
	l, lease := leased(t)
	lease.hold.abandon(lease.fence - 1)
	lease.hold.forget(lease.fence-1, "it was garbage collected")
	if err := lease.Err(); err != nil || lease.hold.forgetAt != 0 {
		t.Errorf("the lease is to be taken back at %v: %v", lease.hold.forgetAt, err)
	}
	if err := errors.Join(lease.Release(), l.Close(context.Background())); err != nil {
		t.Error(err)
	}
}

// L18: a grant that is lost, or that its owner forgot, leaves its queue and the schedule.
func TestAnEndedGrantLeavesItsQueue(t *testing.T) {
	for name, end := range map[string]func(h *hold, fence uint64){
		"lost":      func(h *hold, _ uint64) { h.lose(&LostError{Cause: Forced}) },
		"forgotten": func(h *hold, fence uint64) { h.forget(fence, "it was garbage collected") },
		"released":  func(h *hold, _ uint64) { _ = h.current().Release() },
	} {
		t.Run(name, func(t *testing.T) {
			l, lease := leased(t)
			end(lease.hold, lease.fence)
			if l.queues.byKey["k"] != nil || len(l.schedule.all()) != 0 {
				t.Errorf("it has the queue %+v and %d places in the schedule", l.queues.byKey["k"], len(l.schedule.all()))
			}
			_ = lease.Release()
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
