package locktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var replyCases = []testCase{
	{rule: "L6", claim: "the driver recognises a repeated request", run: sameRequestTwice},
	{rule: "L6", claim: "the driver grants a repeated request one slot", also: []string{"L15"}, run: oneSlotForOneToken},
	{rule: "L6", claim: "the driver refuses a request that arrives after its release", run: requestAfterRelease},
	{rule: "L6", claim: "the driver withdraws a queued request by its token", also: []string{"L7"}, run: releaseWithdraws},
	{rule: "L6", claim: "the driver lets late copies of requests of an earlier holder do nothing to its successor", run: lateCopies},
	{rule: "L6", claim: "an acquire whose reply was lost leaves nothing behind", run: acquireReplyLost},
	{rule: "L6", claim: "an acquire that is cancelled before its reply leaves nothing behind", run: cancelledBeforeReply},
	{rule: "L6", claim: "an acquire that arrives after its caller gave up is refused", run: lateAcquire},
	{rule: "L6", claim: "an acquire that arrives after its TTL leaves nothing behind", remote: true, fake: true, run: acquireAfterItsTTL},
	{rule: "L6", claim: "the clean-up of an acquire is retried until it succeeds", run: cleanUpPersists},
	{rule: "L6", claim: "a renewal whose reply was lost loses nothing", run: renewReplyLost},
	{rule: "L6", claim: "any reply may be lost on the wire", needs: []fault{"DropReply"}, run: anyReplyLost},
	{rule: "L6", claim: "an old copy of a repeated request acquires nothing", needs: []fault{"DropReply", "Duplicate"}, run: duplicateAcquire},
	{rule: "L6", claim: "an old copy of a request that was refused acquires nothing", also: []string{"L7", "L15"}, needs: []fault{"DropReply", "Duplicate"}, run: duplicateRefused},
	{rule: "L6", claim: "the backend may lose its scripts between any two operations", needs: []fault{"ForgetScripts"}, run: forgottenScripts},
}

// isUnavailable reports whether err is an outage and not a busy key.
func isUnavailable(err error) bool {
	return errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrNotAcquired)
}

func sameRequestTwice(e *env) {
	d := e.driver()
	r := e.request(e.key("k"))
	r.TTL = e.Units(20)
	first := e.grant(d, r)
	for range 3 {
		e.Pass(0.5)
		again := e.grant(d, r)
		e.Want(again.Fence == first.Fence && again.Slot == first.Slot, "got %+v, and again %+v", first, again)
		left, sure := e.left(d, again), again.Deadline.Sub(e.now())
		e.Want(sure <= left, "a grant with %v left at the backend is sure for %v", left, sure) // L4
	}
	e.Must(e.release(d, first), "release")
	r.Token = token()
	e.Must(e.release(d, e.grant(d, r)), "release the next")
}

func oneSlotForOneToken(e *env) {
	d := e.driver()
	r := e.longRequest(e.key("pool"))
	r.Slots = 2
	e.grant(d, r)
	e.grant(d, r)
	held := e.inspect(d, r.Key).Holders
	e.Want(len(held) == 1, "one token holds %d slots", len(held))
	r.Token = token()
	e.grant(d, r)
	r.Token = token()
	_, err := d.Acquire(e.Ctx, r)
	e.Is(err, driver.ErrNotAcquired, "a third token in a pool of two")
}

func requestAfterRelease(e *env) {
	d, other := e.driver(), e.driver()
	r := e.request(e.key("k"))
	e.Is(e.release(d, driver.Grant{Key: r.Key, Token: r.Token}), driver.ErrLost, "release what was never asked for")
	for _, late := range []driver.Driver{d, other} {
		ctx, cancel := e.Bounded()
		g, err := late.Acquire(ctx, r)
		cancel()
		e.Want(err != nil, "a request that was withdrawn got fence %d", g.Fence)
	}
	s := e.inspect(d, r.Key)
	e.Want(len(s.Holders)+len(s.Waiters) == 0, "it has left %+v", s)
}

