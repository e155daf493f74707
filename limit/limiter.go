package limit

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/limit/driver"
)

// Limiter decides about calls. It owns its driver, and everything that must be
// the same on every driver: validation, waiting, the order within the process,
// remembered refusals, outages, events and counters.
type Limiter struct {
	driver   driver.Driver
	info     driver.Info
	config   Config
	self     Holder    // the part of a Holder that does not change
	base     time.Time // one nanosecond before the first instant
	counters counters

	ticket string // of all waiting requests
	seq    atomic.Uint64

	closed   atomic.Bool
	group    group.Group // counts waiting calls, and owns the background goroutines
	queues   queues      // waiting calls by key
	refusals refusals    // what the backend has refused
	health   health      // whether the backend answers
	shares   shares      // what this process allows by itself during an outage
}

// The types that the driver boundary shares with this package.
type (
	// Info describes a driver and its limits.
	Info = driver.Info
	// State is the state of a key.
	State = driver.State
	// RateState is the state of one rate of a key.
	RateState = driver.RateState
	// Waiter is a process that waits for units of a key.
	Waiter = driver.Waiter
	// Pause is a time in which a key allows nothing.
	Pause = driver.Pause
	// Holder describes a waiter, or who paused a key.
	Holder = driver.Holder
)

// New returns a Limiter over d and takes ownership of d: Close closes it. The
// zero Config is valid. It fails only for a nil d.
func New(d driver.Driver, c Config) (*Limiter, error) {
	if d == nil {
		return nil, errors.New("limit: New needs a driver")
	}
	host, _ := os.Hostname() // for display; an empty one is left out
	l := &Limiter{
		driver: d,
		info:   d.Info(),
		config: c.withDefaults(),
		self:   Holder{Host: host, PID: os.Getpid()},
		base:   time.Now().Add(-1),
		ticket: newTicket(),
	}
	l.group.Init()
	l.refusals.most = l.config.Cache
	l.health.init(l)
	return l, nil
}

