package locktest

import (
	"context"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var ownershipCases = []testCase{
	{rule: "L3", claim: "the driver refuses a stale release and leaves the successor alone", run: staleRelease},
	{rule: "L3", claim: "the driver refuses a stale renewal and leaves the successor alone", run: staleRenewal},
	{rule: "L3", claim: "the driver does not restore an expired grant, also if the key is free", run: expiredStaysExpired},
	{rule: "L3", claim: "the driver refuses to release or renew another caller's grant", run: foreignToken},
	{rule: "L3", claim: "the driver renews live grants in a batch with dead ones", run: renewalsAreApart},
	{rule: "L3", claim: "a lease that was lost does not disturb its successor", run: lostLeaseIsHarmless},
}

// succession returns an expired grant and the next grant of the same key.
func (e *env) succession(a, b driver.Driver) (stale, live driver.Grant) {
	r := e.request(e.key("k"))
	r.TTL = e.Units(1)
	stale = e.grant(a, r)
	next := e.request(r.Key)
	next.TTL, next.Wait = e.Units(20), -1
	ctx, cancel := e.Bounded()
	defer cancel()
	live, err := b.Acquire(ctx, next)
	e.Must(err, "wait for an expired grant")
	return stale, live
}

// isLive fails the case unless g is the grant that holds its key.
func (e *env) isLive(d driver.Driver, g driver.Grant) {
	s := e.inspect(d, g.Key)
	e.Want(len(s.Holders) == 1 && s.Holders[0].Fence == g.Fence, "the holders are %+v, want fence %d", s.Holders, g.Fence)
	e.Must(e.renew(d, g).Err, "renew the live grant")
}

func staleRelease(e *env) {
	a, b := e.driver(), e.driver()
	stale, live := e.succession(a, b)
	for range 2 {
		e.Is(e.release(a, stale), driver.ErrLost, "release what has expired")
	}
	e.isLive(b, live)
	e.Must(e.release(b, live), "release")
}

func staleRenewal(e *env) {
	a, b := e.driver(), e.driver()
	stale, live := e.succession(a, b)
	e.Is(e.renew(a, stale).Err, driver.ErrLost, "renew what has expired")
	e.isLive(b, live)
	e.Must(e.release(b, live), "release")
}

func expiredStaysExpired(e *env) {
	d := e.driver()
	r := e.request(e.key("k"))
	r.TTL = e.Units(1)
	g := e.grant(d, r)
	e.Soon("it has expired", func() bool { return len(e.inspect(d, r.Key).Holders) == 0 })
	e.Is(e.renew(d, g).Err, driver.ErrLost, "renew what has expired")
	e.Want(len(e.inspect(d, r.Key).Holders) == 0, "the renewal has brought it back")
	next := e.grant(d, e.longRequest(r.Key))
	e.Want(next.Fence > g.Fence, "fence %d follows %d", next.Fence, g.Fence)
	e.Must(e.release(d, next), "release")
}

func foreignToken(e *env) {
	a, b := e.driver(), e.driver()
	r := e.request(e.key("k"))
	r.TTL = e.Units(20)
	live := e.grant(a, r)
	foreign := live
	foreign.Token = token()
	e.Is(e.renew(b, foreign).Err, driver.ErrLost, "renew another's grant")
	e.Is(e.release(b, foreign), driver.ErrLost, "release another's grant")
	e.isLive(a, live)
	e.Must(e.release(a, live), "release")
}

func renewalsAreApart(e *env) {
	d := e.driver()
	grants := make([]driver.Grant, 4)
	for i := range grants {
		r := e.request(e.key(string(rune('a' + i))))
		r.TTL = e.Units(20)
		grants[i] = e.grant(d, r)
	}
	e.Must(e.release(d, grants[1]), "release")
	ctx, cancel := e.Bounded()
	defer cancel()
	renewals := d.Renew(ctx, grants)
	e.Want(len(renewals) == len(grants), "%d answers for %d grants", len(renewals), len(grants))
	for i, r := range renewals {
		if i == 1 {
			e.Is(r.Err, driver.ErrLost, "renew what was released")
			continue
		}
		e.Must(r.Err, "renew grant %d", i)
		e.Must(e.release(d, grants[i]), "release grant %d", i)
	}
}

func lostLeaseIsHarmless(e *env) {
	a, b := e.process(), e.process()
	key := e.key("k")
	stale := a.acquire(key, e.ttl(1))
	defer a.plan.Add(Step{Op: Renew, Err: driver.ErrUnavailable})()
	live := b.acquire(key)
	e.Want(stale.Context().Err() != nil, "the stale lease has not ended")
	e.Is(context.Cause(stale.Context()), lock.ErrLost, "why the stale lease ended")
	e.Is(stale.Extend(e.Ctx, e.Units(5)), lock.ErrLost, "extend the stale lease")
	e.Is(stale.Release(), lock.ErrLost, "release the stale lease")
	a.busy(key)
	e.Must(live.Extend(e.Ctx, e.Units(2)), "extend the live lease")
	e.live(live)
	e.releases(live)
}
