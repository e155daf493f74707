package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock"
)

// megaLock is mega on the redis driver, as its users open it.
type megaLock struct {
	locks   *lock.Locker
	options []lock.Option
}

func openMega(ctx context.Context, addr string, fifo bool) (Locker, error) {
	d, err := redis.OpenLock(ctx, redis.Config{URL: "redis://" + addr})
	if err != nil {
		return nil, fmt.Errorf("open mega: %w", err)
	}
	locks, err := lock.New(d, lock.Config{TTL: TTL, FIFO: fifo})
	if err != nil {
		return nil, fmt.Errorf("open mega: %w", err)
	}
	return NewMega(locks), nil
}

// NewMega returns locks as a contestant.
func NewMega(locks *lock.Locker) *megaLock {
	return &megaLock{locks, []lock.Option{lock.Wait(lock.Forever)}}
}

func (l *megaLock) Acquire(ctx context.Context, key string) (func() error, error) {
	lease, err := l.locks.Acquire(ctx, key, l.options...)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (l *megaLock) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return l.locks.Close(ctx)
}
