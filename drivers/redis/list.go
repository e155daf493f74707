package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/lock/driver"
)

// scanCount is how many keys one SCAN looks at.
const scanCount = 1000

// scan finds the keys in use that begin with prefix, by SCAN: what it costs is
// spread over many short calls.
func scan(ctx context.Context, client goredis.UniversalClient, t template, prefix string) ([]string, error) {
	var mu sync.Mutex // guards found
	found := map[string]bool{}
	one := func(ctx context.Context, node *goredis.Client) error {
		for it := node.Scan(ctx, 0, t.match(prefix), scanCount).Iterator(); ; {
			if !it.Next(ctx) {
				return it.Err()
			}
			key, ok := t.key(it.Val())
			if ok && len(key) >= len(prefix) && key[:len(prefix)] == prefix {
				mu.Lock()
				found[key] = true
				mu.Unlock()
			}
		}
	}
	var err error
	switch c := client.(type) {
	case *goredis.ClusterClient:
		err = c.ForEachMaster(ctx, one)
	case *goredis.Client:
		err = one(ctx, c)
	default:
		err = errNotRedis
	}
	if err != nil {
		return nil, fmt.Errorf("scan: %w", errors.Join(ctx.Err(), unavailable(err)))
	}
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, nil
}

// inspectAll inspects many keys, as many at once as one pipeline carries, and
// leaves out what is not in use: names live on for a while.
func inspectAll(ctx context.Context, keys []string, inspect func(context.Context, string) (driver.State, error)) ([]driver.State, error) {
	states := make([]driver.State, len(keys))
	errs := make([]error, len(keys))
	var calls sync.WaitGroup
	room := make(chan struct{}, batch)
	for i, key := range keys {
		room <- struct{}{}
		calls.Go(func() {
			states[i], errs[i] = inspect(ctx, key)
			<-room
		})
	}
	calls.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(states, func(s driver.State) bool {
		return len(s.Holders)+len(s.Waiters) == 0
	}), nil
}
