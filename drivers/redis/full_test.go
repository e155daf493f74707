package redis_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	limits "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock/driver"
)

// fullServer is a server that can be made full, with two processes.
type fullServer struct {
	*redistest.Server
	a, b driver.Driver
}

func newFullServer(t *testing.T) *fullServer {
	t.Helper()
	s := redistest.Start(t, redistest.Options{})
	return &fullServer{s, open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: s.URL()})}
}

func (s *fullServer) fill(t *testing.T) {
	t.Helper()
	must(t, command("CONFIG", "SET", "maxmemory", "1")(s.Server))
}

// box asks for a slot with a state of a pool of n.
func box(key string, n int) driver.Request {
	r := seat(key, n)
	r.Pool = &driver.Pool{Quarantine: 100 * time.Millisecond, Prefer: -1, Avoid: -1}
	return r
}

// twoHeld takes both slots of a new pool, and returns the grants by slot.
func twoHeld(t *testing.T, d driver.Driver, ask func(key string, n int) driver.Request) [2]driver.Grant {
	t.Helper()
	var held [2]driver.Grant
	key := token()
	for range held {
		r := ask(key, 2)
		r.TTL = time.Minute // longer than a busy machine takes
		g := acquire(t, d, r)
		held[g.Slot] = g
	}
	return held
}

// mends leave something that the next call on the pool of a grant has to mend.
var mends = map[string]func(*testing.T, driver.Driver, driver.Grant){
	"nothing to mend": func(*testing.T, driver.Driver, driver.Grant) {},
	"a slot that has expired": func(t *testing.T, d driver.Driver, g driver.Grant) {
		g.TTL, g.Rev = 100*time.Millisecond, 1
		renew(t, d, g)
		soon(t, "the expiry", func() bool {
			return !slices.ContainsFunc(inspect(t, d, g.Key).Holders, func(h driver.Holding) bool { return h.Fence == g.Fence })
		})
	},
	"a slot that has rested": func(t *testing.T, d driver.Driver, g driver.Grant) {
		release(t, d, g) // without a handback it is dirty, and rests
		soon(t, "the rest to end", func() bool {
			return !slices.ContainsFunc(inspect(t, d, g.Key).Slots, func(s driver.SlotState) bool { return s.Status == driver.SlotResting })
		})
	},
}

// freeing are calls that free memory, or that prolong a grant.
var freeing = map[string]func(*testing.T, driver.Driver, driver.Grant) error{
	"release": func(t *testing.T, d driver.Driver, g driver.Grant) error { return d.Release(t.Context(), g) },
	"clean release": func(t *testing.T, d driver.Driver, g driver.Grant) error {
		g.Handback = &driver.Handback{Status: driver.SlotFree}
		return d.Release(t.Context(), g)
	},
	"renew": func(t *testing.T, d driver.Driver, g driver.Grant) error {
		return d.Renew(t.Context(), []driver.Grant{g})[0].Err
	},
	"extend": func(t *testing.T, d driver.Driver, g driver.Grant) error {
		g.TTL, g.Rev = 20*time.Second, 1
		return d.Renew(t.Context(), []driver.Grant{g})[0].Err
	},
	"force": func(t *testing.T, d driver.Driver, g driver.Grant) error {
		n, err := d.ForceRelease(t.Context(), g.Key, driver.Force{Reason: "test"})
		if err == nil && n == 0 {
			err = errors.New("nobody was forced")
		}
		return err
	},
}

