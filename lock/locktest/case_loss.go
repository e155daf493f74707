package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var errUnreachable = errors.New("no route to host")

var lossCases = []testCase{
	{rule: "L4", claim: "a lease whose renewals hang ends before another is granted", run: lossBefore(Step{Op: Renew, Hang: true})},
	{rule: "L4", claim: "a lease whose renewals fail ends before another is granted", run: lossBefore(Step{Op: Renew, Err: errUnreachable})},
	{rule: "L4", claim: "a lease whose acquire was answered late ends in time", run: lateAnswer},
	{rule: "L4", claim: "a renewal counts from when it was sent", run: renewalCountsFromSending},
	{rule: "L4", claim: "a lease without renewal ends at its TTL", run: noRenewEnds},
	{rule: "L4", claim: "Err shows the end at the deadline, independent of timers", run: lookAtTheClock},
	{rule: "L4", claim: "With returns ErrLost for a lost lease, also if fn returned nil", run: withReturnsLost},
	{rule: "L4", claim: "the driver keeps the margin in its deadlines", run: marginIsKept},
	{rule: "L4", claim: "the driver measures a grant from the start of its request", needs: []fault{"Delay"}, run: driverCountsFromSending},
	{rule: "L4", claim: "a disconnected process ends its lease before another is granted", remote: true, needs: []fault{"Partition"}, run: partitioned},
	{rule: "L4", claim: "a process without answers ends its lease before another is granted", remote: true, needs: []fault{"Deafen"}, run: deafened},
	{rule: "L4", claim: "leases end in time while the backend is stopped", remote: true, needs: []fault{"Stop", "Continue"}, run: backendStandsStill},
	{rule: "L4", claim: "the driver ignores the wall clocks of its clients", run: skewedClock},
}

// lossBefore disturbs the renewals of a holder while another process waits.
func lossBefore(s Step) func(*env) {
	return func(e *env) {
		a, b := e.process(), e.process()
		lease := a.acquire(e.key("k"), e.ttl(2))
		defer a.plan.Add(s)()
		e.succeeds(lease, b)
		e.Is(lease.Release(), lock.ErrLost, "release the lost lease")
	}
}

// succeeds waits until b is granted the key of lease, and fails the case if the
// holder of lease still assumed to have it then.
func (e *env) succeeds(lease *lock.Lease, b *process) {
	end := make(chan time.Time, 1)
	defer context.AfterFunc(lease.Context(), func() { end <- time.Now() })()
	next := b.ask(lease.Key())
	next.wait(3 * e.Patience())
	e.Must(next.err, "wait for the lost lease")
	e.Want(lease.Context().Err() != nil, "another was granted the key while the lease was believed in until %v later", time.Until(lease.Deadline()))
	cause := context.Cause(lease.Context())
	e.Is(cause, lock.ErrLost, "the cause of the loss")
	var lost *lock.LostError
	e.Want(errors.As(cause, &lost) && (lost.Cause == lock.Unreachable || lost.Cause == lock.Expired), "the cause is %v", cause)
	select {
	case at := <-end:
		// Real timers may be late; a late goroutine then checks the clock.
		e.Want(at.Before(next.when) || !e.h.FakeTime, "the context ended %v after the other was granted", at.Sub(next.when))
	case <-time.After(e.Patience()):
		e.Fail("the context did not end")
	}
	e.releases(next.got)
}

func lateAnswer(e *env) {
	a, b := e.process(), e.process()
	ttl, late := e.Units(2), e.Units(0.5)
	defer a.plan.Add(Step{Op: Acquire, Executed: true, Delay: late, Times: 1})()
	lease := a.acquire(e.key("k"), lock.TTL(ttl), lock.NoRenew())
	// The reply was held back, so the request was sent at least that long ago.
	latest := time.Now().Add(ttl - driver.Margin(ttl) - late + e.Unit/20)
	e.Want(!lease.Deadline().After(latest), "the deadline is %v too late", lease.Deadline().Sub(latest))
	e.succeeds(lease, b)
	_ = lease.Release()
}

