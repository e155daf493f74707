// Package driver is the boundary between package bus and its backends: the
// interfaces that a message backend implements, and the types that both sides
// share.
//
// Users of the bus need this package only for the name of an error or an
// [Info]; package bus has an alias for each. Authors of drivers start here, and
// test their drivers with package bustest.
//
// A driver carries messages and reports losses. It does not validate subjects
// or headers, apply defaults, queue behind a subscription, run handlers, match
// answers to requests, count, log or wrap error texts: the front, the Bus above
// it, does each of these once for every driver. A driver has three tasks: route
// messages, report when a subscription is active, and report lost messages.
//
// # Three kinds of message
//
// Events go to the subscriptions of kind [Event] whose pattern matches,
// requests to those of kind [Request], and an answer goes back to the driver
// that sent the request. The kinds never mix, even under the same subject. In
// each kind a message reaches every matching subscription without a group, and
// one member of every matching group, where a group is a pattern and a name:
// the same name under two patterns is two groups.
//
// # What a driver may rely on
//
// The front checks subjects, patterns, groups and headers, and bounds the errors
// in answers that arrive. Data and headers are immutable once they are handed over,
// in both directions; a driver that delivers inside the process passes them on
// uncopied. [Sink] and [Front] never block and never call the driver from within.
// Subscribe, Registration.End, Flush and Close get a context with a deadline.
//
// # What a driver must keep
//
// Its methods may be called concurrently, also from within a handler. The front
// treats an error that is neither a context's nor one of this package's as
// [ErrDisconnected].
//
// Order: if Publish of one message returns before Publish of another is called,
// every Sink that gets both gets them in this order.
//
// Delivery: a driver delivers a message to a Sink at most once, and never waits
// for a Sink: the Sink takes the message or counts it as dropped.
//
// Size: a backend has its own limit, which may change with a reload or a
// reconnect. The driver checks each message with [Message.CheckSize] against
// the current limit, so that a message that is too large does not cost it its
// connection (S17).
//
// Room: Publish, Request and Answer wait for room in the outbound queue in the
// same way on every driver and in every state of the connection: until the end
// of the context that [RoomContext] returns. Then they return an error that
// wraps ErrOverloaded and that context's error, and nothing is sent (S6).
//
// Unsent messages: an event whose Deadline passes before it is handed to the
// connection is not sent, and is reported as Expired (S24). A queued request is
// dropped without a report when its ctx has ended, when its Deadline has
// passed, and with Disconnected: by then the front has ended the call (S12).
//
// An outage is reported in this order (S10, S23): Disconnected to the Front;
// Gap(-1) once to each Sink, before the first message that arrives again, unless
// the driver knows that the Sink has missed nothing; and Connected, once every
// subscription is active. The front calls OnGap only
// after Connected. A registration that ends earlier returns an error instead of the
// Gap.
package driver

import (
	"context"
	"fmt"
	"time"
)

// CallTimeout bounds the calls that wait for a confirmation of the backend:
// Subscribe, Registration.End and Close.
const CallTimeout = 5 * time.Second

// RoomTimeout bounds the wait for room in the outbound queue under a context
// without a deadline.
const RoomTimeout = 5 * time.Second

// RoomContext returns the context that bounds the wait of m for room in the
// outbound queue: ctx, with RoomTimeout if it has no deadline, and for a
// request with its Deadline if that is earlier. A driver should call it only
// when it has to wait, not for every message. cancel frees its timer.
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
	// Info returns the description of the driver. It does no I/O. Only
	// MaxPayload may change while the driver is open.
	Info() Info

	// Attach is called before any other method but Info. The driver reports
	// events that concern no particular subscription to f. A driver that is not
	// connected calls f.Disconnected before Attach returns. A second call returns
	// an error that wraps ErrInvalid, and changes nothing.
	Attach(f Front) error

	// Publish accepts an event: it is handed to the connection or put in the
	// outbound queue, also while the backend cannot be reached. Publish never
	// waits for a subscriber, and waits for room as the package comment
	// describes.
	Publish(ctx context.Context, m Message) error

	// Request sends a request. The front chooses its ID, which is not 0, and
	// never uses it twice on this driver. The driver reports the outcome to the Front, possibly
	// from within the call. An error means that the request was not sent, and
	// then nothing is reported.
	//
	// ctx covers the whole call of the requester, not only this method: a
	// driver that queues the request keeps ctx until it has handed the request
	// to its connection, and drops the request unsent if ctx has ended by then.
	//
	// If no subscription of the kind matches, Request returns an error that
	// wraps ErrNoResponders, or the driver promptly reports one to the Front.
	// While the backend cannot be reached, Request returns an error that wraps
	// ErrDisconnected, and so does a call that waits for room at Disconnected:
	// requests are not buffered.
	Request(ctx context.Context, m Message) error

	// Answer sends an answer to a request that was delivered to a Sink. It may
	// be called several times for one request, and waits for room as Publish
	// does. A requester that has left is not an error.
	Answer(ctx context.Context, request, answer Message) error

	// Subscribe makes s active: events and requests sent through this driver
	// after Subscribe has returned reach s.Sink. The subscription lives until
	// its Registration is ended, over any number of reconnects: it is active again
	// before messages buffered meanwhile are sent.
	Subscribe(ctx context.Context, s Subscription) (Registration, error)

	// Flush returns when the backend has taken over every message accepted
	// before. If nothing is left, it does not wait for a backend that cannot be
	// reached. If ctx ends before, the text of the error has the number of messages:
	// "3 accepted messages not confirmed" (S21).
	Flush(ctx context.Context) error

	// Close ends all registrations and frees what the driver holds of its process:
	// connections, goroutines, timers. Once it has returned, the driver starts
	// no new call of a Sink or Front; running calls may still finish. Buffered
	// messages are sent if that is possible until ctx ends; as in Flush, the error has
	// the number of unconfirmed ones. Close is idempotent.
	Close(ctx context.Context) error
}

