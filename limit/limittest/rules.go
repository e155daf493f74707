package limittest

// Rule is one rule of the contract of limits.
type Rule struct {
	ID       string // "W5"
	Sentence string
}

// Rules returns the rules of the contract, in order. Every driver keeps all of
// them, except the rules in the Lacks of its Info.
func Rules() []Rule { return append([]Rule(nil), rules...) }

var rules = []Rule{
	{"W1", "In any interval of length Per (half open, on the backend's clock, while it does not step) at most N units are granted per rate, less what was settled back, whatever the callers' clocks, number and crashes, as long as the backend keeps what it acknowledged (except under Outage Open or Share). Not a token bucket: a bucket lets almost 2N through one window. A log of grants belongs to a key and a Per, with the Slack in it."},
	{"W2", "Exact for N <= 128. Above, grant times are rounded up to Per/128: never more than N, at most 1/128 less."},
	{"W3", "All rates of a call allow, or nothing is consumed. A refusal consumes nothing."},
	{"W4", "Cost 1 to the smallest N; more is ErrInvalid before any I/O. Allow with cost 0 consumes nothing and reports whether one unit would be allowed."},
	{"W5", "Waiting is first come, first served within a process; between processes one waiter per ticket in turn (one ticket per process and key). No polling loop: the answer says when to ask again (0.7 of the estimated wait, 3 ms to 1 s, the last stretch exactly; 1 ms where only a ticket ahead is due). Allow does not overtake tickets. A permit is never early."},
	{"W6", "What the backend already knows to be too late (MaxWait, ctx's deadline) is refused at once with RetryAfter, the rest at its deadline; neither consumes anything."},
	{"W7", "Settle below the cost, and Cancel, return units of their own window to later callers. Settle above the cost is a debt at the time of the Settle, which delays later grants. A waiter that gives up costs nothing; a ticket is dead when it has not asked for 1 s after its time; dead tickets cost the others at most 2 s together."},
	{"W8", "The same key with another N counts from the next call on, in both directions, without a free window and without a lock-out."},
	{"W9", "An unknown outcome counts as consumed; asking again with the same ticket is the same request."},
	{"W10", "When the backend's clock steps back by s, the latest time in the log is \"now\", and goes on from there: callers wait at most min(s, Per) longer. A step forward grants at most one window early."},
	{"W11", "Outage. Closed: ErrUnavailable within 1 s. Open, Share: allowed with Degraded (Share: floor(f × N) per process, at least 1), counted, logged once per outage, ended by the first answer. Never silent."},
	{"W12", "A process that was told \"not before t\" refuses equal or larger costs under the same Limit locally until t, for at most 1 s without asking again, in a bounded map; Reset, Settle and Cancel of this process clear it."},
	{"W13", "Pause(d) refuses everybody until then; the longest pause wins; Reset lifts it."},
	{"W14", "Peek, Inspect and List show per rate: used, remaining, next free; and for the key: its waiters (one line per process), and by whom and why it is paused. They change nothing."},
	{"W15", "Per 10 ms to 31 d, N 1 to 10^9, keys as L14. One driver call per call for the rates, for any number of them, and one more for Concurrent (which needs Config.Locker, else ErrUnsupported, and Wait or With: a Result cannot hold a slot)."},
	{"W16", "Concurrent: the slot is taken first, then the rate; the slot is given back if the rate refuses, and by `With` when its function has returned."},
}
