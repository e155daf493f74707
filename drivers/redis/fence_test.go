package redis_test

import (
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock/driver"
)

func TestFenceGrowsWhateverIsStored(t *testing.T) {
	d := openShared(t)
	fence := "mega:{" + t.Name() + "}:fence"
	for name, spoil := range map[string]func(){
		"nothing":      func() { do(t, "DEL", fence) },
		"no number":    func() { do(t, "SET", fence, "x") },
		"not a number": func() { do(t, "SET", fence, "nan") },
		"infinity":     func() { do(t, "SET", fence, "inf") },
		"too large":    func() { do(t, "SET", fence, "9007199254740992") },
		"negative":     func() { do(t, "SET", fence, "-5") },
		"small":        func() { do(t, "SET", fence, "5") },
		"a list":       func() { do(t, "DEL", fence); do(t, "RPUSH", fence, "x") },
	} {
		before := acquire(t, d, request(t.Name()))
		release(t, d, before)
		spoil()
		after := acquire(t, d, request(t.Name()))
		release(t, d, after)
		if after.Fence <= before.Fence || after.Fence >= 1<<53 {
			t.Errorf("%s: fence %d after %d", name, after.Fence, before.Fence)
		}
	}
}

func TestFenceStaysAboveAClockThatWasSetBack(t *testing.T) {
	d := openShared(t)
	// As if the last grant had been an hour later.
	ahead := time.Now().Add(time.Hour).UnixMicro()
	do(t, "SET", "mega:{"+t.Name()+"}:fence", ahead)
	g := acquire(t, d, request(t.Name()))
	defer release(t, d, g)
	if g.Fence != uint64(ahead)+1 {
		t.Errorf("fence %d, want %d", g.Fence, ahead+1)
	}
	if ttl := time.Duration(do(t, "PTTL", "mega:{"+t.Name()+"}:fence").(int64)) * time.Millisecond; ttl < time.Hour {
		t.Errorf("the record goes in %v, before the clock is past it", ttl)
	}
}

func TestSpansDoNotOverlapAcrossEngines(t *testing.T) {
	queue := openShared(t)
	polling := open(t, redis.Config{URL: shared.URL(), Engine: redis.EngineRedislock})
	// The counter ahead of the clock, so that the spans are dense.
	do(t, "SET", "mega:{"+t.Name()+"}:fence", time.Now().Add(time.Hour).UnixMicro())
	last := uint64(0)
	for range 3 {
		for _, d := range []driver.Driver{queue, polling} {
			r := request(t.Name())
			r.Fences = 17
			g, err := d.Acquire(t.Context(), r)
			must(t, err)
			must(t, d.Release(t.Context(), g))
			if g.Fence <= last || g.Fences != 17 {
				t.Errorf("fences %d to %d after %d", g.Fence, g.Fence+uint64(g.Fences)-1, last)
			}
			last = g.Fence + 16
		}
	}
}
