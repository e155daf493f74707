// Package redis keeps locks in Redis: one server, the master of a Sentinel set,
// or a Cluster.
//
//	d, err := redis.OpenLock(ctx, redis.Config{URL: "redis://localhost:6379"})
//	if err != nil {
//		return err
//	}
//	locks, err := lock.New(d, lock.Config{})
//
// There are two engines. [EngineQueue], the default, queues in Redis and wakes
// waiters by pushes. [EngineRedislock] obtains with github.com/bsm/redislock and
// polls: for a Redis without pub/sub, and as a first step in a fleet whose other
// services use redislock. On one key both engines and plain redislock clients
// exclude each other.
//
// # Data
//
// A lock is eight keys, named by [Config.Key] and, for the key k, by default:
//
//	mega:{k}          string  who holds slot 0: token, and JSON from '{' on; expires with the lease
//	mega:{k}:fence    string  the highest fence that was given
//	mega:{k}:queue    zset    ticket -> number: server time in µs when it was first queued
//	mega:{k}:tickets  hash    ticket -> "version beat span slots tail"
//	mega:{k}:forced   hash    token -> why it was taken away; id of a force -> what it has done
//	mega:{k}:pool     hash    size, top; slot -> holder, token -> slot for the slots from 1 on
//	mega:{k}:until    zset    slot -> when its lease ends, in ms
//	mega:{k}:free     zset    the numbers of slots that were given back
//
// beside which a token whose acquire may have been sent twice, or was released
// before it came, leaves for a while
//
//	mega:{k}:barred:<token>   so that a copy of its acquire is refused if it comes late
//
// A ticket is the token of a request that waits. All but the first expire by
// themselves a minute after they were of use, or five, as long as the delay of a
// call that they guard against. The holder key has the form that redislock uses,
// so that its clients see a held lock, and we see theirs.
//
// # Scripts
//
// Each operation is one script, and so one round trip:
//
//	acquire  grants, or else queues: the failing try is the enqueueing
//	release  ends a grant or withdraws a ticket, and hands over to the next
//	beat     says of many tickets that somebody still waits, and hears what became of them
//	renew    prolongs the plain leases of many keys
//	confirm  prolongs leases of one key, whatever their slot, or says why they are gone
//	force    takes the key from its holders
//	inspect  looks
//	stamp    gives what redislock has obtained its fences
//
// Those on one lock begin with the same repair: while a slot is free and
// somebody is queued, grant. So every call by anyone mends a crashed holder or a
// dead head of the queue. On a Cluster a call names every key that its script may
// touch: while a slot is moved, that is what makes it answer TRYAGAIN instead of
// showing half a lock. Elsewhere it names the holder key, and the script makes
// the others of it: that halves what a server has to take apart.
//
// # Waiting
//
// A process subscribes to one channel, its inbox, when the driver opens.
// Whoever releases a lock publishes the grant to the inbox of the next ticket and
// writes it, in the same script. PUBLISH says how many have heard it; if nobody
// has, the ticket is passed over and keeps its place. (In a Cluster it does not
// say, and the beats alone tell the dead from the living.)
//
// A pushed grant lives for two seconds whatever its TTL, so that a waiter who
// died costs no more. Its waiter may enter without another round trip: a push
// says nothing about when it was sent, but the grant came after the last call
// that found the ticket queued, so two seconds from the sending of that call are
// sure. Where less than half of that is left, or where a copy of a call may have
// queued the ticket twice, it asks first.
//
// Every ticket is beaten each 600 ms, give or take a fifth, all in one call. That
// is the bound for everything that a push may miss. A ticket that was not beaten
// for two seconds is passed over, after a minute it is removed; one that the
// server has lost is queued again with its number.
//
// # Calls
//
// A client never sends again by itself; the driver does, for as long as
// driver.CallTimeout, because it knows that every script is idempotent by token.
// A call that comes alone is written and read by its caller's goroutine. What
// comes while another is in flight gathers and goes as one pipeline. The number
// of connections is fixed: four to a server, and a fifth while something is
// listed.
package redis
