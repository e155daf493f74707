package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// Sub is a subscription, made by [Bus.Subscribe] or [Bus.Respond]. It ends by
// Stop or Drain, with the context that it was made with, or with its Bus.
type Sub struct {
	subscription
	bus     *Bus
	handler Handler
	ctx     context.Context // the handlers' parent
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when it has ended and no handler runs

	excuseOne sync.Once
	excused   chan struct{} // closed when one of its handlers drains or closes the Bus

	wanted atomic.Bool // there is work for an idle runner

	stopped atomic.Bool // no handler starts any more; read before each

	handled, failed, panicked, expired atomic.Uint64

	asking atomic.Int32 // of the handlers of a responder, those that wait for a request to itself

	mu       sync.Mutex // guards the fields below; never held while calling a handler or the driver
	phase    phase
	err      error // why it ended
	interest driver.Interest
	unbind   func() bool // ends the watch of the context that it lives on

	queue   queue
	batch   batch // taken out of the queue by the one runner, where there is only one
	lanes   lanes // taken out of the queue under OrderBy
	runners []*runner
	idle    int // of the runners, those that look for work
	busy    int // of the runners that take one message at a time, those with one

	gap gap // the calls of OnGap
	// lost is for the Missed of the next message that starts. Where one runner
	// takes whole batches it is that runner's alone.
	lost int

	received, dropped, discarded uint64
	missed, gaps                 uint64 // as told by the driver: how many, and how often that was not known
	drops                        drops
	blocked                      time.Time // when Blocked was reported last
}

// phase is where a subscription is in its life.
type phase int

const (
	active   phase = iota
	leaving        // its interest is being ended; what arrives is taken
	emptying       // what is queued is run, nothing is taken
	stopping       // nothing is started any more
	over           // and no handler runs
)

// Subscribe calls h for every event whose subject matches pattern, one at a
// time and in order unless [Concurrency] says otherwise, until the subscription
// is stopped or ctx has ended. When it has returned, whatever is published on
// this Bus reaches h.
//
// The values of ctx are those of the handler's context.
func (b *Bus) Subscribe(ctx context.Context, pattern string, h Handler, opts ...SubOption) (*Sub, error) {
	return b.subscribe(ctx, pattern, driver.Event, h, opts, callSite())
}

// views are packages that call this one for somebody else.
const views = "github.com/megaframework/mega/ctx."

// callSite is the file and line of who called the function that calls this, or
// had it called by a view.
func callSite() string {
	pcs := make([]uintptr, 8)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if f.File != "" && !strings.HasPrefix(f.Function, views) {
			return f.File + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return ""
		}
	}
}

func (b *Bus) subscribe(ctx context.Context, pattern string, k driver.Kind, h Handler, opts []SubOption, site string) (*Sub, error) {
	verb := "subscribe to"
	if k == driver.Request {
		verb = "respond to"
	}
	s, err := b.newSub(ctx, pattern, k, h, opts, site)
	if err == nil {
		err = s.activate(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", verb, shorten(pattern), err)
	}
	return s, nil
}

func (b *Bus) newSub(ctx context.Context, pattern string, k driver.Kind, h Handler, opts []SubOption, site string) (*Sub, error) {
	o, err := newSubscription(k, pattern, opts)
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, invalid("the handler is nil")
	case ctx.Err() != nil:
		return nil, contextError(ctx)
	}
	if o.site == "" {
		o.site = site
	}
	s := &Sub{subscription: o, bus: b, done: make(chan struct{}), excused: make(chan struct{})}
	if o.afterGap {
		s.lost = -1
	}
	s.handler = wrap(wrap(h, o.middleware), b.config.Use)
	s.ctx, s.cancel = context.WithCancelCause(ctx) // S20
	return s, nil
}

// wrap puts the middleware around h, the first outermost.
func wrap(h Handler, ms []Middleware) Handler {
	for _, m := range slices.Backward(ms) {
		h = m(h)
	}
	return h
}

// activate asks the driver for the messages, and watches the context.
func (s *Sub) activate(ctx context.Context) error {
	if err := s.bus.enroll(s); err != nil {
		s.cancel(err)
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	interest, err := s.bus.driver.Subscribe(bounded, driver.Subscription{Kind: s.kind, Pattern: s.pattern, Group: s.group, Sink: (*sink)(s)}) // S7
	if err != nil {
		err = s.bus.unconfirmed(ctx, err)
		s.end(err)
		return err
	}
	unbind := context.AfterFunc(ctx, func() { s.endWith(ctx) })
	if !s.adopt(interest, unbind) { // the Bus was closed meanwhile, or the backend has refused it
		unbind()
		s.endInterest(interest)
		return s.Err()
	}
	return nil
}

// adopt takes the interest and the watch of the context over, unless the
// subscription has ended already.
func (s *Sub) adopt(i driver.Interest, unbind func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase >= stopping {
		return false
	}
	s.interest, s.unbind = i, unbind
	if s.afterGap && s.onGap != nil { // not before: a repair is of use once the subscription is active
		s.gap.due = -1
		if r := s.hire(); r != nil {
			go s.run(r)
		}
	}
	return true
}

// unconfirmed is the error of a call that waited for the backend's word with
// the caller's ctx and a bound of our own: an end by the latter is not passed
// off as the former's.
func (b *Bus) unconfirmed(ctx context.Context, err error) error {
	switch {
	case b.isClosed():
		return ErrClosed
	case ctx.Err() == nil && isContextError(err):
		return fmt.Errorf("%w: no word from the backend within %v", ErrDisconnected, driver.CallTimeout)
	}
	return classify(ctx, err)
}

// Stop ends the subscription: no handler starts any more, and what is queued is
// discarded and counted. A handler that has been given its message runs to its
// end, for which Stop does not wait; see Done. It may be called from within a
// handler, and repeatedly.
func (s *Sub) Stop() { s.end(nil) }

// endWith is Stop by the end of the context that the subscription lives on.
func (s *Sub) endWith(ctx context.Context) {
	if s.bus.crew.begin() {
		defer s.bus.crew.done()
		s.end(contextError(ctx))
	}
}

// end stops the subscription for the reason given, or nil if it was asked for.
func (s *Sub) end(why error) {
	if s.halt(why) {
		s.endInterest(s.held())
	}
}

// halt makes that no handler starts any more, and says whether this call has.
func (s *Sub) halt(why error) bool {
	s.mu.Lock()
	if s.phase >= stopping {
		s.mu.Unlock()
		return false
	}
	s.phase, s.err = stopping, why // S8
	s.stopped.Store(true)
	s.discard()
	s.tellLastDrops()
	last := s.settle()
	s.mu.Unlock()
	if last {
		s.bury()
	}
	return true
}

// held is the interest, or nil while the driver is being asked for it.
func (s *Sub) held() driver.Interest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.interest
}

