package redisguard

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

// Redis checks the fences of all leases on ctx and, if none is stale, runs
// script with keys and args. It returns the script's result. Check and script
// are one step on the server.
//
// The error is lock.ErrStale for a stale fence, lock.ErrNoLease or lock.ErrLost
// before any I/O, or an error of Redis. redis.Nil is returned for a script
// without a result, as by go-redis. A script that fails half way has recorded
// its fence. The script must not begin with a line "#!". On a Redis Cluster, a first
// key with a "}" needs a hash tag; both are lock.ErrInvalid. A *redis.Ring is
// lock.ErrUnsupported.
//
// go-redis sends a script without an answer again, up to MaxRetries times. The
// script may then run twice, and the error may be lock.ErrStale although the first
// run has written, if a later holder has written in between. With a client whose
// MaxRetries is -1 the script runs once at most, and the error of a lost answer is
// the client's.
func Redis(ctx context.Context, client goredis.UniversalClient, script string, keys []string, args ...any) (any, error) {
	leases, err := guard.Leases(ctx)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(script, "#!") {
		return nil, fmt.Errorf("redisguard: a script with flags (%.20q) cannot be guarded: %w", script, lock.ErrInvalid)
	}
	if err := refuseRing(client); err != nil {
		return nil, err
	}
	tag, err := hashTag(client, keys)
	if err != nil {
		return nil, err
	}
	allKeys, allArgs := append([]string(nil), keys...), append([]any(nil), args...)
	for _, l := range leases {
		allKeys = append(allKeys, fenceKey(tag, guard.ID(l)))
		allArgs = append(allArgs, l.Fence())
	}
	allArgs = append(allArgs, len(leases))
	result, err := goredis.NewScript(guarded(script)).Run(ctx, client, allKeys, allArgs...).Result()
	if n, stale := staleLease(err); stale && 0 <= n && n < len(leases) { // else it is the script's own
		return nil, fmt.Errorf("redisguard: %w", leases[n].Stale())
	}
	if goredis.HasErrorPrefix(err, "CROSSSLOT ") {
		return nil, fmt.Errorf(`redisguard: the keys and fences of a script need one hash slot; give the keys one hash tag, such as "{cart:7}:items", and a script for several leases at least one key: %w`, err)
	}
	if err != nil {
		return result, err
	}
	return result, nil
}

// check is the first part of each guarded script. The last argument is the
// number of fences, which are the last keys and the arguments before it. All
// are compared before one is recorded.
const check = `local n = tonumber(ARGV[#ARGV])
local k, a = #KEYS - n, #ARGV - 1 - n
for i = 1, n do
  local highest = redis.call('GET', KEYS[k + i])
  if highest and tonumber(highest) > tonumber(ARGV[a + i]) then
    return redis.error_reply('STALEFENCE ' .. (i - 1))
  end
end
for i = 1, n do redis.call('SET', KEYS[k + i], ARGV[a + i]) end
`

// guarded returns the script behind the check. The script sees its own keys and
// arguments only.
func guarded(script string) string {
	return check + `local keys, args = {}, {}
for i = 1, k do keys[i] = KEYS[i] end
for i = 1, a do args[i] = ARGV[i] end
return (function(KEYS, ARGV)
` + script + `
end)(keys, args)`
}

// staleLease returns the index of the lease whose fence the check refused.
func staleLease(err error) (n int, stale bool) {
	if err == nil {
		return 0, false
	}
	_, err = fmt.Sscanf(err.Error(), "STALEFENCE %d", &n)
	return n, err == nil
}

// refuseRing returns an error for a Ring, which sends the keys of a shard that does
// not answer to another shard, which has seen no fence (G2).
func refuseRing(client goredis.UniversalClient) error {
	if _, ring := client.(*goredis.Ring); ring {
		return fmt.Errorf("redisguard: a Ring moves keys between servers without their fences; use a client of one server or of a Redis Cluster: %w", lock.ErrUnsupported)
	}
	return nil
}

// hashTag returns the tag that puts the fences into the hash slot of the first
// key, or "" for a client that is not of a Redis Cluster. No tag contains "}", so
// that no fence can join a key with a "}" and without a tag of its own.
func hashTag(client goredis.UniversalClient, keys []string) (string, error) {
	if _, cluster := client.(*goredis.ClusterClient); !cluster || len(keys) == 0 {
		return "", nil
	}
	if _, rest, found := strings.Cut(keys[0], "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag, nil
		}
	}
	if strings.Contains(keys[0], "}") {
		return "", fmt.Errorf(`redisguard: on a Redis Cluster the key %.80q needs a hash tag such as "{tag}", because it contains a "}": %w`, keys[0], lock.ErrInvalid)
	}
	return keys[0], nil
}

// fenceKey returns the key of a fence.
func fenceKey(tag, id string) string {
	if tag == "" {
		return "mega:fence:" + id
	}
	return "mega:fence:{" + tag + "}:" + id
}

// Fences is a [guard.Store] in Redis, for guard.Handler and guard.Middleware.
// Outside a Redis Cluster it shares its fences with [Redis]. Its methods return
// lock.ErrUnsupported for a *redis.Ring.
type Fences struct{ Client goredis.UniversalClient }

// advance reports whether the fence is at least the greatest one seen, and
// records it.
const advance = `local highest = redis.call('GET', KEYS[1])
if highest and tonumber(highest) > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1`

// Advance implements [guard.Store].
func (f Fences) Advance(ctx context.Context, key string, fence uint64) (bool, error) {
	if err := refuseRing(f.Client); err != nil {
		return false, err
	}
	if fence >= 1<<53 { // L2; the numbers of the script are exact below
		return false, fmt.Errorf("redisguard: the fence %d is not below 2^53: %w", fence, lock.ErrInvalid)
	}
	return goredis.NewScript(advance).Run(ctx, f.Client, []string{fenceKey("", key)}, fence).Bool()
}

// Reset deletes the fence of a plain key, so that the next write passes with
// any fence. Call it only when no earlier holder can write any more.
func (f Fences) Reset(ctx context.Context, key string) error {
	if err := refuseRing(f.Client); err != nil {
		return err
	}
	if err := f.Client.Del(ctx, fenceKey("", url.PathEscape(key))).Err(); err != nil {
		return fmt.Errorf("redisguard: reset %q: %w", key, err)
	}
	return nil
}
