package locks

import (
	"context"
	"fmt"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// RedisAOF counts the bytes that a cycle of a free key adds to the server's
// append-only file.
func RedisAOF(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	server, err := l.RedisWith(redistest.Options{Persistence: redistest.AOF})
	if err != nil {
		return nil, err
	}
	names := []string{peers.RedisLock, peers.RueidisLock, measure.Mega}
	lockers, err := l.Lockers(ctx, names...)
	if err != nil {
		return nil, err
	}
	written := measure.Samples{}
	for rep := range l.Reps(5) {
		for i, name := range names {
			n, err := appended(ctx, server, lockers[i], lab.Key("aof", rep), l.Scaled(1000))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			written.Add(name, n)
		}
	}
	return []measure.Claim{
		written.Ratio("bytes in the AOF per cycle", "B", peers.RedisLock, peers.RedisLock, peers.RueidisLock).AtMost(1.5),
	}, nil
}

// appended returns the bytes per cycle, of n cycles.
func appended(ctx context.Context, s *redistest.Server, l peers.Locker, key string, n int) (float64, error) {
	cycle := func() error { _, _, err := peers.Timed(ctx, l, key); return err }
	if err := cycle(); err != nil { // scripts and connections are new
		return 0, err
	}
	before, err := lab.Reported(s, "persistence", "aof_current_size")
	if err != nil {
		return 0, err
	}
	if err := measure.Each(cycle)(n); err != nil {
		return 0, err
	}
	after, err := lab.Reported(s, "persistence", "aof_current_size")
	return (after - before) / float64(n), err
}
