package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
)

// moving runs scripts on locks in a hash slot of a Cluster that is being moved.
// The source still has the keys that were not moved yet. A key that the source
// does not have belongs to the target, and a call that names keys on both sides
// is answered TRYAGAIN as long as the slot is open. So moving asks the source
// for each key, and runs the script at the target where that is safe: a key
// that the source does not have now can never appear there again.
type moving struct {
	scripts map[string]*script // those that name the holder key alone, by the SHA-1 of the ordinary ones; none for limits

	mu      sync.Mutex // guards targets
	targets map[string]*goredis.Client
}

func newMoving() *moving {
	return &moving{scripts: map[string]*script{}, targets: map[string]*goredis.Client{}}
}

// use sets the scripts of locks. It is called before the first call.
func (m *moving) use(ordinary, single *scripts) {
	for from, to := range map[*script]*script{
		ordinary.acquire: single.acquire, ordinary.release: single.release, ordinary.beat: single.beat,
		ordinary.confirm: single.confirm, ordinary.force: single.force, ordinary.heal: single.heal, ordinary.inspect: single.inspect, ordinary.stamp: single.stamp,
	} {
		m.scripts[from.sha], m.scripts[from.source] = to, to
	}
}

// side describes where the keys of one lock are while its slot is moved.
type side struct {
	target string   // the address that the source named; "" if it has every key
	here   []string // the keys that the source has
	floor  string   // the highest fence that the source has given, or 0 if it has no clock mark
}

// do runs a script that a server has answered with TRYAGAIN. If the keys do not
// allow it, do returns refusal with the correction.
func (m *moving) do(ctx context.Context, source *goredis.Client, args []string, refusal error) (any, error) {
	s := m.scripts[args[1]]
	if s == nil {
		return nil, explainMove(ctx, source, args, refusal)
	}
	keys, argv := args[3:3+perLock+1], args[3+perLock+1:]
	where, err := locate(ctx, source, keys, s.name != "inspect") // L23
	if err != nil {
		return nil, err
	}
	elsewhere := no
	switch {
	case where.target == "":
		return nil, refusal // the move has ended
	case len(where.here) == 0:
	case slices.Equal(where.here, keys[:1]):
		switch s.name {
		case "release", "acquire":
			// P5: the record of a slot is at the target. L6: a request that is
			// repeated must not wait for its own lease.
			keep, notice := len(argv) > plainRelease || s.name == "acquire", no
			if s.name == "release" && len(argv) >= plainRelease {
				notice = argv[plainRelease-1]
			}
			released, err := m.releaseAtSource(ctx, source, keys[0], argv[0], keep, notice)
			switch {
			case err != nil || released != nil && !keep:
				return released, err
			case released != nil:
				return nil, where.refuse(source, keys[0], refusal)
			}
		case "beat":
		default:
			return nil, where.refuse(source, keys[0], refusal)
		}
		elsewhere = yes
	default:
		return nil, where.refuse(source, keys[0], refusal)
	}
	pipe := m.target(source, where.target).Pipeline()
	pipe.Do(ctx, "asking")
	ran := wire.Command(append([]string{eval, s.source, "1", keys[0], where.floor, elsewhere, keys[perLock]}, argv...))
	_ = pipe.Process(ctx, ran)
	_, _ = pipe.Exec(ctx)
	return ran.Result()
}

// movingSuffix ends the key in which a lock counts its fences at the target while the
// clock mark is at the source.
const movingSuffix = ":fence"

// reserve raises the clock mark at the source by more fences than one call gives,
// and returns what it was. The reserve is small, because the loss of a mark that is ahead
// of the clock makes fences step back. The first command exempts the script from the limit
// of memory, because a full server has to release what was acquired.
const reserve = `redis.call('persist', KEYS[1])
local t, last = redis.call('time'), redis.pcall('get', KEYS[1])
if type(last) == 'table' and not string.find(last.err, '^WRONGTYPE') then return last end
local us = t[1] * 1000000 + t[2]
last = tonumber(last)
if not (last and last >= us and last < 9e15) then last = us end
redis.call('set', KEYS[1], string.format('%.0f', last + 64))
return string.format('%.0f', last)`