func newTicket() string {
	var raw [16]byte
	binary.NativeEndian.PutUint64(raw[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(raw[8:], rand.Uint64())
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// Result is the answer to an Allow.
type Result struct {
	Allowed bool
	// Remaining is the number of units that every rate has left.
	Remaining int
	// RetryAfter is, for a refusal, the time after which the call can be
	// allowed: exact unless others wait, or units are given back meanwhile.
	RetryAfter time.Duration
	// ResetAfter is the time after which all units of By are free, if nobody
	// uses more.
	ResetAfter time.Duration
	// By is the rate that decided: of a refusal the one with the longest wait,
	// else the one with the fewest units left. It is zero for a pause, and where
	// the Outage Open has decided.
	By Rate
	// Degraded reports that the backend did not answer, and that the Outage of
	// the limit has decided.
	Degraded bool
}

// Allow reports whether m allows the call now, and consumes its units if so. It
// never waits, and does not overtake callers of Wait in any process. A refusal
// is not an error, and consumes nothing. With Cost(0) it only looks.
//
// Allow returns ErrUnavailable if the backend does not answer and the Outage of
// m is Closed; the units may then have been consumed. It returns ErrUnsupported
// for a limit with Concurrent, because a Result cannot hold a slot, and may
// return ErrInvalid, ErrClosed and ctx's error.
func (l *Limiter) Allow(ctx context.Context, key string, m Limit, opts ...Option) (Result, error) {
	c, err := newCall(key, &m, opts)
	switch {
	case err != nil:
	case c.maxWait != forever:
		err = invalidOption("MaxWait given to Allow, which never waits")
	case m.Concurrent > 0:
		err = fmt.Errorf("%w: Concurrent with Allow; use Wait or With", ErrUnsupported)
	default:
		err = l.ready(ctx)
	}
	if err != nil {
		return Result{}, fmt.Errorf("allow %q: %w", shorten(key), err)
	}
	epoch := l.refusals.epoch.Load()
	sent := l.sent()
	if r, _, known := l.refusals.find(&c, sent); known {
		l.refused(&c, r, true)
		return r, nil
	}
	a, outage, err := l.decide(ctx, &c, c.request(), l.lost(&c))
	if err != nil {
		l.unavailable(&c, err)
		return Result{}, fmt.Errorf("allow %q: %w", key, err)
	}
	degraded := outage != nil
	r := c.result(&a, degraded)
	switch {
	case c.cost == 0:
	case r.Allowed:
		l.granted(&c, 0, degraded)
	default:
		if !degraded {
			l.refusals.add(&c, r, a.Paused, cmp.Or(sent, l.now()), epoch)
		}
		l.refused(&c, r, false)
	}
	return r, nil
}

// sent returns the time before a call of the driver. Reading the clock is a
// fifth of an Allow in memory, which needs it only where something was refused.
func (l *Limiter) sent() instant {
	if l.info.Scope == driver.Process && l.refusals.none() {
		return 0
	}
	return l.now()
}

// result converts the answer of the driver.
func (c *call) result(a *driver.Answer, degraded bool) Result {
	r := Result{Allowed: a.Granted, Remaining: a.Remaining, ResetAfter: a.Reset, By: c.by(a.By), Degraded: degraded}
	if !a.Granted {
		r.RetryAfter = a.Wait
	}
	return r
}

// Pause makes every process refuse key for the time d, at most MaxPause. The
// pause that ends last counts (W13). The reason must have 1 to 512 bytes. Pause
// returns ErrInvalid, ErrUnavailable when the backend does not answer within a
// second (the key may then be paused), ErrClosed, or ctx's error.
func (l *Limiter) Pause(ctx context.Context, key string, d time.Duration, reason string) error {
	var bad error
	switch {
	case d <= 0 || d > MaxPause:
		bad = invalidOption("the pause is %v, want more than 0 and at most %v", d, MaxPause)
	case reason == "" || len(reason) > MaxReason:
		bad = invalidOption("the reason has %d bytes, want 1 to %d", len(reason), MaxReason)
	}
	err := l.change(ctx, "pause", key, bad, func(ctx context.Context) error {
		return l.driver.Pause(ctx, key, Pause{Left: micros(d), Reason: reason, By: l.holder(ctx)})
	})
	if err == nil {
		l.observe(Paused{Key: key, For: d, Reason: reason})
	}
	return err
}

// Reset forgets all grants of key and lifts its pause. Waiting processes stay. It
// returns the errors of [Limiter.Pause].
func (l *Limiter) Reset(ctx context.Context, key string) error {
	err := l.change(ctx, "reset", key, nil, func(ctx context.Context) error { return l.driver.Reset(ctx, key) })
	l.changed(key)
	if err == nil {
		l.observe(WasReset{Key: key})
	}
	return err
}

// changed makes this process ask again for a key that has more units now (W12).
func (l *Limiter) changed(key string) {
	l.refusals.clear(key)
	l.queues.poke(key)
}

// change makes one bounded call of the driver.
func (l *Limiter) change(ctx context.Context, does, key string, bad error, f func(context.Context) error) error {
	if fault := keyFault(key); fault != nil {
		bad = fault
	}
	if bad == nil {
		bad = l.ready(ctx)
	}
	if bad != nil {
		return fmt.Errorf("%s %q: %w", does, shorten(key), bad)
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	if err := f(bounded); err != nil {
		err = l.classify(ctx, err, driver.CallTimeout)
		l.health.failed(ctx, err)
		return fmt.Errorf("%s %q: %w", does, key, err)
	}
	return nil
}

// Info returns the driver's name, its scope and the rules that it does not keep.
func (l *Limiter) Info() Info { return l.info }

// Stats returns the counters of this Limiter.
func (l *Limiter) Stats() Stats {
	s := l.counters.snapshot(l.info.Name)
	s.Unavailable = l.health.lost() != nil
	return s
}

// Unavailable returns the reason why the backend does not answer now, or nil.
// The first call that fails detects a loss of the backend.
func (l *Limiter) Unavailable() error { return l.health.lost() }

// Close ends the Limiter and its driver. New calls and waiters return ErrClosed.
// It waits for the calls of the driver that waiters have made, each of which has a
// timeout, and closes the driver, which has a second. It returns the error with which
// the driver closed. The end of ctx does not shorten it. It may be called again.
func (l *Limiter) Close(ctx context.Context) error {
	l.closed.Store(true)
	l.group.Close(-1)
	l.shares.close()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), driver.CallTimeout)
	defer cancel()
	if err := l.driver.Close(bounded); err != nil {
		return fmt.Errorf("close limits: %w", err)
	}
	return nil
}

// ready returns the error of a call that cannot begin.
func (l *Limiter) ready(ctx context.Context) error {
	switch {
	case l.closed.Load():
		return ErrClosed
	case ctx.Err() != nil:
		return contextError(ctx)
	}
	return nil
}

// holder returns the Holder that describes a call with ctx.
func (l *Limiter) holder(ctx context.Context) Holder {
	h := l.self
	h.Since = time.Now()
	if l.config.Identify != nil {
		return l.identify(ctx, h)
	}
	return h
}

// identify is separate from holder so that a Holder without Identify stays off
// the heap.
func (l *Limiter) identify(ctx context.Context, h Holder) Holder {
	l.config.Identify(ctx, &h)
	return h
}

// take makes one call of the driver. A driver in the process needs no bound.
func (l *Limiter) take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	bounded := ctx
	if l.info.Scope != driver.Process {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, driver.CallTimeout)
		defer cancel()
	}
	a, err := l.driver.Take(bounded, r)
	if err != nil {
		err = l.classify(ctx, err, driver.CallTimeout)
	}
	return a, err
}

// classify converts an error of the driver to one of this package. The end of
// bound, the Limiter's own timeout of the call, is not reported as the end of ctx. In
// an outage the deadline of ctx is no other reason: the outage has used it up.
func (l *Limiter) classify(ctx context.Context, err error, bound time.Duration) error {
	for _, known := range []error{ErrUnavailable, ErrInvalid, ErrUnsupported, ErrClosed} {
		if errors.Is(err, known) {
			return err
		}
	}
	if ctx.Err() != nil {
		err = contextError(ctx)
		if lost := l.health.lost(); lost != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", lost, err)
		}
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		text := fmt.Sprintf("no answer within %v", bound)
		if reason, given := strings.CutSuffix(err.Error(), ": "+context.DeadlineExceeded.Error()); given {
			text += ": " + reason // of the driver
		}
		return fmt.Errorf("%w: %s", ErrUnavailable, text)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// contextError returns ctx's error together with its cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// shorten returns the part of a key that fits into an error.
func shorten(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	return key[:40] + "…"
}

// instant is a moment on the clock of this process. The zero instant is before
// every other one.
type instant time.Duration

func (l *Limiter) now() instant { return instant(time.Since(l.base)) }

// add returns the last instant where the sum is beyond it.
func (i instant) add(d time.Duration) instant {
	if d > 0 && i > math.MaxInt64-instant(d) {
		return math.MaxInt64
	}
	return i + instant(d)
}

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }
