package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// redisAOF counts the bytes that a cycle of a free key adds to the server's
// append-only file.
func redisAOF(ctx context.Context, l *lab) (claims []claim, err error) {
	if l.server, err = redistest.New(redistest.Options{Persistence: redistest.AOF}); err != nil {
		return nil, err
	}
	names := []string{redisLock, rueidisLock, mega}
	lockers, err := l.lockers(ctx, names...)
	if err != nil {
		return nil, err
	}
	written := samples{}
	for rep := range l.reps(5) {
		for i, name := range names {
			n, err := appended(ctx, l.server, lockers[i], key("aof", rep), l.scaled(1000))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			written.add(name, n)
		}
	}
	return []claim{
		written.ratio("bytes in the AOF per cycle", "B", redisLock, redisLock, rueidisLock).atMost(1.5),
	}, nil
}

// appended returns the bytes per cycle, of n cycles.
func appended(ctx context.Context, s *redistest.Server, l locker, key string, n int) (float64, error) {
	cycle := func() error { _, _, err := timed(ctx, l, key); return err }
	if err := cycle(); err != nil { // scripts and connections are new
		return 0, err
	}
	before, err := reported(s, "persistence", "aof_current_size")
	if err != nil {
		return 0, err
	}
	if err := each(cycle)(n); err != nil {
		return 0, err
	}
	after, err := reported(s, "persistence", "aof_current_size")
	return (after - before) / float64(n), err
}

// reported returns a number that the server reports.
func reported(s *redistest.Server, section, field string) (float64, error) {
	info, err := s.Info(section)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(info[field], 64)
}

// redisKeys holds many keys of a server at once and releases them.
func redisKeys(ctx context.Context, l *lab) ([]claim, error) {
	server, err := l.redis()
	if err != nil {
		return nil, err
	}
	client := dial(server.Addr())
	defer client.Close()
	n := l.scaled(40_000)
	all := map[string]holdings{}
	for rep := range l.reps(5) {
		for _, name := range []string{mega, redisLock} {
			if name == redisLock && rep > 0 {
				continue // its memory does not change
			}
			locks, err := l.locker(ctx, name)
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
	figures := func(of func(holding) float64) samples {
		return samples{mega: all[mega].each(of), redisLock: all[redisLock].each(of)}
	}
	return []claim{
		figures(func(h holding) float64 { return h.held }).absolute("memory per held key", "B", redisLock).atMost(400),
		figures(func(h holding) float64 { return h.left }).absolute("memory per key, just released", "B", redisLock),
		figures(func(h holding) float64 { return h.lasting }).absolute("memory per key, 60 s later", "B", redisLock).atMost(1),
		all[mega].flat().ratio("acquire, the second half of the keys", "µs", firstHalf, firstHalf).atMost(1.5).
			over("keys held", all[mega].curve(mega, n)),
	}, nil
}

// holdMany acquires n keys with 16 goroutines, and releases them.
func holdMany(ctx context.Context, s *redistest.Server, client *goredis.Client, l locker, n, rep int) (h holding, err error) {
	if _, _, err := timed(ctx, l, key("warm")); err != nil {
		return h, err
	}
	before, err := reported(s, "memory", "used_memory")
	if err != nil {
		return h, err
	}
	releases := make([]func() error, n)
	for t := range tenths {
		from, to := t*n/tenths, (t+1)*n/tenths
		began := time.Now()
		err := shared(from, to, func(i int) (err error) {
			releases[i], err = l.acquire(ctx, key("many", rep, i))
			return err
		})
		if err != nil {
			return h, err
		}
		h.acquire[t] = micros(time.Since(began)) / float64(to-from)
	}
	held, err := reported(s, "memory", "used_memory")
	if err != nil {
		return h, err
	}
	if err := shared(0, n, func(i int) error { return releases[i]() }); err != nil {
		return h, err
	}
	left, err := reported(s, "memory", "used_memory")
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
