// Package driver is the boundary between package bus and its backends: what a
// message backend implements, and the words both sides share.
//
// Users of the bus need this package only to name an error or an [Info];
// package bus has an alias for each. Authors of drivers start here, and prove
// their work with package bustest.
//
// A driver carries messages and reports honestly. It does not validate
// subjects or headers, apply defaults, queue behind a subscription, run
// handlers, match answers to requests, count, log or wrap error texts: the
// front does each of these once, for every driver. What is left is little on
// purpose: to route, to say when a subscription is in effect, and to say what
// was lost.
//
// # Three kinds of message
//
// Events go to the subscriptions of kind [Event] whose pattern matches,
// requests to those of kind [Request], and an answer goes back to the driver
// that sent the request. The kinds never meet, whatever the subject. In each
// kind a message reaches every matching subscription without a group, and one
// member of every matching group, where a group is a pattern and a name: the
// same name under two patterns is two groups.
//
// # What a driver may rely on
//
// Subjects, patterns, groups and headers were checked by the front. Data and
// headers are immutable from the moment they are handed over, in both
// directions; a driver that delivers inside the process passes them on as they
// are. [Sink] and
// [Front] never block, whoever calls them, and never call the driver back from
// within. Subscribe, Interest.End, Flush and Close are given a context with a
// deadline.
//
// # What a driver must keep
//
// Its methods may be called concurrently, also from within a handler. An error
// that is neither a context's nor one of this package's is taken for
// [ErrDisconnected].
//
// Order: if Publish of one message has returned before Publish of another was
// called, every Sink that gets both gets them in this order.
//
// It delivers a message at most once to a Sink, and it never waits for one: a
// Sink takes what it is given or counts it as dropped.
//
// Size: a backend has a limit of its own, which may change with a reload or a
// reconnect. The driver checks each message with [Message.CheckSize] against
// the limit as it is now, and keeps its connection (S17).
//
// Room: Publish, Request and Answer wait for room in the outbound queue alike on
// every driver and in every state of the connection: until the context ends
// that [RoomContext] makes of theirs. Then they return an error that wraps
// ErrOverloaded and that context's error, and nothing is sent (S6).
//
// Unsent messages: an event whose Deadline has passed before it was handed to
// the connection is not sent, and is reported as Expired (S24). A queued request
// is dropped in silence when its ctx has ended, when its Deadline has passed,
// and with Disconnected: by then the front has ended the call (S12).
//
// An outage is reported in this order (S10, S23): Disconnected to the Front;
// Gap(-1) once to each Sink, before the first message that arrives again; and
// Connected, once every subscription is in effect. The front starts no repair of
// a gap before Connected.
package driver

import (
	"context"
	"fmt"
	"time"
)

// CallTimeout bounds the calls that wait for the backend's word: Subscribe,
// Interest.End and Close.
const CallTimeout = 5 * time.Second

// RoomTimeout bounds the wait for room in the outbound queue under a context
// without a deadline.
const RoomTimeout = 5 * time.Second

// RoomContext returns the context that bounds the wait of m for room in the
// outbound queue: ctx, for at most RoomTimeout if it has no deadline, and for a
// request until its Deadline at most. A driver makes it when it has to wait, and
// not for every message. cancel frees its timer.
func RoomContext(ctx context.Context, m *Message) (bounded context.Context, cancel context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(RoomTimeout) // S6
	}
	if m.Kind == Request && !m.Deadline.IsZero() && m.Deadline.Before(end) {
		end = m.Deadline
	}
	return context.WithDeadline(ctx, end)
}

// Driver carries messages between the fronts in its scope.
type Driver interface {
	// Info describes the driver. It does no I/O. Of what it returns MaxPayload
	// alone may change while the driver is open.
	Info() Info

	// Attach is called once, before any other method but Info: f is told what
	// concerns no subscription in particular. A driver that is not connected
	// says so to f before it returns.
	Attach(f Front) error

	// Publish accepts an event: it is handed to the connection, or in the
	// outbound queue, also while the backend cannot be reached. It never waits
	// for a subscriber, and for room as the package says.
	Publish(ctx context.Context, m Message) error

	// Request sends a request, whose ID is the front's: it is never used for a
	// second one on this driver. The outcome is reported to the Front, also from
	// within the call. An error means that it was not sent, and then nothing is
	// reported.
	//
	// ctx is that of the whole call and not only of this one: a driver that
	// queues the request keeps ctx until it has handed the request to its
	// connection, and drops the request unsent if ctx has ended by then.
	//
	// If no subscription of the kind matches, it returns an error that wraps
	// ErrNoResponders, or the Front is told so promptly. While the backend
	// cannot be reached it returns an error that wraps ErrDisconnected:
	// requests are not buffered.
	Request(ctx context.Context, m Message) error

	// Answer sends an answer to a request that a Sink was given. It may be
	// called several times for one request, and waits for room as Publish
	// does. That the asker is gone is no error.
	Answer(ctx context.Context, request, answer Message) error

	// Subscribe makes s active: what is published or requested through this
	// driver after it has returned reaches s.Sink. The subscription stands
	// until its Interest is ended, over any number of reconnects: it is active
	// again before anything that was buffered meanwhile is sent.
	Subscribe(ctx context.Context, s Subscription) (Interest, error)

	// Flush returns when everything accepted before has been taken over by the
	// backend.
	Flush(ctx context.Context) error

	// Close ends all interest and frees what the driver holds of its process:
	// connections, goroutines, timers. Once it has returned, no Sink and no
	// Front is called again, but by a call that is still under way. What is
	// buffered is sent if that is possible until ctx ends. It is idempotent.
	Close(ctx context.Context) error
}

