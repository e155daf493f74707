package redis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

func TestQueueKeepsTheContract(t *testing.T) {
	locktest.RunParallel(t, func(t *testing.T) locktest.Harness { return newYard(t, redis.EngineQueue).harness() })
}

func TestRedislockKeepsTheContractButForItsLacks(t *testing.T) {
	locktest.RunParallel(t, func(t *testing.T) locktest.Harness { return newYard(t, redis.EngineRedislock).harness() })
}

// yard opens drivers as processes that reach one server, each through a proxy
// of its own.
type yard struct {
	t      *testing.T
	engine string
	edit   func(source string) string // of the scripts; or nil
	server *redistest.Server
	names  map[string]string // of scripts, by hash

	mu      sync.Mutex // guards the fields below
	proxies map[driver.Driver]*redistest.Proxy
	late    sync.WaitGroup // duplicates under way
}

func newYard(t *testing.T, engine string) *yard {
	t.Helper()
	y := &yard{t: t, engine: engine, names: redis.ScriptNames(nil), proxies: map[driver.Driver]*redistest.Proxy{}}
	y.server = redistest.Start(t, redistest.Options{Persistence: redistest.AOF, Clock: redistest.CanStepClock()})
	t.Cleanup(y.late.Wait)
	return y
}

func (y *yard) open() (driver.Driver, error) {
	p, err := redistest.NewProxy(y.server, y.name)
	if err != nil {
		return nil, err
	}
	d, err := openLock(context.Background(), redis.Edited(redis.Config{URL: p.URL(), Engine: y.engine}, y.edit))
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	y.mu.Lock()
	y.proxies[d] = p
	y.mu.Unlock()
	c := closing{d, y}
	if asker, ok := d.(driver.Asker); ok {
		return asking{c, asker}, nil
	}
	return c, nil
}

// asking is a closing driver that can be asked in two parts, has pools and
// records runs. The suite skips the rules of what it does not implement.
type asking struct {
	closing
	driver.Asker
}

var (
	_ driver.PoolDriver = asking{}
	_ driver.Runner     = asking{}
)

func (a asking) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	return a.closing.Driver.(driver.Runner).BeginRun(ctx, g, every, spend)
}

func (a asking) EndRun(ctx context.Context, g driver.Grant, r driver.Run) error {
	return a.closing.Driver.(driver.Runner).EndRun(ctx, g, r)
}

func (a asking) Heal(ctx context.Context, key string, slot int, reason string, by driver.Holder) error {
	return a.closing.Driver.(driver.PoolDriver).Heal(ctx, key, slot, reason, by)
}

// closing ends a process's proxy with it.
type closing struct {
	driver.Driver
	yard *yard
}

func (c closing) Close(ctx context.Context) error {
	err := c.Driver.Close(ctx)
	_ = c.yard.proxy(c).Close()
	return err
}

func (y *yard) proxy(d driver.Driver) *redistest.Proxy {
	y.mu.Lock()
	defer y.mu.Unlock()
	if a, ok := d.(asking); ok {
		d = a.closing
	}
	return y.proxies[d.(closing).Driver]
}

// name calls a script by what it does.
func (y *yard) name(args []string) string {
	if len(args) > 1 {
		if name := y.names[args[1]]; name != "" {
			return name
		}
	}
	return redistest.FirstWord(args)
}

// match finds the commands of an operation of the boundary.
func (y *yard) match(op locktest.Op) redistest.Match {
	commands := map[locktest.Op][]string{
		locktest.Acquire: {"acquire", "stamp"},
		locktest.Renew:   {"renew", "confirm"},
		locktest.Release: {"release"},
		locktest.Force:   {"force"},
		locktest.Inspect: {"inspect"},
		locktest.List:    {"SCAN"},
	}
	return func(c redistest.Command) bool {
		if op == locktest.Any {
			return y.known(c.Name)
		}
		return slices.Contains(commands[op], c.Name)
	}
}

func (y *yard) known(name string) bool {
	for _, n := range y.names {
		if n == name {
			return true
		}
	}
	return false
}

func (y *yard) harness() locktest.Harness {
	s := y.server
	h := y.everywhere()
	if y.engine == redis.EngineQueue { // the other one has no connection between calls that would notice, and no format
		h.Faults.Lose, h.Faults.Newer = y.lose, y.newer
	}
	if redistest.CanStepClock() {
		h.Faults.StepClock = func(by time.Duration) (func() error, error) {
			return func() error { return s.StepClock(0) }, s.StepClock(by)
		}
	}
	return h
}