func releaseWithdraws(e *env) {
	d, other := e.driver(), e.driver()
	held := e.grant(d, e.longRequest(e.key("k")))
	r := e.longRequest(held.Key)
	r.Wait = -1
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	e.Async(func() {
		_, err := other.Acquire(ctx, r)
		done <- err
	})
	e.Soon("it is queued", func() bool { return len(e.inspect(d, r.Key).Waiters) == 1 })
	e.Must(e.release(other, driver.Grant{Key: r.Key, Token: r.Token}), "withdraw")
	e.Soon("nothing is queued", func() bool { return len(e.inspect(d, r.Key).Waiters) == 0 })
	cancel()
	select {
	case err := <-done:
		e.Want(err != nil, "the withdrawn request was granted")
	case <-time.After(e.Patience()):
		e.Fail("the withdrawn request has not returned")
	}
	e.Must(e.release(d, held), "release")
	e.Want(len(e.inspect(d, held.Key).Holders) == 0, "the withdrawn request has the key")
}

// lateCopies repeats the requests of a holder that has released while its successor has
// the slot.
func lateCopies(e *env) {
	for _, size := range e.sizes() {
		d, other := e.driver(), e.driver()
		r := e.lastOf(d, size)
		first := e.grant(d, r)
		extended := first
		extended.TTL, extended.Rev = e.Units(200), 1
		e.Must(e.renew(d, extended).Err, "extend")
		e.Must(e.release(d, extended), "release")
		e.Is(e.renew(d, extended).Err, driver.ErrLost, "a late copy of the extension")
		next := r
		next.Token, next.TTL = token(), e.Units(20)
		live := e.grant(other, next)
		e.Want(live.Fence > first.Fence && live.Slot == first.Slot, "slot %d has fence %d, after slot %d with fence %d", live.Slot, live.Fence, first.Slot, first.Fence)
		for _, by := range []driver.Driver{d, other} {
			for _, wait := range []time.Duration{0, time.Millisecond} {
				late := r
				late.Wait = wait
				ctx, cancel := e.Bounded()
				g, err := by.Acquire(ctx, late)
				cancel()
				e.Want(err != nil, "a late copy of the request was granted slot %d with fence %d", g.Slot, g.Fence)
			}
			for _, late := range []driver.Grant{first, extended} {
				e.Is(e.renew(by, late).Err, driver.ErrLost, "a late copy of a renewal")
				e.Is(e.release(by, late), driver.ErrLost, "a late copy of a release")
			}
			s := e.inspect(by, r.Key)
			e.Want(len(s.Holders) == size && len(s.Waiters) == 0, "late copies left %+v", s)
			for _, h := range s.Holders {
				e.Want(h.Slot != live.Slot || h.Fence == live.Fence && h.Left <= next.TTL, "the successor is %+v, want fence %d for at most %v", h, live.Fence, next.TTL)
			}
		}
		e.Must(e.renew(other, live).Err, "renew the successor")
		e.Must(e.release(other, live), "release the successor")
	}
}

// longRequest returns a request whose TTL is longer than any case.
func (e *env) longRequest(key string) driver.Request {
	r := e.request(key)
	r.TTL = e.Units(100)
	return r
}

func acquireReplyLost(e *env) {
	a, b := e.process(), e.process()
	calls := [][]lock.Option{{e.ttl(100)}, {e.ttl(100), lock.Wait(0)}}
	if e.keeps("L7") {
		calls = append(calls, []lock.Option{e.ttl(100), lock.FIFO()})
	}
	for i, opts := range calls {
		key := e.key(fmt.Sprint("k", i))
		a.plan.Add(Step{Op: Acquire, Key: key, Executed: true, Err: errUnreachable, Times: 1}) // the probe after a failure has another key
		lease, err := a.Acquire(e.Ctx, key, opts...)
		e.Want(lease == nil, "a call whose reply was lost has a lease")
		e.Want(isUnavailable(err) && errors.Is(err, errUnreachable), "got %v, want ErrUnavailable with its reason", err)
		b.freeWithin(e.Units(20)+time.Second, key)
	}
}

