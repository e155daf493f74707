package redis_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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

// BenchmarkManyKeysBesideRedislock compares rates: 32 goroutines, each with a
// key of its own.
func BenchmarkManyKeysBesideRedislock(b *testing.B) {
	d := openShared(b)
	o, _ := goredis.ParseURL(shared.URL())
	client := goredis.NewClient(o)
	defer client.Close()
	peer := redislock.New(client)
	b.Run("mega", func(b *testing.B) {
		crowd32(b, func(key string) error {
			g, err := d.Acquire(b.Context(), request(key))
			if err != nil {
				return err
			}
			return d.Release(b.Context(), g)
		})
	})
	b.Run("redislock", func(b *testing.B) {
		crowd32(b, func(key string) error {
			l, err := peer.Obtain(b.Context(), key, 10*time.Second, nil)
			if err != nil {
				return err
			}
			return l.Release(b.Context())
		})
	})
}

func crowd32(b *testing.B, cycle func(key string) error) {
	b.Helper()
	const goroutines = 32
	var left atomic.Int64
	left.Store(int64(b.N))
	var crowd sync.WaitGroup
	for i := range goroutines {
		crowd.Go(func() {
			key := "many:" + strconv.Itoa(i)
			for left.Add(-1) >= 0 {
				if err := cycle(key); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	crowd.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

// BenchmarkHandOverBesidePush is from Release in one process to Acquire in
// another, here two drivers.
func BenchmarkHandOverBesidePush(b *testing.B) {
	near, far := openShared(b), openShared(b)
	o, _ := goredis.ParseURL(shared.URL())
	client := goredis.NewClient(o)
	defer client.Close()
	sub := client.Subscribe(b.Context(), "bench")
	defer sub.Close()
	_, _ = sub.Receive(b.Context())
	got := make(chan struct{})
	go func() {
		for {
			if _, err := sub.ReceiveMessage(context.Background()); err != nil {
				return
			}
			got <- struct{}{}
		}
	}()
	var ours, push []time.Duration
	for b.Loop() {
		held := acquire(b, near, request("hand"))
		next := queueUp(b, far, request("hand"))
		time.Sleep(2 * time.Millisecond)
		start := time.Now()
		release(b, near, held)
		g := next.granted(b, slack)
		ours = append(ours, time.Since(start))
		release(b, far, g)
		time.Sleep(2 * time.Millisecond)
		start = time.Now()
		client.Publish(b.Context(), "bench", "x")
		<-got
		push = append(push, time.Since(start))
	}
	b.ReportMetric(float64(median(ours).Nanoseconds()), "hand-over-ns")
	b.ReportMetric(float64(median(push).Nanoseconds()), "push-ns")
	b.ReportMetric(float64(median(ours))/float64(median(push)), "ratio")
}
