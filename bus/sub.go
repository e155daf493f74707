package bus

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// Sub is a subscription, made by [Bus.Subscribe] or [Bus.Respond]. It ends with
// Stop or Drain, with the context given to Subscribe or Respond, or with its
// Bus.
type Sub struct {
	subscription
	bus     *Bus
	handler Handler
	ctx     context.Context // the handlers' parent
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when it has ended and no handler runs

	excuseOne sync.Once
	excused   chan struct{} // closed when one of its handlers drains or closes the Bus

	waitsFor []*Sub // those that its handlers drain now; guarded by the bus's mutex waits

	stopped atomic.Bool // no handler starts any more; read before each

	// Publishers and runners write on different cores at the same time. What
	// each of them writes for every message has cache lines of its own.
	_      cacheLine
	wanted atomic.Bool // there is work for an idle runner
	_      cacheLine

	mu           sync.Mutex // guards the fields below; never held while calling a handler or the driver
	phase        phase
	idle         int // number of runners that look for work
	received     uint64
	queue        queue
	lanes        lanes // taken out of the queue under OrderBy
	runners      []*runner
	busy         int   // number of runners with a message, where each takes one at a time
	err          error // why it ended
	registration driver.Registration
	left         chan struct{} // made with the phase leaving, closed when the registration has ended
	unbind       func() bool   // stops watching the context given to Subscribe

	gap gap // the calls of OnGap
	// lost is added to Missed of the next message that starts. If one runner
	// takes whole batches, only that runner accesses it.
	lost int

	dropped, discarded uint64
	missed, gaps       uint64 // reported by the driver: lost messages, and losses of unknown size
	retired            bool   // its numbers are in Bus.gone
	drops              drops
	blocked            time.Time // when Blocked was reported last

	batch batch // taken out of the queue by the only runner, if Concurrency is 1

	// Of the runners; mu does not guard them.
	handled, erred, panicked, expired atomic.Uint64
	asking                            atomic.Int32 // number of a responder's handlers that wait for a request to the responder itself
}

// cacheLine keeps fields apart that different cores write.
type cacheLine [64]byte

// phase is a stage in the life of a subscription.
type phase int

const (
	active   phase = iota
	leaving        // its registration is being ended; arriving messages are queued
	emptying       // queued messages are handled, arriving ones are refused
	stopping       // no handler starts any more
	over           // no handler starts any more, and none runs
)

// Subscribe calls h for every event whose subject matches pattern, one at a
// time and in order unless [Concurrency] says otherwise, until the subscription
// is stopped or ctx has ended. Events published on this Bus after Subscribe has
// returned reach h.
//
// The handler's context has the values of ctx.
//
// Subscribe returns ErrBadSubject, ErrBadGroup or ErrInvalid for its arguments;
// ErrRefused, with the backend's text, if the backend refuses the subscription;
// ErrDisconnected if the backend does not confirm it within 5 s; ErrDraining,
// ErrClosed, or ctx's error. After an error there is no subscription.
func (b *Bus) Subscribe(ctx context.Context, pattern string, h Handler, opts ...SubOption) (*Sub, error) {
	return b.subscribe(ctx, pattern, driver.Event, h, atCallSite(opts))
}

// atCallSite adds the call site of the caller of its caller. An option of that
// caller has precedence.
func atCallSite(opts []SubOption) []SubOption {
	_, file, line, ok := runtime.Caller(2)
	if !ok {
		return opts
	}
	return append([]SubOption{Site(file + ":" + strconv.Itoa(line))}, opts...)
}

func (b *Bus) subscribe(ctx context.Context, pattern string, k driver.Kind, h Handler, opts []SubOption) (*Sub, error) {
	verb := "subscribe to"
	if k == driver.Request {
		verb = "respond to"
	}
	s, err := b.newSub(ctx, pattern, k, h, opts)
	if err == nil {
		err = s.activate(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", verb, shorten(pattern), err)
	}
	return s, nil
}

func (b *Bus) newSub(ctx context.Context, pattern string, k driver.Kind, h Handler, opts []SubOption) (*Sub, error) {
	o, err := newSubscription(k, pattern, opts)
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, invalid("the handler is nil")
	case ctx.Err() != nil:
		return nil, contextError(ctx)
	}
	s := &Sub{subscription: o, bus: b, done: make(chan struct{}), excused: make(chan struct{})}
	if o.afterGap {
		s.lost = -1
	}
	if o.afterGap && o.onGap != nil {
		s.gap.due = -1
	}
	if s.handler = wrap(wrap(h, o.middleware), b.config.Use); s.handler == nil {
		return nil, invalid("a Middleware has returned no Handler")
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx) // S20
	return s, nil
}

// wrap wraps h in the middleware, the first outermost. It returns nil if one of them
// does.
func wrap(h Handler, ms []Middleware) Handler {
	for _, m := range slices.Backward(ms) {
		if h == nil {
			break
		}
		h = m(h)
	}
	return h
}

