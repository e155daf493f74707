package locktest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var outageCases = []testCase{
	{rule: "L1", claim: "a backend that keeps its data keeps its leases over a restart", needs: []fault{"Kill", "Restart", "Keeps"}, run: leaseSurvivesRestart},
	{rule: "L4", claim: "a lease ends in time when the backend dies", needs: []fault{"Kill", "Restart"}, run: backendDies},
	{rule: "L4", claim: "what a backend has lost is found within a second of the reconnect", remote: true, needs: []fault{"Lose"}, run: foundAtReconnect},
	{rule: "L21", claim: "a refusal that time does not mend fails a call at once", remote: true, needs: []fault{"Deny"}, run: deniedAtOnce},
	{rule: "L21", claim: "a refusal that time does not mend fails the opening of the driver at once", remote: true, needs: []fault{"Deny"}, run: deniedAtOpen},
	{rule: "L21", claim: "a backend that refuses a single command is not busy, and answers at once", needs: []fault{"Forbid", "Permissions"}, run: oneForbidden},
	{rule: "L24", claim: "another version is ErrUnavailable and names both versions", needs: []fault{"Newer"}, run: namesBothVersions},
	{rule: "L24", claim: "the next version works beside this one", remote: true, also: []string{"L7"}, needs: []fault{"Beside"}, run: nextVersionBeside},
	{rule: "L24", claim: "data of another version at one key disturbs no lease and no wait of another key", remote: true, also: []string{"L7"}, needs: []fault{"Newer"}, run: besideBadData(func(e *env, key string) error {
		_, _, err := e.h.Faults.Newer(key)
		return err
	})},
	{rule: "L7", claim: "data of another kind at one key disturbs no lease and no wait of another key", remote: true, needs: []fault{"Corrupt"}, run: besideBadData(func(e *env, key string) error {
		return e.h.Faults.Corrupt(key)
	})},
	{rule: "L7", claim: "waiters survive a restart of the backend", needs: []fault{"Kill", "Restart"}, run: waitersOverRestart},
	{rule: "L8", claim: "a call to a backend that is away ends within its bound, and is not busy", needs: []fault{"Kill", "Restart"}, run: backendAway},
	{rule: "L8", claim: "a call to a stopped backend ends within its bound, and is not busy", needs: []fault{"Stop", "Continue"}, run: backendStopped},
	{rule: "L16", claim: "a force after a restart of the backend ends the lease or fails", needs: []fault{"Kill", "Restart"}, run: forceAfterRestart},
	{rule: "L6", claim: "a refusal of the backend is an outage, and leaves nothing locked", needs: []fault{"Refuse"}, run: backendRefuses},
}

func leaseSurvivesRestart(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"), lock.TTL(30*time.Second))
	e.Must(e.h.Faults.Kill(), "kill")
	e.Must(e.h.Faults.Restart(), "restart")
	e.Eventually(3*e.Patience(), "it is busy again", func() bool {
		_, err := b.try(e.key("k"))
		e.Want(err != nil, "another was granted the key")
		return errors.Is(err, lock.ErrNotAcquired)
	})
	e.live(lease)
	e.releases(lease)
}

func backendDies(e *env) {
	a := e.process()
	lease := a.acquire(e.key("k"), e.ttl(3))
	e.Must(e.h.Faults.Kill(), "kill")
	deadline := lease.Deadline()
	cause := e.ended(lease, e.Units(4)+e.Patience())
	late := time.Since(deadline)
	e.Must(e.h.Faults.Restart(), "restart")
	e.Is(cause, lock.ErrLost, "the cause")
	e.Want(late < e.Units(3), "it ended %v after its deadline", late)
	_ = lease.Release()
	e.comeBack(a, e.key("k"))
}

