package redis_test

import (
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

// mark is the clock mark of locks with the default template.
const mark = "mega:{}:clock"

// cycles returns the ways to take and release: a lock, and the slots of a pool
// that are clean.
func cycles(t *testing.T, d driver.Driver) map[string]func() driver.Grant {
	take := func(prefer int) driver.Grant {
		r := seat("pool", 2)
		r.Pool = &driver.Pool{Prefer: prefer, Avoid: -1}
		g := acquire(t, d, r)
		g.Handback = &driver.Handback{Status: driver.SlotFree}
		return g
	}
	for _, g := range []driver.Grant{take(-1), take(-1)} {
		release(t, d, g)
	}
	slot := func(n int) func() driver.Grant {
		return func() driver.Grant {
			g := take(n)
			if g.Slot != n || g.Found.Left != nil {
				t.Errorf("got slot %d, %+v, want slot %d, clean", g.Slot, g.Found, n)
			}
			release(t, d, g)
			return g
		}
	}
	return map[string]func() driver.Grant{
		"lock": func() driver.Grant {
			g := acquire(t, d, request("k"))
			release(t, d, g)
			return g
		},
		"slot 0": slot(0), "slot 1": slot(1),
	}
}

func TestFenceGrowsWhateverIsStored(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	d := open(t, redis.Config{URL: s.URL()})
	all := cycles(t, d)
	all["the whole script"] = func() driver.Grant {
		g := acquire(t, d, seat("plain", 2))
		release(t, d, g)
		return g
	}
	for way, cycle := range all {
		for name, spoil := range map[string][]any{
			"nothing":      {"DEL", mark},
			"no number":    {"SET", mark, "x"},
			"not a number": {"SET", mark, "nan"},
			"infinity":     {"SET", mark, "inf"},
			"too large":    {"SET", mark, "9007199254740992"},
			"negative":     {"SET", mark, "-5"},
			"small":        {"SET", mark, "5"},
			"text":         {"SET", mark, "abcdefghijklmnop"}, // as long as a fence
			"a power":      {"SET", mark, "9e99999999999999"},
			"a list":       {"RPUSH", mark, "x"},
		} {
			before := cycle()
			must(t, command("DEL", mark)(s))
			must(t, command(spoil...)(s))
			after := cycle()
			if after.Fence <= before.Fence || after.Fence >= 1<<53 {
				t.Errorf("%s, %s: fence %d after %d", way, name, after.Fence, before.Fence)
			}
		}
	}
}

// The mark outlives every lease: L2 has no bound on how long a lease was held.
func TestFenceStaysAboveAClockThatWasSetBack(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	d := open(t, redis.Config{URL: s.URL()})
	all := cycles(t, d)
	// As if the last grant had been an hour later.
	ahead := time.Now().Add(time.Hour).UnixMicro()
	must(t, command("SET", mark, ahead)(s))
	last := uint64(ahead)
	for way, cycle := range all {
		for range 3 {
			if g := cycle(); g.Fence != last+1 {
				t.Errorf("%s: fence %d, want %d", way, g.Fence, last+1)
			}
			last++
		}
	}
	must(t, command("DEL", "mega:{pool}:state", "mega:{pool}:slots")(s)) // which are kept for a minute
	if ttl, err := s.Do("PTTL", mark); err != nil || ttl != int64(-1) {
		t.Errorf("the mark expires in %v ms, %v", ttl, err)
	}
	keys, err := s.Do("KEYS", "*")
	must(t, err)
	if left := keys.([]any); len(left) != 1 {
		t.Errorf("free locks leave %v, want the mark alone", left)
	}
}

func TestSpansDoNotOverlapAcrossEngines(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	queue := open(t, redis.Config{URL: s.URL()})
	polling := open(t, redis.Config{URL: s.URL(), Engine: redis.EngineRedislock})
	// The mark ahead of the clock, so that the spans are dense.
	must(t, command("SET", mark, time.Now().Add(time.Hour).UnixMicro())(s))
	last := uint64(0)
	for range 3 {
		for _, d := range []driver.Driver{queue, polling} {
			r := request(t.Name())
			r.Fences = 17
			g := acquire(t, d, r)
			release(t, d, g)
			if g.Fence <= last || g.Fences != 17 {
				t.Errorf("fences %d to %d after %d", g.Fence, g.Fence+uint64(g.Fences)-1, last)
			}
			last = g.Fence + 16
		}
	}
}
