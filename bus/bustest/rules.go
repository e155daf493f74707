package bustest

// Rule is a line of the contract of the bus.
type Rule struct {
	ID       string // "S5"
	Sentence string
}

// Rules is the contract, in order. Every driver keeps all of it, but for what
// its Info says that it lacks.
func Rules() []Rule { return append([]Rule(nil), rules...) }

var rules = []Rule{
	{"S1", "Subjects: 1..32 tokens, at most 255 bytes, printable ASCII without space . * > inside tokens; literal when publishing or requesting; * and > only as whole tokens, > last; a first character $ or _ is reserved. Else ErrBadSubject, never a disconnect."},
	{"S2", "* matches exactly one token, > one or more; case counts."},
	{"S3", "Events and requests never meet: Publish reaches Subscribe, Request reaches Respond, and a tap on > neither answers nor hides a missing responder."},
	{"S4", "At most once per subscription; within a group at most one member. Never silently."},
	{"S5", "If Publish A returned before Publish B was called on one Bus, a subscription of concurrency 1 starts A's handler before B's, across all subjects that its pattern matches. OrderBy keeps this per key at any concurrency."},
	{"S6", "Publish means accepted: bytes copied, queued; it never waits for a handler. It may wait for room outbound until ctx ends: ErrOverloaded beside ctx's error. With an ended ctx nothing is published."},
	{"S7", "Subscribe means active: whatever is published after its return on this bus is delivered."},
	{"S8", "Stop means stopped: no handler starts afterwards; one in flight may finish; what was queued is discarded and counted. Safe inside its own handler. The end of ctx is Stop. Sub.Drain ends interest, runs what is queued, joins, bounded by ctx."},
	{"S9", "Msg and its Data are read-only, may be kept; one copy per publish serves all local subscribers."},
	{"S10", "Overflow is per subscription, in messages and bytes, drops the newest by default (or the oldest, or ends the subscription: ErrTerminated). Each drop is counted, told to a rate-limited hook, and the next delivered message carries Missed. No policy blocks a publisher, a hub or a reader."},
	{"S11", "A group is (pattern, name). A message is routed to exactly one member that the backend believes connected; no starvation; a stopped or draining member is not chosen."},
	{"S12", "A request always has a deadline, passed on as the remaining budget. Outcomes: reply; ErrNoResponders (fast); ErrTimeout; ctx's end; *RemoteError; code panic without a stack; ErrDisconnected when the responder died with it; ErrClosed. Late and second replies are dropped and counted."},
	{"S13", "Respond: one of a group answers, concurrency 64. Subscribe: no group, concurrency 1."},
	{"S14", "RequestMany ends by count, stall, deadline, end marker or break, and always unsubscribes."},
	{"S15", "A handler's error or panic never touches other subscribers or the publisher: one hook with subject, pattern, error (*PanicError with its stack); the subscription lives on."},
	{"S16", "Headers: keys HTTP tokens, case kept; values UTF-8 without CR, LF, NUL or edge white space; <= 64 keys, <= 8 KiB; Bus-*, Nats-* reserved; traceparent, tracestate and baggage travel by themselves. Else ErrBadHeader."},
	{"S17", "Payload with headers <= 1 MiB by default on every driver: *TooLargeError, connection intact."},
	{"S18", "Nil and empty payloads arrive empty, not nil."},
	{"S19", "A publisher receives its own messages where it is subscribed."},
	{"S20", "The handler's ctx carries trace and deadline; it is ended by Close, by the end of the drain window or by its request-scoped parent, not by the start of Drain."},
	{"S21", "Drain: refuse new subscriptions; end interest and confirm; run queued and in-flight handlers, which may still publish, request and reply; flush; close. Nil, or an error that lists the subscriptions with what was left. Idempotent."},
	{"S22", "After Close every call is ErrClosed at once; nothing is left running."},
	{"S23", "Disconnect: requests in flight fail at once (ErrDisconnected, retryable); publishes buffer up to a limit in bytes; subscriptions are back before buffered publishes are sent; each affected subscription is told Missed -1 once; retries for ever with jitter per attempt; the state is visible."},
	{"S24", "A message that expired before its handler started is dropped and counted."},
	{"S25", "The same errors on every driver, each with Code()."},
	{"S26", "Every call is legal inside any handler and under any lock that a handler may take too."},
}

func sentence(id string) string {
	for _, r := range rules {
		if r.ID == id {
			return r.Sentence
		}
	}
	return ""
}
