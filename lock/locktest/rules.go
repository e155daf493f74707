package locktest

// Rule is one rule of the contract of locks.
type Rule struct {
	ID       string // "L5"
	Sentence string
}

// Rules returns the rules of the contract, in order. Every driver keeps all of
// them, except the rules in the Lacks of its Info.
func Rules() []Rule { return append([]Rule(nil), rules...) }

var rules = []Rule{
	{"L1", "At any instant at most one lease of a key is live in the driver's scope (n under Slots(n); a pool that shrinks drains), as long as the backend keeps what it acknowledged and its clock does not jump ahead by more than the margin."},
	{"L2", "Fences of a key grow strictly in the order of its grants: across release, expiry, force, driver restart, FLUSHALL, failover to a stale replica, hub take-over, and a backend clock that steps back while a lease is held or later, however long the lease was held. One scale on all drivers: max(last + reserved, microseconds since 1970). Renewal and retry do not change a fence. Assumption: when stored data is lost, all or the newest part, the server's clock is not behind the old one's by more than the outage lasted."},
	{"L3", "Ownership is the token. A stale lease cannot release, extend or disturb its successor."},
	{"L4", "A lease that is lost by time (expiry, partition, stalled renewal, suspended machine) ends its Context before anyone else can be granted, while its process runs: at the local deadline, independently of any call in flight. A force ends it by push. What the backend has lost (FLUSHALL, eviction, failover, restart) is found within 1 s after a reconnect that the driver sees, else at the next renewal (TTL/3, at most 10 s). A process that was stopped notices first when it continues. The cause is ErrLost; With returns ErrLost joined to fn's error, also where fn returned nil."},
	{"L5", "Release uses its own context (1 s): a cancelled request still releases; an unresponsive backend does not block the caller for longer. A release that fails is retried in the background until the TTL has passed (at most 65 536 wait; more are left to their TTL and counted), and is not With's error. The first Release of a lease that was taken away or has expired returns ErrLost (and still sends); any later call returns nil. \"Not found\" counts as released where a copy of the release may have been executed or the backend has changed (hub take-over, failover): finished work is never answered with ErrLost because of that. A renewal in flight never revives a released lease."},
	{"L6", "Every operation is idempotent by token. A reply that is lost and a request that is repeated never lock the holder out, count a slot twice, or leave a lease without a holder. Clean-up after an unknown outcome bars the token, so that a late copy of its acquire is refused."},
	{"L7", "Waiting is first come, first served. With FIFO() (or lock.fifo) the order is strict across processes; without it up to 16 waiters of one process may be served in a row, within 100 ms of the backend's grant, its newcomers included. TryAcquire and newcomers of other processes do not overtake waiters. Silence counts against a waiter only for time in which the backend executed somebody's call; after a gap everybody has one heartbeat (< 1 s). Nobody starves."},
	{"L8", "A waiter that gives up or dies leaves no trace: it delays the next one by at most 2 s from when the key is free (nothing, where the backend sees the closed connection), and is out of the queue, of Inspect and of List within 10 s. k dead waiters cost the backend O(k) in total, at most 128 per call."},
	{"L9", "Waiting costs nothing: no polling. Wake-up is pushed; a lost push is repaired by a bounded, jittered check (on a healthy backend fewer than 2 of 1 000 hand-overs need it)."},
	{"L10", "A process has at most one ticket per key at the backend (except under FIFO()), a fixed number of connections, and a bounded number of goroutines, whatever its number of callers, also during an outage: clean-up of failed calls is one bounded background job per Locker. A key has at most 10 000 tickets; more are ErrNotAcquired with code lock.queue_full."},
	{"L11", "A panic or Goexit in fn releases the lease; the panic continues."},
	{"L12", "A failed renewal is retried until the local deadline, also after a refusal; only then is the lease lost. Extend sets the TTL in both directions on the backend: after Extend(d), others wait at most d after a crash. Each Extend raises a number beside the token, renewals present it, and the backend ignores an older one: a late copy neither shortens nor lengthens. A renewal repairs a backend TTL that a clock step has lengthened."},
	{"L13", "Acquiring a key that a live lease of the same Locker holds on the same context chain returns ErrDeadlock at once (pools excepted)."},
	{"L14", "Keys: 1 to 512 bytes, valid UTF-8, no white space, control or invisible format characters (Unicode Z*, Cc, Cf); not normalised; else ErrInvalid before any I/O. Odd but legal keys (\"{}\", \"a}{b\", \":\", \"*\", \"%7B\") work and never collide. TTL 100 ms to 24 h, Wait >= 0, Slots 1 to 4096, Label <= 128 bytes without control characters; a nil fn is ErrInvalid."},
	{"L15", "The size of a pool is that of the newest request (FixedSlots refuses instead); a pool that shrinks drains; a different size is reported with both values (log and metric, once per process, key and pair of sizes, and at most once a minute). The size is kept as long as a slot is held or waited for."},
	{"L16", "ForceRelease needs a reason, frees every slot (or one: `OnlySlot(n)`), ends the holders' contexts with cause forced (reason and author inside), keeps the queue and serves it. It refuses a value at the key that is not a lease."},
	{"L17", "Close refuses new work (ErrClosed), ends waiters, lets holders finish until its context ends, then ends their contexts (cause shutdown). Each lease is released when its fn returned or Release was called; what was not is left to its TTL. Idempotent."},
	{"L18", "Nothing leaks: after 10⁵ leases, cancelled waits and failures the numbers of goroutines, timers, map entries, connections and, after 60 s, backend keys are back."},
	{"L19", "The lease lives on the context given (as sql.BeginTx): its values, deadline and cancellation carry over. With renews until fn has returned. A lease from Acquire whose context has ended, or that was garbage collected, is released and logged with its call site; so is one from ctx.Lock that is still held when the handler has returned."},
	{"L20", "Wait bounds the time in the queue, and nothing else. A free key on a healthy backend is granted whatever Wait is; the first request has its own bound (1 s)."},
	{"L21", "Busy and broken are not confused. ErrNotAcquired only if the backend has confirmed within the last 2 s that the key is busy or the caller's place in the queue; its Holders (none, if only waiters are ahead) carry slot, fence and time left. ErrUnavailable, with the cause, if the backend did not answer, refused, is full, is read-only, or is moving the slot. A permanent refusal (credentials, permissions) fails new calls at once, at boot too. Loss and return of the backend are one log line each, a gauge, and `degraded` in /readyz (503 only with lock.require or bus.require set)."},
	{"L22", "A grant that the front cannot use (its waiter has gone, its deadline has passed) is given back at once."},
	{"L23", "List and Inspect do not change the backend, skip data that is not a lock, and name what they skipped. They never delay heartbeats, renewals or wake-ups."},
	{"L24", "Stored and sent formats carry a version. The previous minor version works beside this one on the same redis or hub; others get ErrUnavailable that names both. `lock.namespace` separates environments on one server (default none, shown at boot)."},
}

func sentence(id string) string {
	for _, r := range rules {
		if r.ID == id {
			return r.Sentence
		}
	}
	return ""
}
