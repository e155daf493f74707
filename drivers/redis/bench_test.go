package redis_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"
)

// BenchmarkAloneBesideRedislock alternates, operation by operation, so that
// both see the same machine.
func BenchmarkAloneBesideRedislock(b *testing.B) {
	d := openShared(b)
	o, _ := goredis.ParseURL(shared.URL())
	client := goredis.NewClient(o)
	defer client.Close()
	peer := redislock.New(client)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var ours, theirs, oursAll, theirsAll []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		r := request("alone")
		start := time.Now()
		g, err := d.Acquire(ctx, r)
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(start))
		if err := d.Release(ctx, g); err != nil {
			b.Fatal(err)
		}
		oursAll = append(oursAll, time.Since(start))

		start = time.Now()
		l, err := peer.Obtain(ctx, "peer", 10*time.Second, nil)
		if err != nil {
			b.Fatal(err)
		}
		theirs = append(theirs, time.Since(start))
		if err := l.Release(ctx); err != nil {
			b.Fatal(err)
		}
		theirsAll = append(theirsAll, time.Since(start))
	}
	report := func(name string, ours, theirs []time.Duration) {
		b.ReportMetric(float64(median(ours))/float64(median(theirs)), name+"-ratio")
		b.ReportMetric(float64(median(ours).Nanoseconds()), name+"-ns")
	}
	report("acquire", ours, theirs)
	report("cycle", oursAll, theirsAll)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
