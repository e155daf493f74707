//go:build linux

package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	limit "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock/driver"
)

// stepped is a server whose clock the test sets, and a driver.
func stepped(t *testing.T) (*redistest.Server, driver.Driver) {
	t.Helper()
	s := redistest.Start(t, redistest.Options{Clock: true})
	return s, open(t, redis.Config{URL: s.URL()})
}

// L2: however long the lease was held, and when it has ended.
func TestFenceGrowsWhenTheServersClockStepsBack(t *testing.T) {
	t.Parallel()
	s, d := stepped(t)
	r := request("k")
	r.TTL = 24 * time.Hour
	last := uint64(0)
	for _, step := range []struct {
		name string
		held time.Duration // as the server's clock has it
		back time.Duration
	}{
		{"during a short lease", 0, -time.Hour}, {"during a long lease", 2 * time.Minute, -2 * time.Hour}, {"a little", 0, -2*time.Hour - 50*time.Millisecond},
		{"to where fences have fewer digits", 0, -30 * 365 * 24 * time.Hour},
	} {
		r.Token = token()
		must(t, s.StepClock(step.held))
		g := acquire(t, d, r)
		must(t, s.StepClock(step.held+2*time.Minute))
		must(t, command("SCAN", 0, "COUNT", 1000)(s)) // what expires by then expires
		must(t, s.StepClock(step.back))
		release(t, d, g)
		next := acquire(t, d, request("k"))
		release(t, d, next)
		if g.Fence <= last || next.Fence <= g.Fence {
			t.Errorf("%s: fences %d, %d, %d", step.name, last, g.Fence, next.Fence)
		}
		last = next.Fence
		must(t, s.StepClock(step.back+2*time.Minute))
		must(t, command("SCAN", 0, "COUNT", 1000)(s))
		must(t, s.StepClock(step.back-2*time.Hour)) // after the release
		g = acquire(t, d, request("k"))
		release(t, d, g)
		if g.Fence <= last {
			t.Errorf("%s and again after the release: fence %d after %d", step.name, g.Fence, last)
		}
		last = g.Fence
	}
}

// L12: a clock that steps back makes a lease longer at the server, until its
// next renewal.
func TestRenewalRepairsATTLThatTheClockHasLengthened(t *testing.T) {
	t.Parallel()
	s, d := stepped(t)
	grants := []driver.Grant{acquire(t, d, request("lock")), acquire(t, d, seat("pool", 2)), acquire(t, d, seat("pool", 2))}
	must(t, s.StepClock(-time.Hour))
	for i, r := range d.Renew(t.Context(), grants) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		g := grants[i]
		if left := inspect(t, d, g.Key).Holders[g.Slot].Left; left > g.TTL {
			t.Errorf("slot %d of %s lives for %v, its TTL is %v", g.Slot, g.Key, left, g.TTL)
		}
	}
}

// The end of a lease is a time of the server's clock, and only a renewal sets it anew.
// The guide lists this limit of Redis.
func TestALeaseThatNobodyRenewsLastsLongerByAStepBack(t *testing.T) {
	t.Parallel()
	s, d := stepped(t)
	acquire(t, d, request("lock"))
	acquire(t, d, seat("pool", 2))
	must(t, s.StepClock(-time.Hour))
	for _, key := range []string{"lock", "pool"} {
		if holders := inspect(t, d, key).Holders; len(holders) != 1 || holders[0].Left < 59*time.Minute {
			t.Errorf("%s has the holders %+v", key, holders)
		}
		if n, err := d.ForceRelease(t.Context(), key, driver.Force{Reason: "test"}); n != 1 || err != nil {
			t.Errorf("forced %d, %v", n, err)
		}
	}
}

