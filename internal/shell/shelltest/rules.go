// Package shelltest has the rules of docs/contract.md for commands under locks.
// The tests of package shell are their cases.
package shelltest

// Rule is a numbered promise of the verbs for scripts.
type Rule struct {
	ID       string
	Sentence string
}

// Rules returns the rules, in order.
func Rules() []Rule { return append([]Rule(nil), rules...) }

var rules = []Rule{
	{"X1", "CMD runs once, in a process group of its own, with MEGA_RUN_KEY, MEGA_RUN_FENCE, MEGA_RUN_SLOT and MEGA_RUN_TOKEN; stdin, stdout and stderr are the caller's."},
	{"X2", "The exit status is the command's (128+n for signal n); 75 not acquired, 69 backend unavailable or --init failed, 64 usage, 70 lease lost, 126 and 127 for a command that cannot be started or does not exist."},
	{"X3", "INT, TERM, HUP, QUIT, USR1, USR2 and WINCH go to the group. If mega is in the foreground of a terminal and not in a pipe, the group becomes the terminal's foreground group, in a pipe when it first needs the terminal; mega takes the terminal back when the group stops or ends. Ctrl-Z stops the group, then mega; the lease is kept."},
	{"X4", "A helper process in a session of its own holds the lease, renews it and enforces its end, also while mega itself is stopped: TERM to the group at deadline - grace, KILL at the deadline, so that the group is dead before anyone else can be granted. TERM, once sent, is final; the status is 70. A force ends the group at once, and others may be granted meanwhile. Processes that left the group are not covered. A ttl below 2 × grace + 1 s is a usage error."},
	{"X5", "If mega is killed, the helper kills the group when its pipe from mega closes. If the helper is killed, mega kills the group. If both are, nothing is promised."},
	{"X6", "acquire needs --for PID or --max D. A detached process keeps the lease until release, until the process --for has ended, until --max has passed, or until the lease is lost. It closes all inherited descriptors. The lease file is 0600 in the runtime folder."},
	{"X7", "Without --url and --socket: the socket of this user. A script never becomes the hub: it starts one process per user, detached, which exits 10 s after its last client, and not while a grant of a limit counts. A stopped mega delays nobody but waiters for its own key: by at most its TTL while its command has not begun, and no longer than its command runs."},
	{"X8", "Waiting is no polling. A signal that ends the wait leaves nothing in the queue."},
	{"X9", "--init and --cleanup follow P1 to P8."},
}