// locate asks the source for each key of a lock separately; the last one is the
// clock mark. If fences may be given at the target, locate reserves them, and deletes
// the key in which this lock counted them during an earlier move: they are below
// the mark, and MIGRATE refuses a key that is on both sides.
func locate(ctx context.Context, source *goredis.Client, keys []string, gives bool) (side, error) {
	w := side{floor: "0"}
	pipe := source.Pipeline()
	found := make([]*goredis.IntCmd, len(keys))
	for i, key := range keys {
		found[i] = pipe.Exists(ctx, key)
	}
	var floor *goredis.Cmd
	if gives {
		floor = pipe.Eval(ctx, reserve, keys[perLock:])
		pipe.Del(ctx, keys[0]+movingSuffix)
	}
	_, _ = pipe.Exec(ctx)
	for i, f := range found {
		err := f.Err()
		if goredis.HasErrorPrefix(err, "ASK ") {
			w.target = err.Error()[strings.LastIndex(err.Error(), " ")+1:]
		} else if err != nil {
			return w, err
		} else if f.Val() == 1 && i < perLock {
			w.here = append(w.here, keys[i])
		}
	}
	if !gives || goredis.HasErrorPrefix(floor.Err(), "ASK ") {
		return w, nil
	}
	var err error
	w.floor, err = floor.Text()
	return w, err
}

// plainRelease is the number of arguments of a release that hands no slot back.
const plainRelease = 3

// compareAndDelete is the release for a lock of which only the holder key can
// be used. As in release, a late push ends no cooldown. O5
const compareAndDelete = `local v = redis.call('get', KEYS[1])
if not v or string.sub(v, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
if ARGV[3] == '` + refusing + `' and not string.find(v, '^%S+ 3 %d+ %d+ 0') then return 0 end
return ARGV[2] == '1' and 1 or redis.call('del', KEYS[1])`

// releaseAtSource deletes a lease that was not moved yet, unless keep is set. It
// returns the answer of release, or nil if there is no such lease. The queue is at
// the target, where the next heartbeat serves it.
func (m *moving) releaseAtSource(ctx context.Context, source *goredis.Client, holder, token string, keep bool, notice string) (any, error) {
	n, err := source.Eval(ctx, compareAndDelete, []string{holder}, token, keep, notice).Int64()
	if n == 0 || err != nil {
		return nil, err
	}
	return []any{n, int64(0), []any{}, ""}, nil
}

// explainMove adds the move to the refusal of a script that needs all of its keys on
// one side.
func explainMove(ctx context.Context, source *goredis.Client, args []string, refusal error) error {
	n, _ := strconv.Atoi(args[2])
	keys := args[3 : 3+n]
	where, err := locate(ctx, source, keys, false)
	if err != nil || where.target == "" { // the move has ended
		return refusal
	}
	return where.refuse(source, keys[0], refusal)
}

// refuse explains why a script on key cannot run.
func (w side) refuse(source *goredis.Client, key string, err error) error {
	return fmt.Errorf("hash slot %d is being moved from %s to %s, and the call needs keys of both; finish the move (redis-cli --cluster fix): %w",
		slotOf(key), source.Options().Addr, w.target, err)
}

// target returns a client of a server that the Cluster's client does not know,
// because it may have no slot yet.
func (m *moving) target(source *goredis.Client, addr string) *goredis.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.targets[addr]; c != nil {
		return c
	}
	o := *source.Options()
	o.Addr, o.PoolSize, o.MinIdleConns = addr, 1, 0
	c := goredis.NewClient(&o)
	m.targets[addr] = c
	return c
}

func (m *moving) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, c := range m.targets {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