func cancelledBeforeReply(e *env) {
	a, b := e.process(), e.process()
	a.plan.Add(Step{Op: Acquire, Executed: true, Hang: true, Times: 1})
	call := a.ask(e.key("k"), e.ttl(100))
	e.Soon("it is held", func() bool {
		s, err := b.Inspect(e.Ctx, e.key("k"))
		e.Must(err, "inspect")
		return len(s.Holders) == 1
	})
	call.cancel()
	e.Is(call.refused(), context.Canceled, "the cancelled call")
	b.freeWithin(e.Units(20)+time.Second, e.key("k"))
}

func lateAcquire(e *env) {
	a, b := e.process(), e.process()
	a.plan.Add(Step{Op: Acquire, Times: 1, Err: errUnreachable, Late: e.Units(1)})
	_, err := a.Acquire(e.Ctx, e.key("k"), e.ttl(100))
	e.Want(isUnavailable(err), "got %v, want ErrUnavailable", err)
	e.Never(e.Units(3), "the request that came late was granted", func() bool {
		s, err := b.Inspect(e.Ctx, e.key("k"))
		e.Must(err, "inspect")
		return len(s.Holders) > 0
	})
	b.free(e.key("k"))
}

// acquireAfterItsTTL lets the backend stand still for longer than the TTL. Then it executes
// the request, which nobody has withdrawn meanwhile.
func acquireAfterItsTTL(e *env) {
	a, b := e.process(), e.process()
	key, ttl := e.key("k"), 10*time.Second
	moves := a.plan.Add(Step{Op: Release, Key: key, Err: errUnreachable})
	a.plan.Add(Step{Op: Acquire, Key: key, Times: 1, Err: errUnreachable, Late: 4 * ttl})
	_, err := a.Acquire(e.Ctx, key, lock.TTL(ttl))
	e.Want(isUnavailable(err), "got %v, want ErrUnavailable", err)
	e.Eventually(5*ttl, "the request arrives", func() bool { return !b.isFree(key) })
	moves()
	b.freeWithin(ttl/2, key)
}

func cleanUpPersists(e *env) {
	a, b := e.process(), e.process()
	a.plan.Add(Step{Op: Acquire, Executed: true, Err: errUnreachable, Times: 1})
	a.plan.Add(Step{Op: Release, Err: errUnreachable, Times: 3})
	_, err := a.Acquire(e.Ctx, e.key("k"), e.ttl(100))
	e.Want(isUnavailable(err), "got %v, want ErrUnavailable", err)
	b.freeWithin(e.Units(40)+4*time.Second, e.key("k"))
}

func renewReplyLost(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), e.ttl(3))
	a.plan.Add(Step{Op: Renew, Executed: true, Err: errUnreachable, Times: 2})
	fence := lease.Fence()
	e.Soon("it was renewed", func() bool { return a.plan.Calls(Renew) >= 4 })
	e.live(lease)
	b.busy(e.key("k"))
	e.Want(lease.Fence() == fence && len(eventsOf[lock.Lost](a)) == 0, "the lease was changed")
	e.releases(lease)
}