func renewalCountsFromSending(e *env) {
	p := e.process()
	ttl, late := e.Units(5), e.Units(0.4)
	lease := p.acquire(e.key("k"), lock.TTL(ttl))
	defer p.plan.Add(Step{Op: Renew, Executed: true, Delay: late})()
	first := lease.Deadline()
	e.Soon("it is renewed", func() bool { return lease.Deadline().After(first) })
	latest := time.Now().Add(ttl - driver.Margin(ttl) - late + e.Unit/20)
	e.Want(!lease.Deadline().After(latest), "the deadline is %v too late", lease.Deadline().Sub(latest))
	e.releases(lease)
}

func noRenewEnds(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), lock.NoRenew(), e.ttl(2))
	e.Want(!lease.Deadline().After(time.Now().Add(e.Units(2))), "the deadline is %v ahead", time.Until(lease.Deadline()))
	e.succeeds(lease, b)
	var lost *lock.LostError
	cause := context.Cause(lease.Context())
	e.Want(errors.As(cause, &lost) && lost.Cause == lock.Expired, "the cause is %v, want expired", cause)
	e.Is(lease.Release(), lock.ErrLost, "release the expired lease")
}

// lookAtTheClock checks the lease at the exact instant of the deadline, when
// the timers of that instant may not have run yet.
func lookAtTheClock(e *env) {
	p := e.process()
	for i := range e.rounds() / 5 {
		lease := p.acquire(e.key("k"), lock.NoRenew(), lock.TTL(e.Units(1)+time.Duration(i)*time.Microsecond))
		e.Sleep(time.Until(lease.Deadline()))
		e.Want(lease.Context().Err() != nil, "at its deadline the lease seems live")
		_ = lease.Release()
		p.free(e.key("k"))
	}
}

func withReturnsLost(e *env) {
	a, b := e.process(), e.process()
	own := errors.New("the work's own error")
	for _, work := range []error{nil, own} {
		err := a.With(e.Ctx, e.key("k"), func(ctx context.Context) error {
			_, err := b.ForceRelease(e.Ctx, e.key("k"), "test")
			e.Must(err, "force")
			e.Await(ctx.Done(), "fn's context ends")
			return work
		})
		e.Is(err, lock.ErrLost, "With, where fn returned %v", work)
		e.Want(work == nil || errors.Is(err, own), "fn's error is hidden: %v", err)
	}
}

// now returns the time on the clock of deadlines.
func (e *env) now() time.Time {
	if e.remote() {
		return driver.Now()
	}
	return time.Now()
}

func marginIsKept(e *env) {
	d, now := e.driver(), e.now
	r := e.request(e.key("k"))
	r.NoRenew = true
	g := e.grant(d, r)
	bound := func() time.Time { return now().Add(r.TTL - driver.Margin(r.TTL)) }
	e.Want(!g.Deadline.After(bound()), "a grant's deadline is %v too late", g.Deadline.Sub(bound()))
	e.Want(now().Before(g.Deadline), "a grant's deadline is %v ago", now().Sub(g.Deadline))
	g.NoRenew = false
	sent := now()
	renewal := e.renew(d, g)
	took := now().Sub(sent)
	e.Must(renewal.Err, "renew")
	e.Want(!renewal.Deadline.After(bound()), "a renewal's deadline is %v too late", renewal.Deadline.Sub(bound()))
	g.NoRenew = true
	renewed := e.renew(d, g)
	e.Must(renewed.Err, "renew without renewal")
	// A renewal has its deadline from the time of its sending, and a look from the
	// later time at which the backend renewed. One millisecond of the rest is
	// rounding, and one is the difference between the clocks of two processes.
	slack := took + 5*time.Millisecond
	e.Want(!renewed.Deadline.After(renewal.Deadline.Add(slack)), "a look at a grant without renewal has moved its deadline by %v", renewed.Deadline.Sub(renewal.Deadline))
	e.Must(e.release(d, g), "release")
}

