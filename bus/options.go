package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// The bounds and defaults of the options.
const (
	MaxConcurrency = 4096
	MaxHops        = 32

	DefaultBuffer      = 65_536   // messages
	DefaultBufferBytes = 64 << 20 // bytes
	MaxBuffer          = 1<<24 - 1

	// DefaultPayload is Config.MaxPayload's default, headers included.
	DefaultPayload = 1 << 20

	respondConcurrency = 64 // S13
	// respondGroup is the group of a responder that names none.
	respondGroup = "responders"
)

// Config configures a [Bus]. The zero value is ready for use.
type Config struct {
	// Timeout bounds a request or a Flush without a deadline in its context.
	// Default 5s.
	Timeout time.Duration
	// MaxPayload is the size of the largest message, with its header. Default 1
	// MiB; a lower limit of the backend wins.
	MaxPayload int
	// StuckAfter is how long a handler may run before [Stuck] is reported.
	// Default 30s.
	StuckAfter time.Duration
	// Observer receives the events of the Bus. Default: none.
	Observer Observer
	// Use wraps every handler and responder, outside the middleware of the
	// subscription itself.
	Use []Middleware

	// Inject adds the trace of ctx to the header of a message that is about to
	// be sent, and Extract puts it into the context of the handler. Headers is
	// a carrier of OpenTelemetry's propagators. Without Inject, a message sent
	// from within a handler carries the trace and the baggage of the handled
	// message. Values that Inject adds are left out if they cannot be sent, or if
	// the caller has set their key. Both are called from several goroutines at once.
	Inject  func(ctx context.Context, h Headers)
	Extract func(ctx context.Context, h Headers) context.Context

	// Codecs are the codecs by content type, in any case and without parameters.
	// One for application/json replaces encoding/json, for messages without a
	// Content-Type too.
	Codecs map[string]Codec

	// CheckData compares the data of every message before and after its
	// handler, and reports a change as an error of the handler. It is for
	// tests, and costs a copy.
	CheckData bool
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultPayload)
	c.StuckAfter = cmp.Or(c.StuckAfter, 30*time.Second)
	return c
}

var errNilDriver = errors.New("bus: New needs a driver")

func (c Config) check(d driver.Driver) error {
	switch {
	case d == nil:
		return errNilDriver
	case c.Timeout < 0:
		return invalid("Timeout is %v, want more than 0", c.Timeout)
	case c.MaxPayload < 0:
		return invalid("MaxPayload is %d, want more than 0", c.MaxPayload)
	case c.StuckAfter < 0:
		return invalid("StuckAfter is %v, want more than 0", c.StuckAfter)
	case lacksOne(c.Use):
		return invalid("a Middleware of Config.Use is nil")
	}
	for contentType, codec := range c.Codecs {
		if codec == nil {
			return invalid("the codec of %q is nil", contentType)
		}
	}
	return nil
}

func lacksOne(all []Middleware) bool {
	return slices.ContainsFunc(all, func(m Middleware) bool { return m == nil })
}

// Policy decides about a message that arrives while the buffer of its
// subscription is full.
type Policy int

// The policies. None of them blocks a publisher.
const (
	DropNewest Policy = iota // the arriving message is dropped
	DropOldest               // the oldest queued message is dropped in its place
	Terminate                // the subscription ends with ErrTerminated
)

// SubOption changes one subscription. Options are immutable and may be shared.
type SubOption struct {
	apply func(*subscription)
}

// SubOption returns o. It lets a package that subscribes on behalf of another
// accept its own options together with the options of this package.
func (o SubOption) SubOption() SubOption { return o }

// Name sets the name of the subscription in events and statistics. Default: its
// pattern.
func Name(s string) SubOption { return SubOption{func(o *subscription) { o.name = s }} }

// Group makes the subscriptions with this name and the same pattern share the
// messages: each goes to one of them. The empty name means no group: every
// responder answers (see [Bus.RequestMany]).
func Group(name string) SubOption {
	return SubOption{func(o *subscription) { o.group = name }}
}