// everywhere is the harness without what only some systems can do.
func (y *yard) everywhere() locktest.Harness {
	s := y.server
	return locktest.Harness{
		Open: y.open,
		// Long, so that the shortest lease survives the moments in which everything
		// else on the machine wants its processors. The cases wait side by side.
		Unit: 600 * time.Millisecond,
		Background: []string{
			"github.com/megaframework/mega/internal/testkit/redis.(*Process).run",
			"github.com/megaframework/mega/internal/testkit/redis.(*Proxy).accept",
		},
		Faults: locktest.Faults{
			Kill: s.Kill, Restart: s.Restart, Keeps: true,
			Flush: s.FlushAll,
			Stop:  s.Pause, Continue: s.Continue,
			Refuse: func() (func() error, error) {
				undo := func() error { return y.do("CONFIG", "SET", "maxmemory", "0") }
				return undo, y.do("CONFIG", "SET", "maxmemory", "1")
			},
			Deny: func() (func() error, error) {
				undo := func() error { return y.do("ACL", "SETUSER", "default", "+@all") }
				return undo, y.do("ACL", "SETUSER", "default", "-evalsha", "-eval")
			},
			Forbid: func(command string) (func() error, error) {
				undo := func() error { return y.do("ACL", "SETUSER", "default", "+"+command) }
				return undo, y.do("ACL", "SETUSER", "default", "-"+command)
			},
			Permissions:   []string{"evalsha", "eval", "publish", "set", "get", "exists", "del", "hset", "hget", "hmget", "hdel", "hexists", "zadd", "zrem", "zrange", "zcard", "zscore", "zcount", "zrank", "zpopmin", "zrangebyscore", "zrevrangebyscore", "zremrangebyscore", "pexpire", "pttl", "persist", "getrange", "time", "subscribe", "ping", "client"},
			ForgetScripts: s.ScriptFlush,
			BreakPush:     func() error { _, err := s.KillPubSub(); return err },
			Delete: func(key string) error {
				h := "mega:{" + key + "}"
				return y.deleteHolders(h)
			},
			Corrupt: func(key string) error {
				h := "mega:{" + key + "}"
				if err := y.do("DEL", h); err != nil {
					return err
				}
				return y.do("LPUSH", h, "x")
			},
			Foreign: func(key string) error {
				return y.do("SET", "mega:{"+key+"}", "the value of another program")
			},
			DropReply: func(d driver.Driver, op locktest.Op) error {
				y.proxy(d).DropReply(y.match(op))
				return nil
			},
			Delay: func(d driver.Driver, op locktest.Op, by time.Duration) error {
				y.proxy(d).DelayReply(y.match(op), by)
				return nil
			},
			Duplicate: y.duplicate,
			Partition: func(d driver.Driver) (func() error, error) {
				y.proxy(d).Partition()
				return y.heal(d), nil
			},
			Deafen: func(d driver.Driver) (func() error, error) {
				y.proxy(d).Hold(redistest.Replies)
				return y.heal(d), nil
			},
			Crash:       func(d driver.Driver) error { return y.proxy(d).Close() },
			Connections: func(d driver.Driver) (int, error) { return y.proxy(d).Links(), nil },
			Commands:    y.commands,
		},
	}
}

// lose restarts the server without its files.
func (y *yard) lose() error {
	if err := y.server.Kill(); err != nil {
		return err
	}
	for _, name := range []string{"appendonlydir", "dump.rdb"} {
		if err := os.RemoveAll(filepath.Join(y.server.Dir(), name)); err != nil {
			return err
		}
	}
	return y.server.Restart()
}

// newer stores the size of a pool as a later version would.
func (y *yard) newer(key string) (call func() error, versions [2]string, err error) {
	return func() error {
		d, err := y.open()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), slack+driver.CallTimeout)
		defer cancel()
		_, err = d.Acquire(ctx, request(key))
		return errors.Join(err, d.Close(ctx))
	}, [2]string{"format 9", "format 3"}, y.do("HSET", "mega:{"+key+"}:state", "pool", "9 something else")
}

func (y *yard) do(args ...any) error {
	_, err := y.server.Do(args...)
	return err
}

// deleteHolders removes the leases of a lock, and leaves its queue.
func (y *yard) deleteHolders(h string) error {
	if err := y.do("DEL", h, h+":slots"); err != nil {
		return err
	}
	fields, err := y.server.Do("HKEYS", h+":state")
	if err != nil {
		return err
	}
	for _, f := range fields.([]any) {
		if name, _ := f.(string); name != "pool" && len(name) != 22 { // neither the size nor a ticket
			err = errors.Join(err, y.do("HDEL", h+":state", name))
		}
	}
	return err
}

func (y *yard) heal(d driver.Driver) func() error {
	return func() error {
		y.proxy(d).Heal()
		return nil
	}
}

func (y *yard) duplicate(d driver.Driver, op locktest.Op, by time.Duration) error {
	f := y.proxy(d).Record(y.match(op))
	y.late.Go(func() {
		select {
		case <-f.Hit():
			time.Sleep(by)
			if _, err := f.Redeliver(); err != nil {
				y.t.Error(fmt.Errorf("deliver %s again: %w", op, err))
			}
		case <-y.t.Context().Done():
		}
	})
	return nil
}

// commands counts what all processes have asked for.
func (y *yard) commands() (int, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	n := 0
	for _, p := range y.proxies {
		for _, count := range p.Counts() {
			n += count
		}
	}
	return n, nil
}