// foundAtReconnect loses a lease whose next renewal is ten seconds away.
func foundAtReconnect(e *env) {
	a := e.process()
	lease := a.acquire(e.key("k"), lock.TTL(time.Hour))
	lease.Context() // somebody depends on it
	e.Must(e.h.Faults.Lose(), "lose all data")
	e.Eventually(3*e.Patience(), "the backend answers", func() bool {
		_, err := a.Inspect(e.Ctx, e.key("k"))
		return err == nil
	})
	e.Is(e.ended(lease, time.Second+e.slack()), lock.ErrLost, "the cause")
	_ = lease.Release()
	e.comeBack(a, e.key("k"))
}

// deniedAtOnce asks a backend that refuses the calls of its clients.
func deniedAtOnce(e *env) {
	p := e.process()
	held := p.acquire(e.key("held"), lock.TTL(time.Hour))
	p.free(e.key("k"))
	undo, err := e.h.Faults.Deny()
	e.Must(err, "deny")
	fastest := time.Hour
	for tries := 0; tries < 10 && fastest >= driver.CallTimeout/2; tries++ { // a busy machine may delay a call
		before := time.Now()
		_, err := p.Acquire(e.Ctx, e.key("k"), lock.Wait(time.Minute))
		fastest = min(fastest, time.Since(before))
		e.Want(isUnavailable(err), "a refused call: got %v, want ErrUnavailable", err)
	}
	e.Want(fastest < driver.CallTimeout/2, "a refused call: the fastest of ten took %v, want less than %v", fastest, driver.CallTimeout/2)
	_, err = p.TryAcquire(e.Ctx, e.key("k"))
	e.Want(isUnavailable(err), "a refused call that does not wait: got %v, want ErrUnavailable", err)
	e.Must(undo(), "undo")
	e.comeBack(p, e.key("k"))
	e.live(held)
	e.releases(held)
}

// deniedAtOpen opens drivers as a program at its boot. An open makes many calls, which a
// busy machine may delay, so each is compared with one that is allowed, right before it.
func deniedAtOpen(e *env) {
	p := e.process()
	p.free(e.key("k"))
	open := func() (took time.Duration, err error) {
		before := time.Now()
		d, err := e.h.Open()
		if err == nil {
			_ = closeBounded(d)
		}
		return time.Since(before), err
	}
	var allowed, denied time.Duration
	for range 10 {
		var err error
		allowed, err = open()
		e.Must(err, "open")
		undo, err := e.h.Faults.Deny()
		e.Must(err, "deny")
		denied, err = open()
		e.Must(undo(), "undo")
		e.Want(isUnavailable(err), "open without a permission: got %v, want ErrUnavailable", err)
		if denied < max(driver.CallTimeout/2, allowed) {
			e.comeBack(p, e.key("k"))
			return
		}
	}
	e.Fail("open without a permission took at least %v in each of ten tries, in the last one %v, and %v with it", driver.CallTimeout/2, denied, allowed)
}

