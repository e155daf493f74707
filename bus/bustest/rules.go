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
	{"S1", "Subjects: 1 to 32 tokens, at most 255 bytes, printable ASCII without space; `.` separates tokens, `*` and `>` are wildcards; literal when publishing or requesting; a first character `$` or `_` is reserved. One validator in front of every driver: ErrBadSubject, never a disconnect."},
	{"S2", "`*` matches exactly one token, `>` one or more (only as the last token); case matters."},
	{"S3", "Events and requests are separate: Publish reaches Subscribe, Request reaches Respond; a subscription to `>` neither answers nor hides a missing responder."},
	{"S4", "At most once per subscription, and within a group at most one member. Never silently: a message that was accepted and not delivered is accounted for at its subscription (S10) or at its publisher (S28), while the publisher's process lives and the servers keep what they confirmed."},
	{"S5", "If Publish A returned before Publish B was called on one Bus, a subscription with concurrency 1 starts A's handler before B's, across all subjects that its pattern matches. OrderBy keeps this order per key at any concurrency."},
	{"S6", "Publish means accepted: the bytes are copied and queued. It never waits for a handler; it may wait for room in the outbound queue until ctx ends, at most 5 s where ctx has no deadline (ErrOverloaded joined to ctx's error, on every driver and in every connection state). With an ended ctx nothing is published."},
	{"S7", "Subscribe means active: everything published after its return on this bus is delivered. A subscription that the backend refuses, at once or later, is an error (S27), never inactive in silence. Propagation between servers of a NATS cluster is the backend's and is in `Info().Lacks`."},
	{"S8", "Stop means stopped: no handler starts afterwards; one that is running may finish; queued messages are discarded and counted. Stop is safe inside its own handler. The end of ctx is Stop. Sub.Drain ends the subscription, handles what is queued, and waits, bounded by ctx."},
	{"S9", "Msg and its data are read-only and may be kept; one copy per publish serves all local subscribers."},
	{"S10", "Overflow is per subscription, in messages and bytes (65 536; 64 MiB): drop the newest (default), drop the oldest, or end the subscription (ErrTerminated). Every drop is counted and reported to a rate-limited hook. `m.Missed` is the number of messages lost between the previous delivered message and this one, at the place where they were lost (-1: unknown number); adjacent marks merge (-1 absorbs) and take no room in the buffer. `OnGap(func(ctx, missed int) error)`, also for typed subscriptions, is a barrier at the same place, without waiting for a next message: it starts when the handlers of all earlier messages have returned, and no later one starts before it returns; if it fails it is called again (1 s to 1 min, merged with later gaps) while messages go on. A copy kept by \"refetch in OnGap, else apply\" is correct at rest with every policy. No policy blocks a publisher, a hub or a reader."},
	{"S11", "A group is (pattern, name). A message is routed to exactly one member that the backend believes connected; no starvation; a stopped or draining member is not chosen; members are told of gaps as others are."},
	{"S12", "A request always has a deadline (ctx's, else 5 s), passed on as the remaining time; a request from a foreign client gets the default. Outcomes: reply; ErrNoResponders (fast); ErrTimeout; ctx's end; *RemoteError{Code, Message, Retryable} (also for errors in the NATS services convention); code `panic` without a stack; ErrDisconnected when the responder or the connection died; ErrRefused; ErrClosed. Late and second replies are dropped and counted. Requests that have failed or whose caller has gone leave the outbound queue unsent."},
	{"S13", "Respond: one of a group answers, concurrency 64. Subscribe: no group, concurrency 1."},
	{"S14", "RequestMany ends by count, stall, deadline, end marker or break, always unsubscribes, and ends with ErrOverloaded at 65 536 unread answers or 64 MiB."},
	{"S15", "An error or panic of a handler never affects other subscribers or the publisher: one hook with subject, pattern, error (*PanicError with its stack); the subscription continues."},
	{"S16", "Headers: keys are HTTP tokens, case kept; values are UTF-8 without CR, LF, NUL or edge white space; <= 64 keys, <= 8 KiB; `Bus-*` and `Nats-*` are reserved; traceparent, tracestate and baggage travel by themselves; answers carry headers too. Else ErrBadHeader."},
	{"S17", "Payload with headers <= 1 MiB by default, or the backend's limit as it is now, also where it applies to an account: *TooLargeError, connection intact. No message ends the bus for good: a limit that the server never announced costs one reconnect, after which the largest unconfirmed size is the limit for that connection; the message is counted as lost and not sent again."},
	{"S18", "Nil and empty payloads arrive empty, not nil."},
	{"S19", "A publisher receives its own messages where it is subscribed."},
	{"S20", "The handler's ctx carries trace and deadline. Close, the end of the drain time, or its request-scoped parent end it; the start of Drain does not."},
	{"S21", "Drain: refuse new subscriptions; end interest and confirm; handle queued and running messages, which may still publish, request and reply; flush; close. Nil, or an error that lists the subscriptions with what was left and the number of accepted messages that were not confirmed. Idempotent. A hub that leaves in order accepts nothing new, delivers its queued messages to its clients within Drain's context, then closes (what is left is -1); clients keep their outbound queues for the next hub: a rolling restart loses nothing."},
	{"S22", "After Close every call is ErrClosed at once; nothing is left running."},
	{"S23", "Disconnect, for whatever reason, also when the server closed the connection for good: state, event, log line and gauge say so, /readyz is degraded (503 with bus.require); requests in flight fail at once (ErrDisconnected, retryable); publishes are queued up to a limit in bytes and survive the reconnect; subscriptions are active again before queued publishes are sent; each affected subscription gets -1 at its place; retries forever with jitter. A declared subscription (mega.Subscribe) that ended by policy or refusal is made again with back-off."},
	{"S24", "A message that expired before its handler started, or before it was sent, is dropped and counted."},
	{"S25", "The same errors on every driver: ErrBadSubject, ErrBadGroup, ErrBadHeader, *TooLargeError, ErrClosed, ErrDraining, ErrNoResponders, ErrTimeout, ErrOverloaded, ErrDisconnected, ErrRefused, ErrTerminated, ErrDecode, ErrCycle (32 hops), *RemoteError, *PanicError; each with Code()."},
	{"S26", "Every call is legal inside any handler and under any lock that a handler may take too. Close inside a handler does not wait for that handler."},
	{"S27", "Every refusal by the backend is reported: a denied or over-limit Subscribe or Respond is ErrRefused with the server's words, to the call that caused it, also when many are refused at once (a refusal that names no subject fails every Subscribe that is unconfirmed then); a permission that is revoked later ends the subscription with ErrTerminated; a denied Publish is an event and a counter, and Flush reports it; a denied Request fails at once. A permission that is granted later works without a restart."},
	{"S28", "Loss on the publisher's side is known. What the driver has not handed to its connection survives a cut and is sent once, after the reconnect. What was handed over and not confirmed may be lost; it is not sent again, is counted (an upper bound), and is reported as an event with messages and bytes. Each Flush reports any loss since the start of the last Flush that returned nil (ErrDisconnected)."},
	{"S29", "A slow link is back-pressure, not an outage: unconfirmed data is bounded to about what the link confirmed in the last second (64 KiB to 4 MiB), so that a liveness probe is not queued behind more; this side cuts a connection only when no byte has moved in either direction for 15 s."},
}
