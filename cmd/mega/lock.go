package main

import (
	"context"
	"errors"
	"os/user"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/lock"
)

// openLocks opens the locks of a Redis.
func openLocks(ctx context.Context, s cli.Server) (*lock.Locker, error) {
	d, err := redis.OpenLock(ctx, redis.Config{URL: s.URL, Engine: s.Engine, Key: s.Key, Namespace: s.Namespace})
	if err != nil {
		return nil, err
	}
	l, err := lock.New(d, lock.Config{Identify: operator})
	if err != nil {
		return nil, errors.Join(err, d.Close(ctx))
	}
	return l, nil
}

// operator identifies the operator in the reason of a forced release.
func operator(_ context.Context, h *lock.Holder) {
	h.App = "mega"
	if u, err := user.Current(); err == nil {
		h.Label = u.Username
	}
}
