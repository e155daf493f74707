// Package redisguard makes Redis check the fences of leases: a script that
// writes runs together with the check, in one atomic step.
//
//	err := locker.With(ctx, "cart:7", func(ctx context.Context) error {
//		_, err := redisguard.Redis(ctx, client, "return redis.call('SET', KEYS[1], ARGV[1])", []string{"cart:7"}, "…")
//		return err
//	})
//
// The fences are in keys of their own, mega:fence:<percent-encoded key>, which
// do not expire. A fence may be deleted when no earlier holder of its key can
// write any more; [Fences.Reset] does that. The server must not evict them
// either: set maxmemory-policy to noeviction or to one of the volatile policies.
// A failover to a replica that lacks the newest fences forgets them.
//
// In a Redis Cluster a script reaches one hash slot only. The fence of a lock is
// there in the slot of the script's first key, so keep all data of one lock
// under one hash tag, and give a script for several leases at least one key. A
// redis.Ring is refused: it moves the keys of a shard that does not answer to
// another shard, which has not seen their fences.
//
// A script that must not run twice, such as one with INCR, needs a client whose
// MaxRetries is -1: see [Redis].
//
// See package guard for the rules of all guards.
package redisguard