// What frees memory, or prolongs what is there, succeeds on a full server,
// whatever the call has to mend first.
func TestFullServerReleasesAndRenews(t *testing.T) {
	t.Parallel()
	s := newFullServer(t)
	type deed struct {
		name  string
		grant driver.Grant
		do    func(*testing.T, driver.Driver, driver.Grant) error
	}
	var deeds []deed
	prepare := func(pool string, ask func(string, int) driver.Request, mend string, slot int) {
		for name, do := range freeing {
			held := twoHeld(t, s.a, ask)
			mends[mend](t, s.a, held[1-slot])
			deeds = append(deeds, deed{fmt.Sprintf("%s of slot %d of %s, with %s", name, slot, pool, mend), held[slot], do})
		}
	}
	for mend := range mends {
		for slot := range 2 {
			prepare("a pool", seat, mend, slot)
			prepare("a pool with states", box, mend, slot)
		}
	}
	s.fill(t)
	for _, d := range deeds {
		if err := d.do(t, s.a, d.grant); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
}

// Nothing new is granted on a full server, whatever the call has to mend first.
func TestFullServerGrantsNothingNew(t *testing.T) {
	t.Parallel()
	s := newFullServer(t)
	var requests []driver.Request
	for _, ask := range []func(string, int) driver.Request{seat, box} {
		for slot := range 2 {
			g := twoHeld(t, s.a, ask)[slot]
			mends["a slot that has expired"](t, s.a, g)
			requests = append(requests, ask(g.Key, 2))
		}
	}
	s.fill(t)
	for _, r := range requests {
		refuses(t, "OOM", func() error { _, err := s.b.Acquire(t.Context(), r); return err })
	}
}

// The end of a run is recorded on a full server: a run of AtLeastOnce would begin
// again otherwise. Heal and a look work, too.
func TestFullServerRecordsTheEndOfARun(t *testing.T) {
	t.Parallel()
	s := newFullServer(t)
	g := acquire(t, s.a, request("job"))
	runs := s.a.(driver.Runner)
	run, err := runs.BeginRun(t.Context(), g, time.Hour, false)
	must(t, err)
	rested := acquire(t, s.a, box("pool", 2))
	release(t, s.a, rested)
	s.fill(t)
	run.Outcome = driver.Done
	must(t, runs.EndRun(t.Context(), g, run))
	if last := inspect(t, s.b, "job").LastRun; last == nil || last.Outcome != driver.Done {
		t.Errorf("the last run is %+v", last)
	}
	must(t, s.b.(driver.PoolDriver).Heal(t.Context(), "pool", rested.Slot, "test", driver.Holder{}))
	release(t, s.a, g)
}

// Units that were not used are returned on a full server, and a debt counts.
func TestFullServerSettles(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	d := openLimit(t, redis.Config{URL: s.URL()})
	all := rates(100, time.Hour)
	take := func(ticket string) limits.Answer {
		a, err := d.Take(t.Context(), limits.Request{Key: "k", Rates: all, Cost: 10, Ticket: ticket, Seq: 1, MaxWait: -1})
		must(t, err)
		return a
	}
	used := func() int {
		state, err := d.Inspect(t.Context(), "k", all)
		must(t, err)
		return state.Rates[0].Used
	}
	first, second := take("a"), take("b")
	take("c")
	must(t, command("CONFIG", "SET", "maxmemory", "1")(s))
	must(t, d.Settle(t.Context(), limits.Settlement{Key: "k", Rates: all, At: first.At, Cost: 10, Actual: 4}))
	must(t, d.Settle(t.Context(), limits.Settlement{Key: "k", Rates: all, At: second.At, Cost: 10, Actual: 11}))
	must(t, d.Withdraw(t.Context(), limits.Request{Key: "k", Rates: all, Ticket: "c", Seq: 1}))
	if n := used(); n != 15 {
		t.Errorf("%d units are used, want 15", n)
	}
	if _, err := d.Take(t.Context(), limits.Request{Key: "k", Rates: all, Cost: 1}); !errors.Is(err, limits.ErrUnavailable) {
		t.Errorf("a new request: %v, want %v", err, limits.ErrUnavailable)
	}
}

// A new request is refused on a full server, also if it finds dead tickets, whose
// removal is allowed there.
func TestFullServerAllowsNothingNew(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	d := openLimit(t, redis.Config{URL: s.URL()})
	all := rates(1, 50*time.Millisecond)
	ask := func(key, ticket string) (limits.Answer, error) {
		return d.Take(t.Context(), limits.Request{Key: key, Rates: all, Cost: 1, Ticket: ticket, Seq: 1, MaxWait: -1})
	}
	keys := map[string]string{"with a ticket": "new", "without a ticket": ""}
	for key := range keys {
		for _, ticket := range []string{"first", "dead"} {
			_, err := ask(key, ticket)
			must(t, err)
		}
	}
	soon(t, "the tickets to die", func() bool {
		for key := range keys {
			if state, err := d.Inspect(t.Context(), key, all); err != nil || len(state.Waiters) > 0 {
				return false
			}
		}
		return true
	})
	must(t, command("CONFIG", "SET", "maxmemory", "1")(s))
	for key, ticket := range keys {
		if a, err := ask(key, ticket); !errors.Is(err, limits.ErrUnavailable) {
			t.Errorf("%s: %+v, %v, want %v", key, a, err, limits.ErrUnavailable)
		}
	}
}