// anyReplyLost drops the reply to each operation in turn. The call may succeed
// or return ErrUnavailable, and its result must be true.
func anyReplyLost(e *env) {
	a, b := e.process(), e.process()
	for round := range 3 {
		key := e.key(fmt.Sprint("k", round))
		e.Must(e.h.Faults.DropReply(a.opened, Acquire), "drop a reply")
		lease, err := a.Acquire(e.Ctx, key, e.ttl(6))
		if err != nil {
			e.Want(isUnavailable(err), "acquire: %v", err)
			b.freeWithin(e.Units(4)+2*time.Second, key)
			lease = a.acquire(key, e.ttl(6))
		}
		s, err := b.Inspect(e.Ctx, key)
		e.Must(err, "inspect")
		e.Want(len(s.Holders) == 1 && s.Holders[0].Fence == lease.Fence(), "the holders are %+v, want fence %d", s.Holders, lease.Fence())
		e.Must(e.h.Faults.DropReply(a.opened, Renew), "drop a reply")
		renewals := a.plan.Calls(Renew)
		e.Soon("it is renewed", func() bool { return a.plan.Calls(Renew) >= renewals+2 })
		e.live(lease)
		next := b.queue(key, "next")
		e.Must(e.h.Faults.DropReply(a.opened, Release), "drop a reply")
		err = lease.Release()
		e.Want(err == nil || isUnavailable(err), "release: %v", err)
		got := next.leaseWithin(e.Units(4) + 2*time.Second)
		e.Must(lease.Release(), "release again")
		e.live(got)
		e.releases(got)
	}
}

func duplicateAcquire(e *env) {
	a, b := e.process(), e.process()
	late := e.Units(1)
	e.Must(e.h.Faults.DropReply(a.opened, Acquire), "drop a reply")
	e.Must(e.h.Faults.Duplicate(a.opened, Acquire, late), "duplicate")
	lease := a.acquire(e.key("k"), e.ttl(100))
	e.releases(lease)
	e.Sleep(2 * late)
	// The duplicate may hold the key for as long as no process confirms its
	// grant.
	b.freeWithin(3*time.Second, e.key("k"))
	fence := b.acquire(e.key("k"))
	e.Want(fence.Fence() > lease.Fence(), "fence %d follows %d", fence.Fence(), lease.Fence())
	e.releases(fence)
}

// duplicateRefused has a copy of a request arrive that was sent again, and refused,
// because the first reply was lost. Nobody releases what the copy would acquire.
func duplicateRefused(e *env) {
	a, b := e.process(), e.process()
	late := e.Units(3)
	for i, opts := range [][]lock.Option{{lock.Wait(0)}, {lock.Wait(0), lock.Slots(2)}} {
		key := e.key(fmt.Sprint("k", i))
		held := []*lock.Lease{b.acquire(key, opts...)}
		if i > 0 {
			held = append(held, b.acquire(key, opts...))
		}
		e.Must(e.h.Faults.DropReply(a.opened, Acquire), "drop a reply")
		e.Must(e.h.Faults.Duplicate(a.opened, Acquire, late), "duplicate")
		_, err := a.Acquire(e.Ctx, key, append(opts, e.ttl(100))...)
		e.Want(errors.Is(err, lock.ErrNotAcquired) || isUnavailable(err), "a request for a busy key: got %v, want ErrNotAcquired", err)
		e.releases(held...)
		e.Never(2*late, "an old copy of a refused request holds the key", func() bool {
			return len(e.inspect(b.opened, key).Holders) > 0
		})
		b.free(key)
	}
}

func forgottenScripts(e *env) {
	a, b := e.process(), e.process()
	forget := func() { e.Must(e.h.Faults.ForgetScripts(), "forget scripts") }
	forget()
	lease := a.acquire(e.key("k"), e.ttl(4))
	forget()
	next := b.queue(e.key("k"), "next")
	forget()
	renewals := a.plan.Calls(Renew)
	e.Soon("it is renewed", func() bool { return a.plan.Calls(Renew) >= renewals+2 })
	e.live(lease)
	forget()
	e.Must(lease.Extend(e.Ctx, e.Units(4)), "extend")
	forget()
	e.releases(lease)
	got := next.lease()
	forget()
	n, err := a.ForceRelease(e.Ctx, e.key("k"), "test")
	e.Must(err, "force")
	e.Want(n == 1, "forced %d, want 1", n)
	e.Is(e.ended(got, e.Patience()), lock.ErrLost, "the cause")
	_ = got.Release()
	forget()
	a.free(e.key("k"))
}
