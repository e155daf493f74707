package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// The bounds and defaults of what a call may ask for.
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
	// Timeout is how long a request may take whose context has no deadline.
	// Default 5s.
	Timeout time.Duration
	// MaxPayload is the largest message, with its header. Default 1 MiB; a
	// backend that takes less lowers it.
	MaxPayload int
	// StuckAfter is how long a handler may run before [Stuck] is told.
	// Default 30s.
	StuckAfter time.Duration
	// Observer is told what happens. Default: nobody.
	Observer Observer
	// Use wraps every handler and responder, outside of what the subscription
	// itself asks for.
	Use []Middleware

	// Inject adds the trace of ctx to the header of a message that is about to
	// be sent, and Extract puts it into the context of the handler. Headers is a
	// carrier of OpenTelemetry's propagators. Without Inject, what is sent from
	// within a handler carries the trace and the baggage that came with its
	// message. What Inject adds and cannot be sent is left out.
	Inject  func(ctx context.Context, h Headers)
	Extract func(ctx context.Context, h Headers) context.Context

	// Codecs are the codecs beside JSON, by content type.
	Codecs map[string]Codec

	// CheckData compares the data of every message before and after its
	// handler, and makes it an error of the handler that they have changed. It
	// is for tests, and costs a copy.
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
	}
	return nil
}

// Policy is what happens to a message that finds the buffer of its
// subscription full.
type Policy int

// The policies. None of them blocks a publisher.
const (
	DropNewest Policy = iota // it is dropped
	DropOldest               // the one that has waited longest is dropped for it
	Terminate                // the subscription ends with ErrTerminated
)

// SubOption changes one subscription. Options are immutable and may be shared.
type SubOption struct {
	apply func(*subscription)
}

// SubOption returns o. It lets a package that makes subscriptions on behalf of
// another take options of its own beside those of this one.
func (o SubOption) SubOption() SubOption { return o }

// Name is what events and statistics call the subscription. Default: its
// pattern.
func Name(s string) SubOption { return SubOption{func(o *subscription) { o.name = s }} }

// Group makes the subscriptions with this name and the same pattern share the
// messages: each goes to one of them. The empty name is no group, so that every
// responder answers (see [Bus.RequestMany]).
func Group(name string) SubOption {
	return SubOption{func(o *subscription) { o.group = name }}
}

// Concurrency is how many messages are handled at once, 1 to 4096. With more
// than one the order of their ends is anybody's guess; see [OrderBy].
func Concurrency(n int) SubOption { return SubOption{func(o *subscription) { o.concurrency = n }} }

// OrderBy keeps the order of messages with the same key at any concurrency:
// one is handled when the one before it is done. A key whose handler hangs
// keeps no other from being handled. key must not block.
func OrderBy(key func(*Msg) string) SubOption {
	return SubOption{func(o *subscription) { o.orderBy = key }}
}

// Buffer bounds what waits for the handler, in messages and in bytes of data
// and headers. A single message always fits.
func Buffer(messages, bytes int) SubOption {
	return SubOption{func(o *subscription) { o.maxMessages, o.maxBytes = messages, bytes }}
}

// OnFull says what happens to a message that finds the buffer full.
func OnFull(p Policy) SubOption { return SubOption{func(o *subscription) { o.onFull = p }} }

// OnGap calls repair where messages of the subscription were lost: its buffer
// was full, or they were lost on the way, as in an outage. missed is their
// number, or -1 if it is not known.
//
// The call is a barrier at the place of the loss. It begins when the handlers of
// all earlier messages have returned, without waiting for a next message, and no
// handler of a later message starts before it has returned. So a copy that is
// kept by "fetch all in OnGap, else apply the message" is right whenever the
// subscription is at rest, with every policy:
//
//	b.Subscribe(ctx, "price.*", prices.apply, bus.OnGap(func(ctx context.Context, missed int) error {
//		return prices.fetch(ctx)
//	}))
//
// After an outage it begins when the subscription is active again. If it fails,
// [GapFailed] is reported, messages go on, and it is called again after 1 s, and
// then after growing pauses of up to 1 min, with what was lost meanwhile added.
// Its ctx is like that of a handler; [Use] does not wrap it. In a group each
// member is called for its own losses.
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

// Site says where the subscription was made, for a package that makes it on
// behalf of another. Default: the file and line of who called.
func Site(fileLine string) SubOption { return SubOption{func(o *subscription) { o.site = fileLine }} }

// subscription is what a Subscribe or Respond asks for.
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
	}
	return nil
}

func (o *subscription) who() Who {
	return Who{Name: o.name, Pattern: o.pattern, Group: o.group, Site: o.site, Answers: o.kind == driver.Request}
}

// PubOption changes one message that is published or requested. Options are
// immutable and may be shared.
//
// It is plain data and not a function, so that a call with options makes none
// of them on the heap.
type PubOption struct {
	asks       request
	key, value string        // of a header
	expires    time.Duration // from now
}

// request is what a PubOption asks for.
type request uint8

const (
	nothing request = iota
	aHeader
	anID
	anExpiry
)

// ManyOption changes one [Bus.RequestMany]. Every PubOption is one.
type ManyOption interface {
	applyMany(*many)
}

// Header adds a value of key to the message's header. Keys are HTTP tokens
// whose case counts; values are UTF-8 without line breaks, and without white
// space at their ends.
func Header(key, value string) PubOption {
	return PubOption{asks: aHeader, key: key, value: value}
}

// Expires drops the message wherever it still waits after d. It must be more
// than 0.
func Expires(d time.Duration) PubOption { return PubOption{asks: anExpiry, expires: d} }

// ID gives the message an id, which its handlers find as [Msg.ID]. The bus
// makes no use of it: it is not deduplication.
func ID(s string) PubOption { return PubOption{asks: anID, key: KeyID, value: s} }

// check checks what stands in the header then, and says what it counts for.
func (o *PubOption) check() (size int, err error) {
	if o.asks == aHeader && isReserved(o.key) {
		return 0, fmt.Errorf("%w: the key %.80q is reserved", ErrBadHeader, o.key)
	}
	return checkPair(o.key, o.value)
}

// contentType is the Content-Type among the options, or "".
func contentType(opts []PubOption) string {
	for _, o := range opts {
		if o.asks == aHeader && o.key == KeyContentType {
			return o.value
		}
	}
	return ""
}
