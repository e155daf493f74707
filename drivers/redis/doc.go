// Package redis keeps locks and limits in Redis: one server, the master of a
// Sentinel set, or a Cluster.
//
//	d, err := redis.OpenLock(ctx, redis.Config{URL: "redis://localhost:6379"})
//	if err != nil {
//		return err
//	}
//	locks, err := lock.New(d, lock.Config{})
//
// There are two engines. [EngineQueue], the default, queues in Redis and wakes
// waiters by pushes. [EngineRedislock] obtains locks with github.com/bsm/redislock
// and polls. It is for a Redis without pub/sub, and a first step in a fleet whose
// other services use redislock. On one key both engines and plain redislock clients
// exclude each other.
//
// [OpenLimit] returns a driver of limits with the same configuration.
//
// # Data
//
// A lock has five keys, named by [Config.Key] and, for the key k, by default:
//
//	mega:{k}         string  the lease of slot 0, in words; expires with the lease
//	mega:{k}:state   hash    ticket -> "3 span slots tail"; !token -> why it is barred;
//	                         pool -> "3 size top", s<slot> -> lease, h<token> -> slot,
//	                         told -> the head of a pool's queue and the time in its last hint
//	mega:{k}:order   zset    ticket -> number: server time in µs when it was first queued
//	mega:{k}:due     zset    ticket or !token -> when it is removed, in ms
//	mega:{k}:slots   zset    slot -> when its lease ends, in ms, or its number if it is free
//
// The words of a lease are: token, version, fence, span, number of changes of its
// TTL with marks, inbox of the process, and of its holder since when (in µs), pid,
// worker, host, app, label and request. Empty ones are '-', or missing at the end:
//
//	s8Kf0YbLq3Zt1mWc7RxEaD 3 1795189625145255 1 0 4QF7XJ2MZK3TB 1795189625144871 4121 2 node-1 web nightly
//
// A ticket is the token of a request that waits. A token is barred for a minute, and
// a late copy of its acquire refused, if the acquire may have been sent twice, if the
// release arrived first, or if the lease was taken away. All keys except the first
// expire half a minute to a minute after their use. The holder key has the form of
// redislock's, so that each side sees the locks of the other as held.
//
// A pool whose slots have states has "3 size top rest" instead, and a record
// r<slot> of each slot: the token of its holder, why it is dirty, since when and by
// which process, its last holder, note, strikes, and the reason of a withdrawal. The
// number of a slot in the last key is its state: free, dirty, withdrawn, held until
// then, or resting until then. The script that ends a lease changes both. The lease of
// slot 0 can expire without a call; the next call changes them then. These keys stay
// for about a minute after the last lease and the last rest, and for as long as a slot
// is withdrawn. slots.lua describes them.
//
// A lock with runs (Once and Every) has one more key, mega:{k}:run: a string with the
// last run and the newest spent tick, in words, which run.lua describes. It expires a
// day and two intervals after the run has begun or ended.
//
// Beside the locks there is the clock mark, mega:{}:clock: the highest fence of all
// grants. It never expires, so that fences grow while the server's clock steps
// back. On a Cluster each hash slot has its own. See
// docs/adr/0013-five-keys-and-a-clock-mark.md.
//
// # Scripts
//
// Each operation is one script, and so one round trip:
//
//	acquire  grants a slot or queues a ticket
//	release  ends a grant or withdraws a ticket, and hands over to the next ticket
//	beat     is the heartbeat of many tickets, and returns their states
//	renew    renews the plain leases of many keys
//	confirm  renews leases of one key in any slot, or returns why they ended
//	force    takes the key, or one slot or grant of it, from its holders
//	heal     makes a resting or withdrawn slot dirty, so that it can be granted
//	inspect  reads, and writes nothing
//	run      begins and ends a run
//	stamp    writes fences into a grant that redislock has obtained
//
// The scripts that change one lock begin with the same repair: while a slot is free
// and the queue has a ticket, grant. So any call of any process repairs the lock after
// the crash of its holder or of the head of its queue. Acquire and release have fast
// paths before the repair, for a plain lock and its queue, and for the clean slot that
// a process had last. They apply if no repair is needed. On a Cluster, and on a server
// that requires it (Dragonfly), a call names every key that its script may touch. With
// other servers it names the holder key, and the script derives the others: that halves
// the bytes that a server has to parse.
//
// # Waiting
//
// A process subscribes to one channel, its inbox, when the driver opens: on a Cluster
// at any master, and at another one when that is lost or removed from the Cluster. A
// release publishes the grant to the inbox of the next ticket and writes it, in the same
// script. PUBLISH returns the number of receivers; if there is none, the ticket is
// removed, and the next heartbeat of a process that lives brings it back with its
// number. Subscribers at replicas are not in that number, so the push of a grant is not
// replicated. (On a Cluster PUBLISH returns no such number, and heartbeats alone show
// which tickets live.)
//
// A pushed grant lives for two seconds for any TTL, so that a dead waiter costs no
// more. A waiter may enter without another round trip. A push does not contain the
// time at which it was sent, but the grant is later than the last call that found
// the ticket queued: it is valid for two seconds from the sending of that call.
// The waiter asks the server first if less than half of that time is left, or if
// a copy of a call may have queued the ticket twice.
//
// One of the waiters reads the pushes of all, so that its own one wakes no other
// goroutine; without a waiter the goroutine of the subscription reads
// (docs/adr/0023-waiters-read-their-pushes.md).
//
// Every ticket has a heartbeat each 600 ms, give or take a fifth. One call is for up to
// 128 tickets, or on a Cluster for the tickets of one key. Heartbeats bound the delay
// after a missed push. A ticket without a heartbeat for two seconds is removed. After a
// time in which the server has executed no call about the lock, such as a stall, missing
// heartbeats remove no ticket for one more second. A ticket that the server has lost is
// queued again with its number. If a lease or the rest of a slot ends without a call
// before the next heartbeat, the heartbeat is sent at that time. Each answer to a ticket
// contains the time until then. A script that makes it sooner, or that brings another
// ticket to the head of a pool's queue, informs the head by a push.
//
// # Calls
//
// The client never repeats a command; the driver does, for driver.CallTimeout, because
// every script is idempotent by token. A call does not wait for the answers to other
// calls. Its caller writes the command to the connection that all calls share, together
// with the commands that others have added meanwhile, or leaves the write to callers
// that have just got their answers. One of the waiting callers reads the answers for
// all. A lone call so has no other goroutine to wake
// (docs/adr/0021-calls-share-a-stream.md). While there is no such connection, calls wait
// for the next one. The next one may lead to another server while the subscription stays
// at the old one, as in a failover away from a master that stands still. Before the first
// call on it every lease is due for a renewal, and the driver then checks the
// subscription by a push to itself.
//
// With [Config.Client] and on a Cluster, the calls that are made while others are in
// flight form one pipeline. There, leases and subscription are checked with the
// first answer after a connection of the client has ended, and when another master
// serves a key. The number of connections is fixed: one for calls, or two with
// pipelines, one for pushes, and one for the boot and for lists.
//
// # Limits
//
// A limit has four keys, and a log for each Per, all in one hash slot; every call
// names those that its script may touch:
//
//	mega:{k}:rate          hash    head -> "1 latest lead expires", pause -> "until JSON",
//	                               Per -> "N seen", and " last units" where grants are spaced
//	mega:{k}:rate:tickets  hash    ticket -> "w seq cost JSON" while it waits, "g seq cost at"
//	                               after its grant; change -> "s"
//	mega:{k}:rate:queue    zset    ticket -> number
//	mega:{k}:rate:due      zset    ticket or change -> when it is dead or forgotten
//	mega:{k}:rate:<Per>    zset    time of a grant -> units granted until then
//
// A change is the id of a settlement, a pause or a reset.
//
// All times are microseconds. Units in a window are the difference of two scores of
// a log, so that take, the decision, reads a few entries whatever N is: the last one,
// the first one of the window, and by its score the one that has to leave the window
// before more units fit. The usual case, a grant without waiters, has a fast path,
// limit_plain.lua. Above N = 128 the times are rounded up to Per/128, and a log has at
// most 131 entries, the first of which may have 0 units. The other scripts are withdraw,
// settle, pause, reset and inspect. take with a cost of 0 and inspect write nothing.
//
// The time of a key is the server's clock and a lead. After the clock has stepped
// back, the next call finds a time in the log or in the head that is later, and makes
// the lead as long. The times of grants, tickets and the pause stay comparable. W10
//
// A ticket keeps the record of its last grant for ten seconds, and the id of a change
// stays for a minute, so that a second copy has no effect. A request without a ticket has no record:
// if its answer is lost, the repetition may consume more units, and a refusal then is
// ErrUnavailable. W9
//
// The keys of a log and of the state expire Per and some seconds after the last
// grant. The keys of the tickets expire 15 seconds after their last use and a minute
// after the last change. A reset removes the fields of the state; a log without its
// field counts as empty.
//
// # Map
//
//	open.go       OpenLock: url.go and client.go, and the checks of the server in look.go
//	engine.go     what both engines share after a grant: renew.go, list.go, value.go
//	queue.go      the engine queue: heartbeat.go, inbox.go (pushes), withdraw.go, slots.go, run.go
//	polling.go    the engine redislock
//	claims.go     the requests and grants of this process: claim.go
//	caller.go     calls, their repetition and their errors (failure.go, reply.go)
//	server.go       to one server; cluster.go to a Cluster, moving.go while a hash slot is moved
//	script.go     the scripts; names.go and layout.go the keys that they get
//	limit.go      limits: limitscript.go, limitlist.go
//	mismatch.go   Diagnose: which other server answers
package redis