// L7, L8: after a step of the clock waiters keep their order, and the dead are
// found as soon as before.
func TestStepsOfTheClockNeitherReorderNorKeepTheDead(t *testing.T) {
	t.Parallel()
	// A step ahead by more than a minute has the queue itself expire, and leases too.
	for _, by := range []time.Duration{-time.Hour, 20 * time.Second, -20 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			s, holder := stepped(t)
			lasting := request("k")
			lasting.TTL, lasting.NoRenew = 24*time.Hour, true
			held := acquire(t, holder, lasting)
			first, second := open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: s.URL()})
			a := queueUp(t, first, request("k"))
			dead := token()
			now := time.Now().UnixMilli()
			for _, c := range [][]any{
				{"ZADD", "mega:{k}:order", now*1000 + 1, dead}, {"ZADD", "mega:{k}:due", now + 2000, dead},
				{"HSET", "mega:{k}:state", dead, `3 1 1 nobody`},
			} {
				must(t, command(c...)(s))
			}
			must(t, s.StepClock(by))
			b := queueUp(t, second, request("k"))
			start := time.Now()
			soon(t, "the dead ticket to be removed", func() bool {
				score, err := s.Do("ZSCORE", "mega:{k}:order", dead)
				return err == nil && score == nil
			})
			if took := time.Since(start); timed && took > 10*time.Second {
				t.Errorf("the dead ticket was removed after %v", took)
			}
			release(t, holder, held)
			release(t, first, a.granted(t, slack))
			release(t, second, b.granted(t, slack))
		})
	}
}

// L10: a bar that is over is removed, however often a key is forced.
func TestForcesLeaveNothingThatGrows(t *testing.T) {
	t.Parallel()
	s, d := stepped(t)
	for i := range 20 {
		must(t, s.StepClock(time.Duration(i)*45*time.Second))
		acquire(t, d, request("k"))
		if n, err := d.ForceRelease(t.Context(), "k", driver.Force{Reason: fmt.Sprint("force ", i)}); n != 1 || err != nil {
			t.Fatalf("forced %d, %v", n, err)
		}
	}
	if n, err := s.Do("HLEN", "mega:{k}:state"); err != nil || n.(int64) > 8 {
		t.Errorf("twenty forces in 15 minutes leave %v entries, %v", n, err)
	}
}

// W7: a copy of a settlement that comes as late as the copy of an acquire may (L6)
// returns nothing.
func TestASettlementThatArrivesHalfAMinuteLaterAgainReturnsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{Clock: true})
	p := redistest.StartProxy(t, s, (&yard{names: redis.ScriptNames(nil)}).name)
	d := openLimit(t, redis.Config{URL: p.URL()})
	of := []limit.Rate{{N: 10, Per: time.Hour}}
	used := func() int {
		t.Helper()
		state, err := d.Inspect(t.Context(), "k", of)
		must(t, err)
		return state.Rates[0].Used
	}
	a, err := d.Take(t.Context(), limit.Request{Key: "k", Rates: of, Cost: 10})
	must(t, err)
	if !a.Granted {
		t.Fatal("refused")
	}
	settled := p.Record(redistest.Named("settle"))
	must(t, d.Settle(t.Context(), limit.Settlement{Key: "k", Rates: of, At: a.At, Cost: 10, Actual: 7}))
	for _, later := range []time.Duration{12 * time.Second, 50 * time.Second} {
		must(t, s.StepClock(later))
		if _, err := d.Take(t.Context(), limit.Request{Key: "k", Rates: of, Cost: 10, Ticket: token(), Seq: 1}); err != nil { // what is over is forgotten
			t.Fatal(err)
		}
		if _, err := settled.Redeliver(); err != nil {
			t.Fatal(err)
		}
		if n := used(); n != 7 {
			t.Errorf("%d units are used after a second copy of the settlement %v later, want 7", n, later)
		}
	}
}

// The record of a run is kept for a day and two of its intervals.
func TestARunOfAShorterIntervalLeavesALongerTickSpent(t *testing.T) {
	t.Parallel()
	s, _ := stepped(t)
	a, b := lockers(t, redis.Config{URL: s.URL()})
	if ran, err := a.Once(t.Context(), "job", century, nothing); !ran || err != nil {
		t.Fatalf("ran %v, %v; the first run is due", ran, err)
	}
	must(t, s.StepClock(time.Hour))
	if ran, err := b.Once(t.Context(), "job", time.Minute, nothing); !ran || err != nil {
		t.Fatalf("ran %v, %v; the shorter interval has a new tick", ran, err)
	}
	must(t, s.StepClock(30*time.Hour))
	if ran, err := a.Once(t.Context(), "job", century, nothing); ran || err != nil {
		t.Errorf("ran %v, %v; the longer tick is spent", ran, err)
	}
}