// Concurrency sets how many messages are handled at once, 1 to 4096. With more
// than one, messages may finish in any order; see [OrderBy].
func Concurrency(n int) SubOption { return SubOption{func(o *subscription) { o.concurrency = n }} }

// OrderBy keeps the order of messages with the same key at any concurrency:
// each is handled after the one before it is done. A handler that hangs holds
// up only its own key. key is called for one message of the subscription at a
// time and must not block; its panic is the failure of the message.
func OrderBy(key func(*Msg) string) SubOption {
	return SubOption{func(o *subscription) { o.orderBy = key }}
}

// Buffer bounds the messages that wait for the handler, in number and in bytes
// of data and headers. A header with more than [MaxKeys] values counts with the memory
// of its lists, too. A single message always fits.
func Buffer(messages, bytes int) SubOption {
	return SubOption{func(o *subscription) { o.maxMessages, o.maxBytes = messages, bytes }}
}

// OnFull sets the policy for a message that arrives while the buffer is full.
func OnFull(p Policy) SubOption { return SubOption{func(o *subscription) { o.onFull = p }} }

// OnGap calls repair at each place where messages of the subscription were lost
// because its buffer was full, or on the way, as in an outage. missed is their
// number, or -1 if the number is unknown.
//
// The call is a barrier at the place of the loss. It begins when the handlers
// of all earlier messages have returned, without waiting for a next message,
// and no handler of a later message starts before it has returned. So a copy
// maintained by "fetch all in OnGap, else apply the message" is correct
// whenever the subscription is at rest, with every policy:
//
//	b.Subscribe(ctx, "price.*", prices.apply, bus.OnGap(func(ctx context.Context, missed int) error {
//		return prices.fetch(ctx)
//	}))
//
// After an outage the call begins when the subscription is active again. If it
// fails, [GapFailed] is reported, messages are handled again, and repair is
// called again after 1 s, and then after growing pauses of up to 1 min, with
// later losses added to missed. Its ctx is like a handler's; [Use] does not
// wrap it. In a group each member is called for its own losses.
func OnGap(repair func(ctx context.Context, missed int) error) SubOption {
	return SubOption{func(o *subscription) { o.onGap = repair }}
}

// AfterGap starts the subscription with a gap of unknown size: [OnGap] is called
// with -1 once the subscription is active, and the first message has a Missed of
// -1. It is for a subscription that replaces one that has ended, as by
// [Terminate].
func AfterGap() SubOption { return SubOption{func(o *subscription) { o.afterGap = true }} }

// Use wraps the handler or responder, the first outermost.
func Use(m ...Middleware) SubOption {
	return SubOption{func(o *subscription) { o.middleware = append(o.middleware, m...) }}
}

// CrashOnPanic lets a panic of the handler end the program, for tests.
func CrashOnPanic() SubOption { return SubOption{func(o *subscription) { o.crash = true }} }

// Site sets the call site of the subscription, for a package that subscribes on
// behalf of another. Default: the file and line of the caller.
func Site(fileLine string) SubOption { return SubOption{func(o *subscription) { o.site = fileLine }} }

// subscription holds the options of a Subscribe or Respond.
type subscription struct {
	kind        driver.Kind
	pattern     string
	name        string
	group       string
	site        string
	concurrency int
	orderBy     func(*Msg) string
	maxMessages int
	maxBytes    int
	onFull      Policy
	onGap       func(ctx context.Context, missed int) error
	afterGap    bool
	middleware  []Middleware
	crash       bool
}

func newSubscription(k driver.Kind, pattern string, opts []SubOption) (subscription, error) {
	o := subscription{kind: k, pattern: pattern, concurrency: 1, maxMessages: DefaultBuffer, maxBytes: DefaultBufferBytes}
	if k == driver.Request {
		o.group, o.concurrency = respondGroup, respondConcurrency
	}
	for _, opt := range opts {
		if opt.apply != nil {
			opt.apply(&o)
		}
	}
	o.name = cmp.Or(o.name, pattern)
	return o, o.check()
}

