package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock/driver"
)

// A full server with an eviction policy deletes some keys of a lock. That loses
// leases, as the driver warns, but no script fails, and nobody is locked out.
func TestLockLivesOnWithoutOneOfItsKeys(t *testing.T) {
	t.Parallel()
	plain := func(key string, _ int) driver.Request { return request(key) }
	for name, ask := range map[string]func(string, int) driver.Request{"plain": plain, "slots": seat, "slots with states": box} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(suite.Scaled(4)) {
				withoutKeys(t, ask, seed)
			}
		})
	}
}

func withoutKeys(t *testing.T, ask func(string, int) driver.Request, seed uint64) {
	t.Helper()
	d, random := openShared(t), rand.New(rand.NewPCG(seed, 1))
	key, n := token(), ask("", 3).Slots
	var held []driver.Grant
	var log []string
	check := func(what string, err error, fine ...error) {
		t.Helper()
		log = append(log, fmt.Sprint(what, ": ", err))
		for _, f := range fine {
			if errors.Is(err, f) {
				return
			}
		}
		if err != nil {
			t.Fatalf("seed %d: %s: %v\n%q", seed, what, err, log)
		}
	}
	for range 60 {
		if random.IntN(3) == 0 {
			h := "mega:{" + key + "}"
			part := []string{h, h + ":state", h + ":order", h + ":due", h + ":slots"}[random.IntN(5)]
			do(t, "DEL", part)
			log = append(log, "del "+part)
		}
		i := 0
		if len(held) > 0 {
			i = random.IntN(len(held))
		}
		switch op := random.IntN(8); {
		case op < 3 || len(held) == 0:
			r := ask(key, 3)
			r.TTL, r.Wait = time.Duration(150+random.IntN(400))*time.Millisecond, time.Duration(random.IntN(2)*20)*time.Millisecond
			if r.Pool != nil { // the fast paths
				r.Pool.Prefer = random.IntN(n+1) - 1
			}
			g, err := d.Acquire(t.Context(), r)
			if err == nil {
				held = append(held, g)
			}
			check("acquire", err, driver.ErrNotAcquired)
			if g.Slot >= n {
				t.Fatalf("seed %d: slot %d of %d\n%q", seed, g.Slot, n, log)
			}
		case op < 5:
			g := held[i]
			held = append(held[:i], held[i+1:]...)
			switch random.IntN(3) {
			case 0:
				g.Handback = &driver.Handback{Status: driver.SlotFree}
			case 1:
				g.Handback = &driver.Handback{Status: driver.SlotDirty}
			}
			check("release", d.Release(t.Context(), g), driver.ErrLost)
		case op == 5:
			check("renew", d.Renew(t.Context(), held[i:i+1])[0].Err, driver.ErrLost)
		case op == 6:
			_, err := d.Inspect(t.Context(), key)
			check("inspect", err)
		case random.IntN(2) == 0:
			_, err := d.ForceRelease(t.Context(), key, driver.Force{Reason: "test"})
			check("force", err)
		default:
			check("heal", d.(driver.PoolDriver).Heal(t.Context(), key, random.IntN(n), "test", driver.Holder{}))
		}
	}
	for slot := range n {
		r := ask(key, 3)
		g, err := d.Acquire(t.Context(), r)
		check(fmt.Sprint("slot ", slot, " in the end"), err)
		if g.Slot >= n {
			t.Errorf("seed %d: slot %d of %d\n%q", seed, g.Slot, n, log)
		}
		log = append(log, fmt.Sprint(g.Slot))
	}
	r := ask(key, 3)
	r.Wait = 0
	if g, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("seed %d: one too many: slot %d, %v\n%q", seed, g.Slot, err, log)
	}
	for _, g := range held {
		_ = d.Release(t.Context(), g)
	}
}