// endInterest tells the driver. What that comes to does not matter: the sink
// takes nothing any more.
func (s *Sub) endInterest(i driver.Interest) {
	if i == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	_ = i.End(ctx)
}

// discard throws away what is queued. The caller holds s.mu.
func (s *Sub) discard() {
	for d := s.takeOldest(); d != nil; d = s.takeOldest() {
		s.discarded++
		s.bus.refuse(d, ErrTerminated)
	}
	s.gap.end()
}

// takeOldest takes the message out that has waited longest, or returns nil. The
// caller holds s.mu.
func (s *Sub) takeOldest() *delivery {
	if d := s.lanes.popOldest(); d != nil {
		return d
	}
	return s.queue.pop()
}

// settle says that nothing of the subscription is left to do, as nothing waits
// without a runner; it is over then, and the caller has to bury it. The caller
// holds s.mu.
func (s *Sub) settle() bool {
	if s.phase < emptying || s.phase == over || len(s.runners) > 0 {
		return false
	}
	s.phase = over
	s.stopped.Store(true)
	s.gap.end()
	s.tellLastDrops()
	return true
}

// bury frees what a subscription that is over has held.
func (s *Sub) bury() {
	s.release()
	s.cancel(nil)
	s.bus.retire(s)
	close(s.done)
}

// release ends the watch of the context that the subscription lives on.
func (s *Sub) release() {
	s.mu.Lock()
	unbind := s.unbind
	s.mu.Unlock()
	if unbind != nil {
		unbind()
	}
}

// Drain ends the subscription in order: its interest, then what is queued, then
// what is being handled, and returns when all is done. When ctx ends before, it
// stops the subscription, ends the contexts of its handlers and returns an
// error that wraps ctx's and says what was left.
//
// Called from within a handler of the subscription, it does not wait for the
// handlers.
func (s *Sub) Drain(ctx context.Context) error {
	if err := s.leave(ctx); err != nil {
		return s.cutOff(ctx)
	}
	if s.isWithin(ctx) || s.await(ctx.Done()) {
		return nil
	}
	return s.cutOff(ctx)
}

// leave ends the interest and lets what is queued run. Its error is that of
// ctx; no word from the backend is none, since the rest runs all the same.
func (s *Sub) leave(ctx context.Context) error {
	if !s.beginLeaving() {
		return nil
	}
	i := s.held()
	if i == nil { // it is still being made
		s.end(ErrDraining)
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	if err := i.End(bounded); err != nil && ctx.Err() != nil {
		return contextError(ctx)
	}
	s.empty()
	return nil
}

// empty takes no more messages.
func (s *Sub) empty() {
	s.mu.Lock()
	if s.phase == leaving {
		s.phase = emptying
	}
	r := s.hire() // what waited for the backend waits no more
	last := s.settle()
	s.mu.Unlock()
	if r != nil {
		go s.run(r)
	}
	if last {
		s.bury()
	}
}

// beginLeaving says whether there is something to leave.
func (s *Sub) beginLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == active {
		s.phase = leaving
	}
	return s.phase == leaving
}

// cutOff ends a drain whose time is over.
func (s *Sub) cutOff(ctx context.Context) error {
	left := s.Stats()
	s.cancel(errTimeOver)
	s.end(nil)
	return fmt.Errorf("drain %s: %w: %d messages were not handled and %d handlers were still running", s.name, contextError(ctx), left.Pending, left.Running)
}

// errTimeOver is the cause of a handler's context that ended since the time for
// draining was over.
var errTimeOver = errors.New("bus: the time for draining is over")

// Done is closed when the subscription has ended and none of its handlers runs.
func (s *Sub) Done() <-chan struct{} { return s.done }

// Err says why the subscription ended: nil while it lives and after Stop and
// Drain, ErrTerminated, ErrClosed, an error of the backend, or that of the
// context that it was made with.
func (s *Sub) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Name returns the name that was given as [Name], or the pattern.
func (s *Sub) Name() string { return s.name }

// Pattern returns the pattern.
func (s *Sub) Pattern() string { return s.pattern }