// CheckOptions returns the group of a subscription with these options, or of a responder
// if responds is set. It needs no bus, and returns the errors of [Bus.Subscribe] and
// [Bus.Respond] for options: ErrBadGroup or ErrInvalid.
func CheckOptions(responds bool, opts ...SubOption) (group string, err error) {
	kind := driver.Event
	if responds {
		kind = driver.Request
	}
	o, err := newSubscription(kind, ">", opts)
	return o.group, err
}

func (o *subscription) check() error {
	if err := CheckPattern(o.pattern); err != nil {
		return err
	}
	if err := checkGroup(o.group); err != nil {
		return err
	}
	switch {
	case o.concurrency < 1 || o.concurrency > MaxConcurrency:
		return invalid("Concurrency is %d, want 1 to %d", o.concurrency, MaxConcurrency)
	case o.maxMessages < 1 || o.maxMessages > MaxBuffer:
		return invalid("Buffer is %d messages, want 1 to %d", o.maxMessages, MaxBuffer)
	case o.maxBytes < 1:
		return invalid("Buffer is %d bytes, want at least 1", o.maxBytes)
	case o.onFull < DropNewest || o.onFull > Terminate:
		return invalid("OnFull is %d, want DropNewest, DropOldest or Terminate", o.onFull)
	case lacksOne(o.middleware):
		return invalid("a Middleware of Use is nil")
	}
	return nil
}

func (o *subscription) subID() SubID {
	return SubID{Name: o.name, Pattern: o.pattern, Group: o.group, Site: o.site, Answers: o.kind == driver.Request}
}

// PubOption changes one message that is published or requested. Options are
// immutable and may be shared.
//
// It is plain data and not a function, so that options are not allocated on the
// heap.
type PubOption struct {
	kind       optionKind
	key, value string        // of a header
	expires    time.Duration // from now
	err        error         // of an option that could not be built
}

// optionKind is the kind of a PubOption. The zero PubOption has none.
type optionKind uint8

const (
	headerOption optionKind = iota + 1
	idOption
	expiryOption
	failOption
)

// ManyOption changes one [Bus.RequestMany]. Every PubOption is a ManyOption.
type ManyOption interface {
	applyMany(*many)
}

// Header adds a value of key to the message's header. Keys are case-sensitive
// HTTP tokens; values are UTF-8 without line breaks, and without leading or
// trailing white space.
func Header(key, value string) PubOption {
	return PubOption{kind: headerOption, key: key, value: value}
}

// Expires gives the message a deadline after d, which must be more than 0: then it
// is dropped if it still waits in any queue, the context of its handler ends, and a
// request without an answer fails with [ErrTimeout].
func Expires(d time.Duration) PubOption { return PubOption{kind: expiryOption, expires: d} }

// ID sets the id of the message, which [Msg.ID] returns in its handlers. The
// bus does not use the id; in particular, it does not deduplicate.
func ID(s string) PubOption { return PubOption{kind: idOption, key: KeyID, value: s} }

// Fail makes the call return err, which is not nil, before anything is sent. It
// is for functions that return an option and find that they cannot build it.
func Fail(err error) PubOption { return PubOption{kind: failOption, err: err} }

// check validates the header line of the option, and returns its size.
func (o *PubOption) check() (size int, err error) {
	if o.kind == headerOption && isReserved(o.key) {
		return 0, fmt.Errorf("%w: the key %.80q is reserved", ErrBadHeader, o.key)
	}
	return checkPair(o.key, o.value)
}

// contentType returns the Content-Type among the options, or "".
func contentType(opts []PubOption) string {
	for _, o := range opts {
		if o.kind == headerOption && o.key == KeyContentType {
			return o.value
		}
	}
	return ""
}