// Registration is an active subscription.
type Registration interface {
	// End ends it. Once it has returned nil, nothing that is published from
	// then on is routed to the subscription, and what had been routed to it was
	// given to its Sink; a message that was being published meanwhile may still
	// be offered to the Sink, which refuses it. If that is not known when ctx
	// ends, End returns an error that wraps ctx's; the registration ends all the
	// same, as soon as the backend can be reached.
	//
	// It is idempotent. While the backend cannot be reached it returns at once: the
	// subscription is not renewed. If the Sink has not got the gap of that outage,
	// the driver never reports it, and End returns an error that wraps
	// ErrDisconnected; the front then records the gap.
	End(ctx context.Context) error
}

// Subscription describes the messages that a front wants.
type Subscription struct {
	Kind    Kind // Event or Request
	Pattern string
	// Group is the name under which the subscriptions with the same pattern
	// share the messages; with "" the subscription gets every message.
	Group string
	Sink  Sink
}

// Sink is where the messages of a subscription go: a bounded queue of the
// front. Its methods may be called from several goroutines at once.
type Sink interface {
	// Deliver hands over a message. It returns false if the subscription has
	// stopped accepting messages; a driver that can choose another member of
	// the group then must do so, and one that cannot reports the lost events to
	// Gap before Registration.End returns. With a full queue it returns true,
	// since the front counts and reports the loss.
	Deliver(m Message) bool

	// Gap reports that messages were lost between the last one that was
	// delivered and the next one: how many, or -1 if that is not known. The
	// front records the place of the gap. After an outage Gap(-1) is called
	// once for every subscription that may have missed messages, before the first
	// message that arrives again and before Connected; each member of a group gets
	// it (S11).
	Gap(lost int)

	// Load returns the number of messages that wait or are being handled, for a
	// driver that chooses among the members of a group.
	Load() int

	// Fail reports that the backend has ended the subscription, and the reason.
	// No message follows, and the registration has ended.
	Fail(err error)
}

// Front receives the driver's reports that concern no particular subscription.
// Its methods may be called from several goroutines at once.
type Front interface {
	// Answer hands over an answer to the request with m.ID. An answer without a
	// waiting request is counted and dropped.
	Answer(m Message)

	// Fail reports that no further answer to the request will come. err wraps
	// ErrNoResponders if there was no responder, and ErrDisconnected if the
	// responder is gone. The id 0 stands for all requests in flight, which
	// lose their way back.
	Fail(id uint64, err error)

	// Disconnected reports that the backend cannot be reached, before any Gap
	// of this outage. The front then fails all requests in flight. Connected
	// reports that the backend can be reached again, after every Gap, with
	// every subscription active. Calling either twice is harmless.
	Disconnected(err error)
	Connected()

	// Expired reports accepted events whose Deadline passed before they were
	// handed to a connection. They were not sent.
	Expired(messages int)

	// Lost reports accepted messages that were handed to a connection and may
	// not have arrived: an upper bound of their number and of their bytes. The
	// driver does not send them again. Flush reports the same loss.
	Lost(messages, bytes int, err error)

	// Refused reports that the backend refused an accepted event or answer; err
	// wraps ErrRefused and has the backend's text. subject is "" if the backend
	// does not name it.
	Refused(subject string, err error)
}

// Kind is the purpose of a message.
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

// Message is an event, a request or an answer. It is passed by value, so that
// delivery inside the process does not allocate; Data and Header are shared and
// immutable.
//
// A driver that leaves the process sends Data with the header that
// [Message.Wire] makes of the other fields, and restores the message with
// [FromWire].
type Message struct {
	Kind Kind
	// Hops is the number of messages that led to this one, each published while
	// the one before was handled.
	Hops uint8
	// End marks the last answer to a request; it has no Data.
	End bool
	// More marks an answer that another answer will follow. It informs the
	// driver of the responder and is not sent.
	More    bool
	Subject string
	Header  Header // nil if there is none
	Data    []byte // not nil
	// Deadline is the time after which the message is of no use; zero means
	// never.
	Deadline time.Time
	// ID is the number that the requesting front gave a request, and its
	// answers.
	ID uint64
	// Return is the address for the answers to a request. The driver sets it in
	// requests that it delivers, and gets it back in Answer.
	Return any
	// Local is the publishing front's, and not sent. A driver that delivers
	// inside the process passes it on, like Data.
	Local any
	// Err is the error of a responder that failed, or nil; its text is in Data
	// too.
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

// Info describes a driver and its limits.
type Info struct {
	Name  string `json:"name"` // "memory", "cluster", "nats"
	Scope Scope  `json:"scope"`
	// MaxPayload is the largest Size of a message that the backend takes now; 0
	// means that the backend has no limit. It may change while the driver is
	// open: a server reloads its configuration, or a reconnect finds a server
	// with another limit. The front's own limit may be lower.
	MaxPayload int `json:"max_payload,omitempty"`
	// Copies reports that Publish, Request and Answer have copied a message's
	// Data and Header when they return. The front then makes no copy and reuses
	// them.
	Copies bool `json:"-"`
	// Lacks lists the rules of the contract that the driver does not keep.
	Lacks []Lack `json:"lacks,omitempty"`
	// Warnings lists properties of the backend that weaken the driver's
	// guarantees, each as a sentence for an operator.
	Warnings []string `json:"warnings,omitempty"`
}

// Lack is a rule of the contract that a driver does not keep.
type Lack struct {
	Rule string `json:"rule"` // "S11"
	Why  string `json:"why"`
}
