package locks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
)

// RedisAlone takes and releases one free key at a time; the contestants
// alternate operation by operation.
func RedisAlone(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	names := []string{peers.SetNX, peers.RedisLock, peers.RueidisLock, measure.Mega}
	lockers, err := l.Lockers(ctx, names...)
	if err != nil {
		return nil, err
	}
	acquires, cycles := measure.Samples{}, measure.Samples{}
	for rep := range l.Reps(7) {
		acquire, cycle := make([][]time.Duration, len(names)), make([][]time.Duration, len(names))
		for round := range l.Scaled(1000) {
			for _, i := range measure.Turn(len(names), round) {
				a, c, err := peers.Timed(ctx, lockers[i], lab.Key("alone", rep))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				acquire[i], cycle[i] = append(acquire[i], a), append(cycle[i], c)
			}
		}
		for i, name := range names {
			acquires.Add(name, measure.Micros(measure.Median(acquire[i])))
			cycles.Add(name, measure.Micros(measure.Median(cycle[i])))
		}
	}
	return []measure.Claim{
		acquires.Ratio("acquire, p50", "µs", peers.RedisLock, peers.SetNX, peers.RedisLock, peers.RueidisLock).AtMost(1.25),
		cycles.Ratio("whole cycle, p50", "µs", peers.RedisLock, peers.SetNX, peers.RedisLock, peers.RueidisLock).AtMost(1.25),
	}, nil
}

// RedisManyKeys runs 32 goroutines, each with its own free key; the contestants
// take turns.
func RedisManyKeys(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	names := []string{peers.RedisLock, peers.RueidisLock, measure.Mega}
	lockers, err := l.Lockers(ctx, names...)
	if err != nil {
		return nil, err
	}
	rates := measure.Samples{}
	for rep := range l.Reps(9) {
		for _, i := range measure.Turn(len(names), rep) {
			rate, err := manyKeys(ctx, lockers[i], rep, l.Slice(400*time.Millisecond))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", names[i], err)
			}
			rates.Add(names[i], rate)
		}
	}
	return []measure.Claim{
		rates.Ratio("cycles/s", "/s", peers.RedisLock, peers.RedisLock).AtLeast(1.2),
		rates.Ratio("cycles/s, beside rueidislock", "/s", peers.RueidisLock, peers.RueidisLock).AtLeast(1),
	}, nil
}

func manyKeys(ctx context.Context, l peers.Locker, rep int, d time.Duration) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards rate and err
		done = time.Now()
	)
	for g := range 32 {
		wg.Go(func() {
			n, _, e := peers.Repeat(ctx, l, lab.Key("many", rep, g))
			mu.Lock()
			defer mu.Unlock()
			rate += n
			if e != nil {
				err = e
			}
		})
	}
	wg.Wait()
	return rate / time.Since(done).Seconds(), err
}
