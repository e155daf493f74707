package locktest

// Rule is a line of the contract of locks.
type Rule struct {
	ID       string // "L5"
	Sentence string
}

// Rules is the contract, in order. Every driver keeps all of it, but for what
// its Info says that it lacks.
func Rules() []Rule { return append([]Rule(nil), rules...) }

var rules = []Rule{
	{"L1", "At any instant at most one lease (n under Slots(n); a shrunk pool drains) of a key is live in the driver's scope, as long as the backend keeps what it acknowledged."},
	{"L2", "Fences of a key grow strictly in the order of its grants: over release, expiry, force, driver restart, loss of all data, failover to a stale replica. They are at least the microseconds since 1970. Renewal and retry do not change a fence."},
	{"L3", "Ownership is the token. A stale lease can neither release, extend nor disturb its successor."},
	{"L4", "A lease lost by time ends its Context before anyone else can be granted, while its process runs: its deadline is counted from before the request was sent. A lease taken away ends by push, at the latest at its next renewal. The cause is ErrLost; With returns ErrLost joined to fn's error, even where fn returned nil."},
	{"L5", "Release uses a bounded context of its own: a cancelled request still releases, a hung backend does not hang the caller; what could not be released is retried in the background until its TTL has passed. The first Release that finds the lease gone says ErrLost; any later call is a no-op. A renewal in flight never resurrects a released lease."},
	{"L6", "Every operation is idempotent by token: a reply lost on the wire and sent again never makes a holder lock itself out, double-counts a slot, or leaves a ghost: cleaning up an unknown outcome bars the token."},
	{"L7", "Waiting is first come, first served. With FIFO() the order is strict across processes; without, up to 16 waiters of one process may be served in a row, within 100 ms of the remote grant. Nobody starves."},
	{"L8", "A waiter that gives up (context, Wait, crash) leaves no trace. k dead waiters together cost the next one at most one grant window (2s)."},
	{"L9", "Waiting costs nothing: no polling. Wake-up is pushed; a lost push is repaired by a bounded, jittered check."},
	{"L10", "One process has at most one remote waiter per key, except under FIFO(), and a fixed number of connections, whatever its number of goroutines."},
	{"L11", "fn's panic or Goexit releases, and the panic goes on."},
	{"L12", "A renewal that fails is tried again until the local deadline; only then is the lease lost."},
	{"L13", "Taking a key again that a live lease of the same Locker holds on the same context chain fails at once with ErrDeadlock (pools excepted)."},
	{"L14", "Keys: 1 to 512 bytes, valid UTF-8, no white space or control characters; anything else is ErrInvalid before any I/O. Odd but legal keys work and never meet. TTL 100ms to 24h, Wait >= 0, Slots 1..4096, Label <= 128 bytes."},
	{"L15", "The size of a pool is that of the newest request; a shrunk pool drains; a differing size is told once with both values."},
	{"L16", "ForceRelease needs a reason, frees every slot, ends the holders' contexts with cause forced (reason and by whom within), keeps the queue and serves it."},
	{"L17", "Close refuses new work (ErrClosed), ends waiters, lets holders finish until its context ends, then ends their contexts (cause shutdown). Each is released when its fn has returned or Release was called; what has not by then is left to its TTL, unrenewed. Idempotent."},
	{"L18", "Nothing leaks: after many leases, cancelled waits and failures the counts of goroutines, timers, map entries and connections are back."},
	{"L19", "The lease lives on the context given: its values, deadline and end carry over to Context. With keeps renewing until fn has returned. A lease from Acquire whose context has ended, or that was garbage collected, stops renewing, is released and told with its call site."},
}

func sentence(id string) string {
	for _, r := range rules {
		if r.ID == id {
			return r.Sentence
		}
	}
	return ""
}