// oneForbidden takes one permission after the other from the clients of the backend. A
// call may need several permissions, and may succeed without this one.
func oneForbidden(e *env) {
	a, b := e.process(), e.process()
	held := a.acquire(e.key("held"), lock.TTL(time.Hour))
	waiter := b.queue(e.key("held"), "waiter", e.ttl(100))
	var keys []string
	for _, permission := range e.h.Faults.Permissions {
		released := a.acquire(e.key("released-"+permission), e.ttl(100))
		acquired, tried, pool := e.key("acquired-"+permission), e.key("tried-"+permission), e.key("pool-"+permission)
		undo, err := e.h.Faults.Forbid(permission)
		e.Must(err, "forbid %s", permission)
		calls := map[string]func() error{
			"acquire": func() error { return e.used(a.Acquire(e.Ctx, acquired, lock.Wait(time.Minute), e.ttl(100))) },
			"try":     func() error { return e.used(b.TryAcquire(e.Ctx, tried, e.ttl(100))) },
			"extend":  func() error { return held.Extend(e.Ctx, time.Hour) },
			"release": released.Release,
		}
		if e.keeps("L15") {
			calls["acquire a slot"] = func() error {
				return e.used(a.Acquire(e.Ctx, pool, lock.Slots(2), lock.Wait(time.Minute), e.ttl(100)))
			}
		}
		if e.keeps("P1") {
			calls["prepare a slot"] = func() error {
				states := &lock.Pool{Key: e.key("states-" + permission), Size: 2}
				return a.WithSlot(e.Ctx, states, func(context.Context, *lock.Slot) error { return nil }, lock.Wait(time.Minute))
			}
		}
		for what, call := range calls {
			start := time.Now()
			err := call()
			took := time.Since(start)
			e.Want(err == nil || isUnavailable(err), "%s without the permission %s: got %v, want ErrUnavailable", what, permission, err)
			e.Want(err == nil || !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "no answer"), "%s without the permission %s has no cause: %v", what, permission, err)
			e.Want(took < driver.CallTimeout/2+e.slack(), "%s without the permission %s took %v", what, permission, took)
		}
		e.Must(undo(), "undo")
		for _, p := range []*process{a, b} {
			e.comeBack(p, e.key("other"))
		}
		keys = append(keys, released.Key(), acquired, tried, pool)
	}
	_ = held.Release() // its renewal may have been refused
	waiter.wait(2 * e.Patience())
	e.Want(waiter.err == nil || isUnavailable(waiter.err), "a waiter got %v", waiter.err)
	for _, key := range keys { // releases are repeated in the background
		b.freeWithin(e.Units(10)+4*time.Second, key)
	}
}

// used releases a lease at once.
func (e *env) used(l *lock.Lease, err error) error {
	if err == nil {
		_ = l.Release()
	}
	return err
}

func namesBothVersions(e *env) {
	p := e.process()
	p.free(e.key("other"))
	call, versions, err := e.h.Faults.Newer(e.key("k"))
	e.Must(err, "another version")
	err = call()
	e.Want(isUnavailable(err), "a call that meets another version: got %v, want ErrUnavailable", err)
	for _, v := range versions {
		e.Want(strings.Contains(err.Error(), v), "the error %q does not name %q", err, v)
	}
	p.free(e.key("other"))
}

// besideBadData has a process hold, and one wait for, two keys, of which the data of
// one cannot be read any more. A driver may renew leases, and send heartbeats, of
// several keys at a time. Another process waits for the readable key alone: it would
// see the first one silent.
func besideBadData(spoil func(e *env, key string) error) func(*env) {
	return func(e *env) {
		a, b, c := e.process(), e.process(), e.process()
		lease := a.acquire(e.key("good"), e.ttl(4))
		var bad []*lock.Lease
		var spoiled []*asked
		// Several, as a driver that asks for keys in any order asks for the good one behind one of them.
		for i := range 3 {
			bad = append(bad, a.acquire(e.key(fmt.Sprint("bad", i)), e.ttl(4)))
			spoiled = append(spoiled, b.queue(bad[i].Key(), "spoiled"))
		}
		waiters := []*asked{b.queue(lease.Key(), "first"), c.queue(lease.Key(), "second")}
		e.untilQueued()
		for _, l := range bad {
			e.Must(spoil(e, l.Key()), "spoil the data")
			_, _ = b.try(l.Key())
		}
		e.Sleep(5*e.h.Repair + e.Units(4)) // without a sign of life a waiter, or a lease, is gone
		e.live(lease)
		e.serveInOrder(lease, waiters)
		e.leave(spoiled)
		for _, l := range bad {
			_ = l.Release()
		}
	}
}

func nextVersionBeside(e *env) {
	a := e.process()
	held := a.acquire(e.key("k"), lock.TTL(time.Hour))
	e.Must(e.h.Faults.Beside(), "the next version")
	b := e.process()
	b.busy(e.key("k"))
	next := b.queue(e.key("k"), "next")
	e.live(held)
	e.releases(held)
	e.releases(next.lease())
	a.free(e.key("k"))
}

