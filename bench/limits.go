package main

import (
	"context"
	"errors"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/limittest"
)

// The contestants among limits, and mega's other cases: two rates, and a
// refusal, which this process remembers.
const (
	tokenBucket  = "x/time/rate"
	keyedBuckets = "x/time/rate by key"
	megaTwoRates = "mega, two rates"
	megaRefused  = "mega, refused"
	oneRate      = "one rate"
)

// memoryLimit asks for one unit that is allowed, and counts what the worst
// window of a small rate lets through.
func memoryLimit(ctx context.Context, l *lab) ([]claim, error) {
	limits, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		return nil, err
	}
	second, day := limit.PerSecond(limit.MaxN), limit.PerDay(limit.MaxN)
	allow := func(key string, rates ...limit.Rate) batch {
		m := limit.Limit{Rates: rates}
		return each(func() error { _, err := limits.Allow(ctx, key, m); return err })
	}
	bucket, keyed := rate.NewLimiter(limit.MaxN, limit.MaxN), newBuckets(limit.MaxN, limit.MaxN)
	batches := map[string]batch{
		mega:         allow("one", second),
		megaTwoRates: allow("two", second, day),
		megaRefused:  allow("refused", limit.PerDay(1)),
		tokenBucket:  each(func() error { bucket.Allow(); return nil }),
		keyedBuckets: each(func() error { keyed.allow("product:42"); return nil }),
	}
	times, allocs, worst := samples{}, samples{}, samples{}
	for range l.reps(9) {
		if err := memoryRep(l, batches, times, allocs); err != nil {
			return nil, errors.Join(err, limits.Close(ctx))
		}
		if err := worstWindows(ctx, limits, worst); err != nil {
			return nil, errors.Join(err, limits.Close(ctx))
		}
	}
	two := samples{mega: times[megaTwoRates], oneRate: times[mega]}
	return []claim{
		times.absolute("Allow", "ns", tokenBucket, keyedBuckets, megaTwoRates, megaRefused).atMost(300),
		two.ratio("two rates, as a multiple", "ns", oneRate, oneRate).atMost(1.7),
		allocs.absolute("allocations", "", tokenBucket, megaTwoRates, megaRefused),
		worst.absolute("units in the worst 50 ms, of 20", "", tokenBucket).atMost(20),
	}, limits.Close(ctx)
}

// gcra is the contestant of limits in redis.
const gcra = "a GCRA script"

// gcraScript is the least that a limiter in redis does: one number for each key.
// It allows almost twice the rate in a window.
const gcraScript = `local t = redis.call('time')
local now = t[1] * 1000000 + t[2]
local at = math.max(tonumber(redis.call('get', KEYS[1])) or now, now) + ARGV[1]
if at - ARGV[2] > now then return {0, at - ARGV[2] - now} end
redis.call('set', KEYS[1], string.format('%.0f', at), 'px', math.ceil((at - now) / 1000))
return {1, 0}`

// redisLimit asks for one unit that is allowed, beside a GCRA script.
func redisLimit(ctx context.Context, l *lab) ([]claim, error) {
	server, err := l.redis()
	if err != nil {
		return nil, err
	}
	d, err := redis.OpenLimit(ctx, redis.Config{URL: server.URL()})
	if err != nil {
		return nil, err
	}
	limits, err := limit.New(d, limit.Config{})
	if err != nil {
		return nil, err
	}
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	script := goredis.NewScript(gcraScript)
	allow := func(key string, rates ...limit.Rate) func() error {
		m := limit.Limit{Rates: rates}
		return func() error { _, err := limits.Allow(ctx, key, m); return err }
	}
	second, minute := limit.PerSecond(1_000_000), limit.PerMinute(60_000_000)
	times, err := alternately(l, map[string]func() error{
		mega:         allow("one", second),
		megaTwoRates: allow("two", second, minute),
		gcra:         func() error { return script.Run(ctx, client, []string{"gcra"}, 1, 1_000_000).Err() },
	}, mega, megaTwoRates, gcra)
	return []claim{
		times.ratio("Allow", "µs", gcra, gcra).atMost(1.5),
		times.beside(megaTwoRates, gcra).ratio("Allow under two rates", "µs", gcra, gcra).atMost(1.7),
	}, errors.Join(err, client.Close(), limits.Close(ctx))
}

// worstWindows asks for 20 units per 50 ms as fast as it can, and adds the
// number of units that the worst window let through for certain.
func worstWindows(ctx context.Context, limits *limit.Limiter, worst samples) error {
	const n, per, windows = 20, 50 * time.Millisecond, 3
	if err := limits.Reset(ctx, "worst"); err != nil {
		return err
	}
	m := limit.Limit{Rates: []limit.Rate{{N: n, Per: per}}}
	bucket := rate.NewLimiter(rate.Every(per/n), n)
	for name, allow := range map[string]func() (bool, error){
		mega:        func() (bool, error) { r, err := limits.Allow(ctx, "worst", m); return r.Allowed, err },
		tokenBucket: func() (bool, error) { return bucket.Allow(), nil },
	} {
		var grants []limittest.Grant
		for start := time.Now(); time.Since(start) < windows*per; {
			from := time.Now()
			allowed, err := allow()
			if err != nil {
				return err
			}
			if allowed {
				grants = append(grants, limittest.Grant{From: from, To: time.Now(), Units: 1})
			}
		}
		units, _ := limittest.Worst(grants, per-time.Microsecond) // the clock of a window has microseconds, this one nanoseconds
		worst.add(name, float64(units))
	}
	return nil
}

// buckets is the limiter by name that people write themselves: a map of token
// buckets.
type buckets struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]*rate.Limiter
	fill  rate.Limit
	burst int
}

func newBuckets(fill rate.Limit, burst int) *buckets {
	return &buckets{byKey: make(map[string]*rate.Limiter), fill: fill, burst: burst}
}

func (b *buckets) allow(key string) bool {
	b.mu.Lock()
	l := b.byKey[key]
	if l == nil {
		l = rate.NewLimiter(b.fill, b.burst)
		b.byKey[key] = l
	}
	b.mu.Unlock()
	return l.Allow()
}
