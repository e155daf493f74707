// Package limits measures limits, in memory and on Redis.
package limits

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
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

// Memory asks for one unit that is allowed, and counts what the worst
// window of a small rate lets through.
func Memory(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	limits, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		return nil, err
	}
	second, day := limit.PerSecond(limit.MaxN), limit.PerDay(limit.MaxN)
	allow := func(key string, rates ...limit.Rate) measure.Batch {
		m := limit.Limit{Rates: rates}
		return measure.Each(func() error { _, err := limits.Allow(ctx, key, m); return err })
	}
	bucket, keyed := rate.NewLimiter(limit.MaxN, limit.MaxN), newBuckets(limit.MaxN, limit.MaxN)
	batches := map[string]measure.Batch{
		measure.Mega: allow("one", second),
		megaTwoRates: allow("two", second, day),
		megaRefused:  allow("refused", limit.PerDay(1)),
		tokenBucket:  measure.Each(func() error { bucket.Allow(); return nil }),
		keyedBuckets: measure.Each(func() error { keyed.allow("product:42"); return nil }),
	}
	times, allocs, worst := measure.Samples{}, measure.Samples{}, measure.Samples{}
	for range l.Reps(5) {
		if err := measure.QuietRep(l.Scale, batches, times, allocs); err != nil {
			return nil, errors.Join(err, limits.Close(ctx))
		}
		small := rate.NewLimiter(rate.Every(briefly/fewUnits), fewUnits)
		err := errors.Join(limits.Reset(ctx, "worst"), worstWindows(map[string]asking{
			measure.Mega: ofMega(ctx, limits),
			tokenBucket:  func() (bool, error) { return small.Allow(), nil },
		}, worst))
		if err != nil {
			return nil, errors.Join(err, limits.Close(ctx))
		}
	}
	two := measure.Samples{measure.Mega: times[megaTwoRates], oneRate: times[measure.Mega]}
	return []measure.Claim{
		times.Absolute("Allow", "ns", tokenBucket, keyedBuckets, megaTwoRates, megaRefused).AtMost(300),
		two.Ratio("two rates, as a multiple", "ns", oneRate, oneRate).AtMost(1.7),
		allocs.Absolute("allocations", "", tokenBucket, megaTwoRates, megaRefused),
		worst.Absolute(worstClaim, "", tokenBucket).AtMost(fewUnits),
	}, limits.Close(ctx)
}

const worstClaim = "units in the worst 50 ms, of 20"

// The contestants of limits in redis.
const (
	gcra      = "a GCRA script"
	redisRate = "redis_rate"
)

// gcraScript is the least that a limiter in redis does: one number for each key.
// It allows almost twice the rate in a window.
const gcraScript = `local t = redis.call('time')
local now = t[1] * 1000000 + t[2]
local at = math.max(tonumber(redis.call('get', KEYS[1])) or now, now) + ARGV[1]
if at - ARGV[2] > now then return {0, at - ARGV[2] - now} end
redis.call('set', KEYS[1], string.format('%.0f', at), 'px', math.ceil((at - now) / 1000))
return {1, 0}`

// Redis asks for one unit that is allowed, beside a GCRA script and
// redis_rate, and counts what the worst window of a small rate lets through.
func Redis(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	server, err := l.Redis()
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
	allow := func(key string, rates ...limit.Rate) func() error {
		m := limit.Limit{Rates: rates}
		return func() error { _, err := limits.Allow(ctx, key, m); return err }
	}
	second, minute := limit.PerSecond(1_000_000), limit.PerMinute(60_000_000)
	script, library := scripted(ctx, client), redis_rate.NewLimiter(client)
	times, err := measure.Alternately(l.Scale, map[string]func() error{
		measure.Mega: allow("one", second),
		megaTwoRates: allow("two", second, minute),
		gcra:         func() error { _, err := script("gcra", time.Microsecond, time.Second); return err },
		redisRate: func() error {
			_, err := library.Allow(ctx, "library", redis_rate.PerSecond(1_000_000))
			return err
		},
	}, measure.Mega, megaTwoRates, gcra, redisRate)
	worst := measure.Samples{}
	for range l.Reps(5) {
		few := redis_rate.Limit{Rate: fewUnits, Burst: fewUnits, Period: briefly}
		err = errors.Join(err, limits.Reset(ctx, "worst"), worstWindows(map[string]asking{
			measure.Mega: ofMega(ctx, limits),
			gcra:         func() (bool, error) { return script("worst", briefly/fewUnits, briefly) },
			redisRate: func() (bool, error) {
				r, err := library.Allow(ctx, "worst", few)
				return err == nil && r.Allowed > 0, err
			},
		}, worst))
	}
	if err = errors.Join(err, client.Close(), limits.Close(ctx)); err != nil {
		return nil, err
	}
	return []measure.Claim{
		times.Ratio("Allow", "µs", gcra, gcra, redisRate).AtMost(1.5),
		times.Ratio("Allow, beside redis_rate", "µs", redisRate, redisRate),
		times.Beside(megaTwoRates, gcra).Ratio("Allow under two rates", "µs", gcra, gcra).AtMost(1.7),
		worst.Absolute(worstClaim, "", gcra, redisRate).AtMost(fewUnits),
	}, nil
}

// scripted returns the limiter of gcraScript: one unit costs each, and at most
// burst is saved.
func scripted(ctx context.Context, client *goredis.Client) func(key string, each, burst time.Duration) (bool, error) {
	script := goredis.NewScript(gcraScript)
	return func(key string, each, burst time.Duration) (bool, error) {
		answer, err := script.Run(ctx, client, []string{key}, each.Microseconds(), burst.Microseconds()).Int64Slice()
		return err == nil && answer[0] == 1, err
	}
}

// The small rate of the worst windows.
const (
	fewUnits = 20
	briefly  = 50 * time.Millisecond
)

// asking asks for one unit of a limit.
type asking func() (allowed bool, err error)

// ofMega asks under the small rate.
func ofMega(ctx context.Context, limits *limit.Limiter) asking {
	m := limit.Limit{Rates: []limit.Rate{{N: fewUnits, Per: briefly}}}
	return func() (bool, error) { r, err := limits.Allow(ctx, "worst", m); return r.Allowed, err }
}

// worstWindow asks as fast as it can for three intervals, and returns the number
// of units that were certainly allowed within one of them.
func worstWindow(allow asking) (float64, error) {
	var grants []limittest.Grant
	for start := time.Now(); time.Since(start) < 3*briefly; {
		from := time.Now()
		allowed, err := allow()
		if err != nil {
			return 0, err
		}
		if allowed {
			grants = append(grants, limittest.Grant{From: from, To: time.Now(), Units: 1})
		}
	}
	units, _ := limittest.Worst(grants, briefly-time.Microsecond) // the clock of a window has microseconds, this one nanoseconds
	return float64(units), nil
}

// worstWindows adds the worst window of each contestant.
func worstWindows(contestants map[string]asking, worst measure.Samples) error {
	for name, allow := range contestants {
		units, err := worstWindow(allow)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		worst.Add(name, units)
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