func waitersOverRestart(e *env) {
	a, b, c := e.process(), e.process(), e.process()
	holder := a.acquire(e.key("k"), e.ttl(5))
	first, second := b.queue(e.key("k"), "first"), c.queue(e.key("k"), "second")
	e.untilQueued()
	e.Must(e.h.Faults.Kill(), "kill")
	e.Must(e.h.Faults.Restart(), "restart")
	_ = holder.Release()
	for range 2 {
		select {
		case <-first.done:
			e.releases(first.lease())
			first = second
		case <-second.done:
			e.releases(second.lease())
			second = first
		case <-time.After(3 * e.Patience()):
			e.Fail("a waiter waits for ever")
		}
	}
}

// forceAfterRestart forces leases while their holders may still be reconnecting. A
// lease that the backend has lost ends, too (L4).
func forceAfterRestart(e *env) {
	operator := e.process()
	var leases []*lock.Lease
	for i, p := range e.processes(6) {
		leases = append(leases, p.acquire(e.key(strconv.Itoa(i)), lock.TTL(30*time.Second)))
	}
	e.Must(e.h.Faults.Kill(), "kill")
	e.All(len(leases)+1, func(i int) {
		if i == len(leases) {
			e.Must(e.h.Faults.Restart(), "restart")
			return
		}
		e.Eventually(4*e.Patience(), "a force succeeds", func() bool {
			_, err := operator.ForceRelease(e.Ctx, e.key(strconv.Itoa(i)), "test")
			return err == nil
		})
	})
	for _, l := range leases {
		e.Is(e.ended(l, 3*e.Patience()), lock.ErrLost, "the cause")
		_ = l.Release()
	}
}

// bound is the timeout of a call that is not queued, with a reserve.
const bound = driver.CallTimeout + 2*time.Second

func (e *env) isAway(p *process) {
	before := time.Now()
	_, err := p.Acquire(e.Ctx, e.key("other"), lock.Wait(time.Minute))
	took := time.Since(before)
	e.Want(isUnavailable(err), "acquire: got %v, want ErrUnavailable", err)
	e.Want(took < bound, "acquire took %v", took)
	before = time.Now()
	_, err = p.TryAcquire(e.Ctx, e.key("other"))
	e.Want(isUnavailable(err), "try: got %v, want ErrUnavailable", err)
	_, err = p.Inspect(e.Ctx, e.key("other"))
	e.Want(isUnavailable(err), "inspect: got %v, want ErrUnavailable", err)
	_, err = p.ForceRelease(e.Ctx, e.key("other"), "test")
	e.Want(isUnavailable(err), "force: got %v, want ErrUnavailable", err)
	e.Want(time.Since(before) < 3*bound, "the other calls took %v", time.Since(before))
}

func backendAway(e *env) {
	p := e.process()
	p.free(e.key("k"))
	e.Must(e.h.Faults.Kill(), "kill")
	e.isAway(p)
	e.Must(e.h.Faults.Restart(), "restart")
	e.comeBack(p, e.key("other"))
}

func backendStopped(e *env) {
	p := e.process()
	p.free(e.key("k"))
	e.Must(e.h.Faults.Stop(), "stop")
	e.isAway(p)
	e.Must(e.h.Faults.Continue(), "continue")
	e.comeBack(p, e.key("other"))
}

func backendRefuses(e *env) {
	a, b := e.process(), e.process()
	a.free(e.key("k"))
	undo, err := e.h.Faults.Refuse()
	e.Must(err, "refuse")
	before := time.Now()
	_, err = a.Acquire(e.Ctx, e.key("k"), e.ttl(100))
	took := time.Since(before)
	e.Must(undo(), "undo")
	e.Want(isUnavailable(err), "acquire: got %v, want ErrUnavailable", err)
	e.Want(took < bound, "acquire took %v", took)
	b.freeWithin(e.Patience(), e.key("k"))
}
