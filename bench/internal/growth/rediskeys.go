package growth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// RedisKeys holds many keys of a server at once and releases them.
func RedisKeys(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	server, err := l.Redis()
	if err != nil {
		return nil, err
	}
	client := peers.Dial(server.Addr())
	defer func() { _ = client.Close() }()
	n := l.Scaled(40_000)
	all := map[string]holdings{}
	for rep := range l.Reps(5) {
		for _, name := range []string{measure.Mega, peers.RedisLock} {
			if name == peers.RedisLock && rep > 0 {
				continue // its memory does not change
			}
			locks, err := l.Locker(ctx, name)
			if err != nil {
				return nil, err
			}
			h, err := holdMany(ctx, server, client, locks, n, rep)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all[name] = append(all[name], h)
		}
	}
	figures := func(of func(holding) float64) measure.Samples {
		return measure.Samples{measure.Mega: all[measure.Mega].each(of), peers.RedisLock: all[peers.RedisLock].each(of)}
	}
	return []measure.Claim{
		figures(func(h holding) float64 { return h.held }).Absolute("memory per held key", "B", peers.RedisLock).AtMost(400),
		figures(func(h holding) float64 { return h.left }).Absolute("memory per key, just released", "B", peers.RedisLock),
		figures(func(h holding) float64 { return h.lasting }).Absolute("memory per key, 60 s later", "B", peers.RedisLock).AtMost(1),
		all[measure.Mega].flat().Ratio("acquire, the second half of the keys", "µs", firstHalf, firstHalf).AtMost(1.5).
			Over("keys held", all[measure.Mega].curve(measure.Mega, n)),
	}, nil
}

// holdMany acquires n keys with 16 goroutines, and releases them.
func holdMany(ctx context.Context, s *redistest.Server, client *goredis.Client, l peers.Locker, n, rep int) (h holding, err error) {
	if _, _, err := peers.Timed(ctx, l, lab.Key("warm")); err != nil {
		return h, err
	}
	before, err := lab.Reported(s, "memory", "used_memory")
	if err != nil {
		return h, err
	}
	releases := make([]func() error, n)
	for t := range tenths {
		from, to := t*n/tenths, (t+1)*n/tenths
		began := time.Now()
		err := shared(from, to, func(i int) (err error) {
			releases[i], err = l.Acquire(ctx, lab.Key("many", rep, i))
			return err
		})
		if err != nil {
			return h, err
		}
		h.acquire[t] = measure.Micros(time.Since(began)) / float64(to-from)
	}
	held, err := lab.Reported(s, "memory", "used_memory")
	if err != nil {
		return h, err
	}
	if err := shared(0, n, func(i int) error { return releases[i]() }); err != nil {
		return h, err
	}
	left, err := lab.Reported(s, "memory", "used_memory")
	if err != nil {
		return h, err
	}
	lasting, err := outlive(ctx, client, time.Minute)
	h.held, h.left, h.lasting = (held-before)/float64(n), (left-before)/float64(n), lasting/float64(n)
	if err != nil {
		return h, err
	}
	return h, client.FlushAll(ctx).Err()
}

// shared calls do for each number of a range, from 16 goroutines.
func shared(from, to int, do func(i int) error) error {
	const hands = 16
	var wg sync.WaitGroup
	errs := make([]error, hands)
	for hand := range hands {
		wg.Go(func() {
			for i := from + hand; i < to && errs[hand] == nil; i += hands {
				errs[hand] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// outlive returns the bytes of the keys that are still there after a time: those
// with a longer life, or without an end.
func outlive(ctx context.Context, client *goredis.Client, d time.Duration) (bytes float64, err error) {
	for keys := client.Scan(ctx, 0, "*", 1000).Iterator(); keys.Next(ctx); {
		life, err := client.PTTL(ctx, keys.Val()).Result()
		if err != nil {
			return 0, err
		}
		if life > d || life == -1 {
			n, err := client.MemoryUsage(ctx, keys.Val()).Result()
			if err != nil {
				return 0, err
			}
			bytes += float64(n)
		}
	}
	return bytes, err
}