// activate subscribes at the driver, and watches the context.
func (s *Sub) activate(ctx context.Context) error {
	if err := s.bus.enroll(s); err != nil {
		s.cancel(err)
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	registration, err := s.bus.driver.Subscribe(bounded, driver.Subscription{Kind: s.kind, Pattern: s.pattern, Group: s.group, Sink: (*sink)(s)}) // S7
	if err != nil {
		err = s.bus.unconfirmed(ctx, err)
		s.end(err)
		return err
	}
	unbind := context.AfterFunc(ctx, func() { s.endWith(ctx) })
	if !s.adopt(registration, unbind) { // the Bus was closed, or the backend refused the subscription, meanwhile
		unbind()
		s.endRegistration(registration)
		return s.Err()
	}
	return nil
}

// adopt stores the registration and the watch of the context, and reports whether
// it did: a subscription that has ended takes neither.
func (s *Sub) adopt(r driver.Registration, unbind func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase >= stopping {
		return false
	}
	s.registration, s.unbind = r, unbind
	if s.onGap != nil { // not earlier: a repair needs an active subscription
		if runner := s.hire(); runner != nil {
			go s.run(runner)
		}
	}
	return true
}

// unconfirmed returns the error of a call that waited for a confirmation of the
// backend until the end of the caller's ctx or of CallTimeout. An end by
// CallTimeout is ErrDisconnected and not an error of ctx.
func (b *Bus) unconfirmed(ctx context.Context, err error) error {
	switch {
	case b.isClosed():
		return ErrClosed
	case ctx.Err() == nil && isContextError(err):
		return fmt.Errorf("%w: no word from the backend within %v", ErrDisconnected, driver.CallTimeout)
	}
	return classify(ctx, err)
}

// Stop ends the subscription: no handler starts any more, and queued messages
// are discarded and counted. Stop does not wait for running handlers; see Done.
// It may be called from within a handler, and repeatedly.
func (s *Sub) Stop() { s.end(nil) }

// endWith stops the subscription because the context given to Subscribe has
// ended.
func (s *Sub) endWith(ctx context.Context) {
	if s.bus.group.Begin() {
		defer s.bus.group.Done()
		s.end(contextError(ctx))
	}
}

// end stops the subscription. why is the reason, or nil after Stop.
func (s *Sub) end(why error) {
	if s.halt(why) {
		s.endRegistration(s.registered())
	}
}

// halt prevents further starts of handlers, and reports whether this call was
// the first.
func (s *Sub) halt(why error) bool {
	s.mu.Lock()
	if s.phase >= stopping {
		s.mu.Unlock()
		return false
	}
	s.phase, s.err = stopping, why // S8
	s.stopped.Store(true)
	s.discard()
	s.reportLastDrops()
	last := s.settle()
	s.mu.Unlock()
	if last {
		s.bury()
	}
	return true
}

// registered returns the registration, or nil while it is being made.
func (s *Sub) registered() driver.Registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registration
}

// endRegistration ends the registration at the driver. Its error does not matter: the
// sink takes no messages any more.
func (s *Sub) endRegistration(r driver.Registration) {
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.bus.group.Context(), driver.CallTimeout)
	defer cancel()
	_ = r.End(ctx)
}

// discard drops the queued messages. The caller holds s.mu.
func (s *Sub) discard() {
	for d := s.takeOldest(); d != nil; d = s.takeOldest() {
		s.discarded++
		s.bus.refuse(d, ErrTerminated)
	}
	s.gap.end()
}

// takeOldest removes and returns the message that has waited longest, or nil.
// The caller holds s.mu.
func (s *Sub) takeOldest() *delivery {
	if d := s.lanes.popOldest(); d != nil {
		return d
	}
	return s.queue.pop()
}

// settle reports whether the subscription has no work left, which holds once it
// has no runner, since messages never wait without one. The subscription is
// then over, and the caller has to call bury. The caller holds s.mu.
func (s *Sub) settle() bool {
	if s.phase < emptying || s.phase == over || len(s.runners) > 0 {
		return false
	}
	s.phase = over
	s.stopped.Store(true)
	s.gap.end()
	s.reportLastDrops()
	return true
}

// bury frees the resources of a subscription that is over.
func (s *Sub) bury() {
	s.release()
	s.cancel(nil)
	s.bus.retire(s)
	close(s.done)
}

// release stops watching the context given to Subscribe.
func (s *Sub) release() {
	s.mu.Lock()
	unbind := s.unbind
	s.mu.Unlock()
	if unbind != nil {
		unbind()
	}
}

// Done is closed when the subscription has ended and none of its handlers runs.
func (s *Sub) Done() <-chan struct{} { return s.done }

// Err returns the reason why the subscription ended: ErrTerminated, ErrClosed,
// an error of the backend, or the error of the context given to Subscribe. It
// is nil before the end and after Stop and Drain.
func (s *Sub) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Name returns the name set by [Name], or the pattern.
func (s *Sub) Name() string { return s.name }

// Pattern returns the pattern.
func (s *Sub) Pattern() string { return s.pattern }
