// Package peers has the locks that the bench compares, mega among them, behind
// one interface.
package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/megaframework/mega/bench/internal/measure"
)

// ttl is the lease of contestants that renew. The others use one that outlives
// every row.
const (
	TTL     = 10 * time.Second
	lasting = 10 * time.Minute
)

// Locker is one of the compared locks on a server.
type Locker interface {
	// Acquire waits until key is held and returns what releases it.
	Acquire(ctx context.Context, key string) (release func() error, err error)
	Close() error
}

// The contestants on redis.
const (
	SetNX       = "SET NX"
	Push        = "push"
	RedisLock   = "redislock"
	RueidisLock = "rueidislock"
	MegaFIFO    = "mega FIFO"
	MegaCluster = "mega on a node" // at a hub's socket, not at a server
)

// Open connects a contestant to the server at addr.
func Open(ctx context.Context, name, addr string) (Locker, error) {
	switch name {
	case SetNX:
		return &rawLock{Dial(addr)}, nil
	case Push:
		return openPush(ctx, addr)
	case RedisLock:
		client := Dial(addr)
		return &redislockLock{client, redislock.New(client)}, nil
	case RueidisLock:
		return openRueidis(addr)
	case measure.Mega, MegaFIFO:
		return openMega(ctx, addr, name == MegaFIFO)
	case MegaCluster:
		locks, err := OpenNode(ctx, addr)
		return NewMega(locks), err
	}
	return nil, fmt.Errorf("open %q: no such contestant", name)
}

// Dial makes a client with room for every goroutine of a row, so that no
// contestant waits for a connection.
func Dial(addr string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 256})
}

// rawLock is the floor of a cycle: SET NX, and DEL without a check of the
// owner.
type rawLock struct{ client *goredis.Client }

func (l *rawLock) Acquire(ctx context.Context, key string) (func() error, error) {
	ok, err := l.client.SetNX(ctx, "raw:"+key, "0123456789abcdefghijkl", lasting).Result()
	if err == nil && !ok {
		err = fmt.Errorf("set %q: the key is held", key)
	}
	return func() error { return l.client.Del(ctx, "raw:"+key).Err() }, err
}

func (l *rawLock) Close() error { return l.client.Close() }

// PushLock is the floor of a hand-over: a release publishes a message, and an
// acquire receives it.
type PushLock struct {
	client *goredis.Client
	inbox  *goredis.PubSub
}

const pushChannel = "bench:push"

func openPush(ctx context.Context, addr string) (Locker, error) {
	l := &PushLock{client: Dial(addr)}
	l.inbox = l.client.Subscribe(ctx, pushChannel)
	if _, err := l.inbox.Receive(ctx); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return l, nil
}

// Acquire returns when the next push arrives.
func (l *PushLock) Acquire(ctx context.Context, _ string) (func() error, error) {
	_, err := l.inbox.ReceiveMessage(ctx)
	return func() error { return nil }, err
}

// Publish sends a push.
func (l *PushLock) Publish(ctx context.Context) error {
	return l.client.Publish(ctx, pushChannel, "0123456789abcdefghijkl").Err()
}

// Close closes the connections.
func (l *PushLock) Close() error {
	_ = l.inbox.Close()
	return l.client.Close()
}

// redislockLock is github.com/bsm/redislock. A waiter polls each millisecond,
// the shortest back-off that its users choose.
type redislockLock struct {
	client *goredis.Client
	locks  *redislock.Client
}

func (l *redislockLock) Acquire(ctx context.Context, key string) (func() error, error) {
	held, err := l.locks.Obtain(ctx, "redislock:"+key, lasting, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	return func() error { return held.Release(context.WithoutCancel(ctx)) }, nil
}

func (l *redislockLock) Close() error { return l.client.Close() }

// rueidislockLock is github.com/redis/rueidis/rueidislock, with one key per
// lock as the others have, and NOLOOP, which its authors recommend.
type rueidislockLock struct {
	locks    rueidislock.Locker
	patience time.Duration
}

func openRueidis(addr string) (Locker, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		KeyValidity:    TTL,
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

func (l *rueidislockLock) Acquire(ctx context.Context, key string) (func() error, error) {
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

// Patient returns a contestant that does not retry: a waiting crowd is measured
// as its authors made it.
func Patient(l Locker) Locker {
	if r, ok := l.(*rueidislockLock); ok {
		return &rueidislockLock{r.locks, time.Hour}
	}
	return l
}

func (l *rueidislockLock) Close() error {
	l.locks.Close()
	return nil
}