func driverCountsFromSending(e *env) {
	d := e.driver()
	r := e.request(e.key("k"))
	late := min(e.Units(0.5), driver.CallTimeout/4) // a driver may repeat a slower request
	e.Must(e.h.Faults.Delay(d, Acquire, late), "delay")
	g := e.grant(d, r)
	// The reply was delayed, so the request was sent at least that long ago.
	latest := driver.Now().Add(r.TTL - driver.Margin(r.TTL) - late/2)
	e.Want(!g.Deadline.After(latest), "a grant's deadline is %v too late", g.Deadline.Sub(latest))
	e.Must(e.h.Faults.Delay(d, Renew, late), "delay")
	renewal := e.renew(d, g)
	e.Must(renewal.Err, "renew")
	latest = driver.Now().Add(r.TTL - driver.Margin(r.TTL) - late/2)
	e.Want(!renewal.Deadline.After(latest), "a renewal's deadline is %v too late", renewal.Deadline.Sub(latest))
	e.Must(e.release(d, g), "release")
}

func partitioned(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(3))
	undo, err := e.h.Faults.Partition(a.opened)
	e.Must(err, "partition")
	e.succeeds(lease, b)
	e.Must(undo(), "heal")
	e.Is(lease.Release(), lock.ErrLost, "release the lost lease")
	e.comeBack(a, e.key("k"))
}

func deafened(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(3))
	undo, err := e.h.Faults.Deafen(a.opened)
	e.Must(err, "deafen")
	e.ended(lease, e.Patience()) // its renewals arrive, but their replies do not
	_ = lease.Release()          // the reply to this does not arrive either
	e.Must(undo(), "heal")
	e.comeBack(b, e.key("k"))
}

func backendStandsStill(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(3))
	next := b.queue(e.key("k"), "next")
	e.untilQueued()
	e.Must(e.h.Faults.Stop(), "stop")
	deadline := lease.Deadline() // one reply may still be on its way
	cause := e.ended(lease, 2*e.Patience())
	late := time.Since(deadline)
	e.Must(e.h.Faults.Continue(), "continue")
	e.Is(cause, lock.ErrLost, "the cause of the loss")
	e.Want(late < e.Units(3), "the lease ended %v after the deadline it had when the backend stopped", late)
	e.releases(b.afterOutage(next))
}

// untilQueued waits until a call with a queued request has received the
// confirmation: before it, an outage may end the call.
func (e *env) untilQueued() { e.Pass(0.25) }

// afterOutage returns the lease of a call that waited through an outage.
// Without a queue, the call has no place to keep: the outage may have ended it,
// and afterOutage repeats it.
func (p *process) afterOutage(call *asked) *lock.Lease {
	call.wait(3 * p.e.Patience())
	for !p.e.keeps("L7") && isUnavailable(call.err) {
		call = p.ask(call.key)
		call.wait(3 * p.e.Patience())
	}
	return call.lease()
}

// skewedClock uses clients whose wall clocks differ by hours. A backend sees
// such a clock only in the time of a request.
func skewedClock(e *env) {
	d := e.driver()
	for _, by := range []time.Duration{12 * time.Hour, -12 * time.Hour} {
		key := e.key(by.String())
		r := e.request(key)
		r.TTL, r.Holder.Since = e.Units(1), time.Now().Add(by)
		before := time.Now()
		g := e.grant(d, r)
		next := e.longRequest(key)
		next.Wait, next.Holder.Since = -1, time.Now().Add(-by)
		ctx, cancel := e.Bounded()
		got, err := d.Acquire(ctx, next)
		cancel()
		e.Must(err, "wait for a holder whose clock is off")
		took := time.Since(before)
		e.Want(took >= r.TTL-e.Unit/20 && took <= r.TTL+e.Patience()/2, "a grant of %v was over after %v", r.TTL, took)
		e.Want(got.Fence > g.Fence, "fence %d follows %d", got.Fence, g.Fence)
		e.Must(e.release(d, got), "release")
	}
}
