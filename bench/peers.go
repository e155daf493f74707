package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/megaframework/mega/lock"
)

// ttl is the lease of contestants that renew. The others use one that outlives
// every row.
const (
	ttl     = 10 * time.Second
	lasting = 10 * time.Minute
)

// locker is one of the compared locks on a server.
type locker interface {
	// acquire waits until key is held and returns what releases it.
	acquire(ctx context.Context, key string) (release func() error, err error)
	close() error
}

// The contestants on redis.
const (
	setNX       = "SET NX"
	push        = "push"
	redisLock   = "redislock"
	rueidisLock = "rueidislock"
	megaFIFO    = "mega FIFO"
	megaCluster = "mega on a node" // at a hub's socket, not at a server
)

// open connects a contestant to the server at addr.
func open(ctx context.Context, name, addr string) (locker, error) {
	switch name {
	case setNX:
		return &rawLock{dial(addr)}, nil
	case push:
		return openPush(ctx, addr)
	case redisLock:
		client := dial(addr)
		return &redislockLock{client, redislock.New(client)}, nil
	case rueidisLock:
		return openRueidis(addr)
	case mega, megaFIFO:
		return openMega(ctx, addr, name == megaFIFO)
	case megaCluster:
		locks, err := openClusterLock(ctx, addr)
		return &megaLock{locks, []lock.Option{lock.Wait(lock.Forever)}}, err
	}
	return nil, fmt.Errorf("open %q: no such contestant", name)
}

// dial makes a client with room for every goroutine of a row, so that no
// contestant waits for a connection.
func dial(addr string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 256})
}

// rawLock is the floor of a cycle: SET NX, and DEL without a check of the
// owner.
type rawLock struct{ client *goredis.Client }

func (l *rawLock) acquire(ctx context.Context, key string) (func() error, error) {
	ok, err := l.client.SetNX(ctx, "raw:"+key, "0123456789abcdefghijkl", lasting).Result()
	if err == nil && !ok {
		err = fmt.Errorf("set %q: the key is held", key)
	}
	return func() error { return l.client.Del(ctx, "raw:"+key).Err() }, err
}

func (l *rawLock) close() error { return l.client.Close() }

// pushLock is the floor of a hand-over: a release publishes a message, and an
// acquire receives it.
type pushLock struct {
	client *goredis.Client
	inbox  *goredis.PubSub
}

const pushChannel = "bench:push"

func openPush(ctx context.Context, addr string) (locker, error) {
	l := &pushLock{client: dial(addr)}
	l.inbox = l.client.Subscribe(ctx, pushChannel)
	if _, err := l.inbox.Receive(ctx); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return l, nil
}

func (l *pushLock) acquire(ctx context.Context, _ string) (func() error, error) {
	_, err := l.inbox.ReceiveMessage(ctx)
	return func() error { return nil }, err
}

func (l *pushLock) publish(ctx context.Context) error {
	return l.client.Publish(ctx, pushChannel, "0123456789abcdefghijkl").Err()
}

func (l *pushLock) close() error {
	_ = l.inbox.Close()
	return l.client.Close()
}

// redislockLock is github.com/bsm/redislock. A waiter polls each millisecond,
// the shortest back-off that its users choose.
type redislockLock struct {
	client *goredis.Client
	locks  *redislock.Client
}

func (l *redislockLock) acquire(ctx context.Context, key string) (func() error, error) {
	held, err := l.locks.Obtain(ctx, "redislock:"+key, lasting, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	return func() error { return held.Release(context.WithoutCancel(ctx)) }, nil
}

func (l *redislockLock) close() error { return l.client.Close() }

// rueidislockLock is github.com/redis/rueidis/rueidislock, with one key per
// lock as the others have, and NOLOOP, which its authors recommend.
type rueidislockLock struct {
	locks    rueidislock.Locker
	patience time.Duration
}

func openRueidis(addr string) (locker, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		KeyValidity:    ttl,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open rueidislock: %w", err)
	}
	return &rueidislockLock{locks, patience}, nil
}

// patience is the time limit for a call of rueidislock before it is repeated:
// occasionally one misses its wake-up and waits forever for a free key.
const patience = 5 * time.Second

func (l *rueidislockLock) acquire(ctx context.Context, key string) (func() error, error) {
	for {
		attempt, cancel := context.WithCancel(ctx)
		over := time.AfterFunc(l.patience, cancel)
		_, release, err := l.locks.WithContext(attempt, key)
		switch inTime := over.Stop(); {
		case inTime && err == nil:
			return func() error { release(); cancel(); return nil }, nil
		case err == nil:
			release()
		case inTime:
			cancel()
			return nil, err
		}
		cancel()
	}
}

// patient does not retry: a waiting crowd is measured as its authors made it.
func (l *rueidislockLock) patient() locker {
	return &rueidislockLock{l.locks, time.Hour}
}

func (l *rueidislockLock) close() error {
	l.locks.Close()
	return nil
}
