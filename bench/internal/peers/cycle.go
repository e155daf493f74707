package peers

import (
	"context"
	"time"
)

// Timed is one cycle: how long until the key was held, and until it was free.
func Timed(ctx context.Context, l Locker, key string) (acquire, cycle time.Duration, err error) {
	start := time.Now()
	release, err := l.Acquire(ctx, key)
	if err != nil {
		return 0, 0, err
	}
	acquire = time.Since(start)
	err = release()
	return acquire, time.Since(start), err
}

// Repeat acquires and releases until ctx ends. A call that is still waiting at
// the end counts as a wait; its error is ignored.
func Repeat(ctx context.Context, l Locker, key string) (n float64, worst time.Duration, err error) {
	for err == nil && ctx.Err() == nil {
		asked := time.Now()
		var release func() error
		release, err = l.Acquire(ctx, key)
		worst = max(worst, time.Since(asked))
		if err == nil {
			n++
			err = release()
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	return n, worst, err
}
