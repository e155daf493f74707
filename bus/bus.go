package bus

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/group"
)

// Handler handles an event. Its error is reported to the Observer and counted;
// it affects neither the publisher nor other subscriptions.
//
// ctx carries the trace of the message. It ends at the message's deadline, with
// the context given to Subscribe, with Close, and at the end of the time for
// draining, but not at its beginning. If the message has a deadline, ctx also
// ends when the handler returns. m must not be changed and may be kept.
type Handler func(ctx context.Context, m *Msg) error

// Responder answers a request. Its error reaches the requester as a
// *RemoteError: a returned *RemoteError is sent unchanged, any other error is
// sent with its code.
type Responder func(ctx context.Context, m *Msg) ([]byte, error)

// Middleware wraps a handler. It also works for responders: their answer is
// sent when the outermost handler has returned nil.
type Middleware func(Handler) Handler

// Bus publishes, subscribes, requests and responds. It owns its driver, and
// everything that must work alike on every driver: validation, queues,
// handlers, requests in flight, deadlines, events and counters.
type Bus struct {
	driver   driver.Driver
	info     driver.Info
	config   Config
	codecs   codecs
	counters counters

	group    group.Group // owns the background goroutines
	notifier notifier    // reports events to the observer
	watch    watchdog
	calls    calls // requests in flight
	link     link  // whether the backend can be reached

	refusals refusals
	headers  sync.Pool // of empty Headers, see reuse

	state    atomic.Int32  // open, draining, closed
	drains   atomic.Bool   // a Drain has begun
	drained  chan struct{} // closed when the first Drain has ended
	drainErr error         // result of the first Drain, set before drained is closed
	shutOne  sync.Once
	shutErr  error // result of the first Close

	waits sync.Mutex // guards waitsFor of all subscriptions

	mu   sync.Mutex // guards the fields below
	subs map[*Sub]struct{}
	gone SubStats // of the subscriptions that have ended
}

// The states of a Bus.
const (
	open int32 = iota
	draining
	closed
)

// New returns a Bus over d. The Bus owns d: Close and Drain close it. After an error
// the caller still owns d. The zero Config works; values out of bounds fail with
// ErrInvalid, and so does a driver that belongs to another Bus.
func New(d driver.Driver, c Config) (*Bus, error) {
	c = c.withDefaults()
	if err := c.check(d); err != nil {
		return nil, fmt.Errorf("new bus: %w", err)
	}
	info := d.Info()
	b := &Bus{
		driver:  d,
		info:    info,
		config:  c,
		codecs:  newCodecs(c.Codecs),
		drained: make(chan struct{}),
		subs:    make(map[*Sub]struct{}),
	}
	b.group.Init()
	b.calls.init()
	b.watch.init(b)
	if err := d.Attach((*front)(b)); err != nil {
		return nil, fmt.Errorf("new bus: %w", err)
	}
	return b, nil
}

// Publish sends an event to the subscriptions whose pattern matches subject.
//
// A nil error means accepted: the caller may reuse data, and every subscription
// made earlier on this Bus gets the event or a report of its loss. Publish
// never waits for a handler. It waits for room in the driver's outbound queue
// until ctx ends, at most 5 s if ctx has no deadline, and then returns
// ErrOverloaded wrapped together with the context's error. This is the same on
// every driver and in every state of the connection: while the backend cannot
// be reached, events are queued. If ctx has ended, nothing is published, and the
// error is ctx's.
//
// Publish returns ErrBadSubject, ErrBadHeader, ErrInvalid (an option), a
// *TooLargeError, ErrCycle and ErrClosed at once. A refusal by the backend comes
// later: it is reported as [PublishRefused], and by Flush.
func (b *Bus) Publish(ctx context.Context, subject string, data []byte, opts ...PubOption) error {
	m := driver.Message{Kind: driver.Event, Subject: subject}
	if err := b.compose(ctx, &m, data, opts); err != nil {
		return fmt.Errorf("publish %s: %w", shorten(subject), err)
	}
	err := b.driver.Publish(ctx, m)
	b.reuse(m.Header)
	if err != nil {
		return b.refused(ctx, "publish", subject, err)
	}
	b.counters.published.Add(1)
	return nil
}

// Flush returns when the backend has accepted everything published before. It
// waits until ctx ends, or for Config.Timeout if ctx has no deadline. It fails
// with ErrDisconnected or ErrRefused, and their number, if messages were
// lost or refused on the way, as a rule messages of any publisher of this Bus.
// Each Flush that is running at the time of a loss reports it, and so do later
// ones until one of them has reported it.
func (b *Bus) Flush(ctx context.Context) error {
	if b.isClosed() {
		return fmt.Errorf("flush: %w", ErrClosed)
	}
	ctx, cancel := withBound(ctx, b.config.Timeout)
	defer cancel()
	if err := b.driver.Flush(ctx); err != nil {
		return b.refused(ctx, "flush", "", err)
	}
	return nil
}

// Info returns the description of the driver: its name, its scope, the rules
// that it does not keep, and MaxPayload, the largest message with its header.
// MaxPayload is the backend's current limit, or Config.MaxPayload if that is
// lower. The backend's limit may change at any time: after a server's reload or
// a reconnect, a message of a size that passed before may fail with a
// *TooLargeError.
func (b *Bus) Info() driver.Info {
	info := b.driver.Info()
	info.MaxPayload = min(b.config.MaxPayload, cmp.Or(info.MaxPayload, b.config.MaxPayload))
	return info
}

// withBound gives ctx a deadline if it has none.
func withBound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

func (b *Bus) isClosed() bool { return b.state.Load() == closed }

// refused returns the error of a call that the driver refused.
func (b *Bus) refused(ctx context.Context, what, subject string, err error) error {
	if b.isClosed() {
		err = ErrClosed
	} else {
		err = classify(ctx, err)
	}
	if subject == "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s %s: %w", what, subject, err)
}

// shorten truncates a subject that is too long, so that it does not fill the
// logs.
func shorten(subject string) string {
	if len(subject) > MaxSubject {
		return fmt.Sprintf("%.40q…", subject)
	}
	if !isLiteral(subject) {
		return fmt.Sprintf("%q", subject)
	}
	return subject
}