// Interest is an active subscription.
type Interest interface {
	// End ends it. Once it has returned nil, nothing that is published from
	// then on is routed to the subscription, and what had been routed to it
	// was given to its Sink; a message that was being published meanwhile may
	// still be offered to the Sink, which refuses it. If that is not known
	// when ctx ends, End returns an error that wraps ctx's; the interest ends
	// all the same, as soon as the backend can be told.
	//
	// It is idempotent. While the backend cannot be reached it returns nil at
	// once: the subscription is not renewed.
	End(ctx context.Context) error
}

// Subscription is what a front is interested in.
type Subscription struct {
	Kind    Kind // Event or Request
	Pattern string
	// Group is the name under which the subscriptions with this very pattern
	// share the messages; "" is to get every one.
	Group string
	Sink  Sink
}

// Sink is where the messages of a subscription go: a bounded queue of the
// front. Its methods may be called from several goroutines at once.
type Sink interface {
	// Deliver hands over a message. It returns false if the subscription takes
	// no more messages: where the driver can choose another member of the
	// group, it must. A full queue is no such case, since the front counts and
	// tells the loss.
	Deliver(m Message) bool

	// Gap reports that messages were lost between the last one that was
	// delivered and the next one: how many, or -1 if that is not known. The
	// front keeps the place. After an outage Gap(-1) is called once for every
	// subscription, before the first message that arrives again and before
	// Connected; each member of a group gets it (S11).
	Gap(lost int)

	// Load is how many messages wait or are being handled, for a driver that
	// chooses among the members of a group.
	Load() int

	// Fail says that the backend has ended the subscription, and why. No
	// message follows, and its Interest is ended.
	Fail(err error)
}

// Front is what a driver tells when it concerns no subscription in particular.
// Its methods may be called from several goroutines at once.
type Front interface {
	// Answer hands over an answer to the request with m.ID. Those that nobody
	// waits for any more are counted and dropped.
	Answer(m Message)

	// Fail says that no further answer to the request will come: err wraps
	// ErrNoResponders if nobody was there to be asked, and ErrDisconnected if
	// who was asked is gone.
	Fail(id uint64, err error)

	// Disconnected reports that the backend cannot be reached, before any Gap
	// of this outage, and Connected that it can again, with every subscription
	// in effect and after every Gap. The front fails all requests in flight at
	// the former. Calling either twice is harmless.
	Disconnected(err error)
	Connected()

	// Expired reports accepted events whose Deadline passed before they were
	// handed to a connection. They were not sent.
	Expired(messages int)

	// Lost reports accepted messages that were handed to a connection and may
	// not have arrived: an upper bound of their number and of their bytes. The
	// driver does not send them again. Flush reports the same loss.
	Lost(messages, bytes int, err error)

	// Refused reports that the backend has refused an accepted event or answer;
	// err wraps ErrRefused and has the backend's words. subject is "" where the
	// backend does not name it.
	Refused(subject string, err error)
}

// Kind is what a message is for.
type Kind uint8

// The kinds. A Subscription has one of the first two.
const (
	Event Kind = iota
	Request
	Answer
)

// String returns "event", "request" or "answer".
func (k Kind) String() string {
	switch k {
	case Event:
		return "event"
	case Request:
		return "request"
	case Answer:
		return "answer"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Message is what a driver carries. It is passed by value, so that one that
// stays inside the process costs no allocation on its way; Data and Header are
// shared and immutable.
//
// A driver that leaves the process sends Data with the header that
// [Message.Wire] makes of everything else, and puts it together again with
// [FromWire].
type Message struct {
	Kind Kind
	// Hops is how many messages led to this one, each published while the one
	// before was handled.
	Hops uint8
	// End marks the last answer to a request; it has no Data.
	End bool
	// More says of an answer that its responder has not finished: another one
	// follows. It is for the driver that is handed it, and not sent.
	More    bool
	Subject string
	Header  Header // nil if there is none
	Data    []byte // not nil
	// Deadline is when the message is of no use any more; zero is never.
	Deadline time.Time
	// ID is the asking front's number of a request, and of the answers to it.
	ID uint64
	// Return is where the answers to a request go. It is the driver's, which
	// sets it in what it delivers and finds it again in Answer.
	Return any
	// Err is set in an answer that says that the responder failed; its text is
	// in Data too.
	Err *RemoteError
}

// Scope is how far a driver's messages reach.
type Scope int

// The scopes, from the narrowest.
const (
	Process Scope = iota // one process
	Node                 // the processes of one node
	Fleet                // every process that reaches the same backend
)

// String returns "process", "node" or "fleet".
func (s Scope) String() string {
	switch s {
	case Process:
		return "process"
	case Node:
		return "node"
	case Fleet:
		return "fleet"
	}
	return fmt.Sprintf("scope(%d)", int(s))
}

// Info says what a driver is, and what it cannot do.
type Info struct {
	Name  string `json:"name"` // "memory", "cluster", "nats"
	Scope Scope  `json:"scope"`
	// MaxPayload is the largest Size of a message that the backend takes now; 0
	// is no bound of its own. It may change while the driver is open: a server
	// reloads its configuration, or a reconnect finds a server with another
	// limit. The front's own limit may be lower.
	MaxPayload int `json:"max_payload,omitempty"`
	// Copies says that Publish, Request and Answer have copied a message's Data
	// and Header when they return. The front then does not, and uses them again.
	Copies bool `json:"-"`
	// Lacks lists the rules of the contract that the driver does not keep.
	Lacks []Lack `json:"lacks,omitempty"`
	// Warnings lists what weakens its promise on the backend that it found,
	// each a sentence for an operator.
	Warnings []string `json:"warnings,omitempty"`
}

// Lack is a rule of the contract that a driver does not keep.
type Lack struct {
	Rule string `json:"rule"` // "S11"
	Why  string `json:"why"`
}
