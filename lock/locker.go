package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/internal/circle"
	"github.com/megaframework/mega/lock/internal/cleaner"
)

// Locker grants leases of named keys. It owns its driver, and everything that
// must be the same on every driver: validation, defaults, the local queue,
// renewal, loss, clean-up, events and counters.
type Locker struct {
	driver   driver.Driver
	pools    driver.PoolDriver // driver, or nil where it keeps no states of slots
	runs     driver.Runner     // driver, or nil where it records no runs
	asker    driver.Asker      // driver, or nil if its Acquire has one part
	info     driver.Info
	config   Config
	self     Holder // the part of a Holder that does not change
	clock    clock
	awake    clock // of the pauses of campaigns: it counts the time of a suspended machine in every scope
	counters counters

	gate     gate            // counts calls and leases, for Close
	group    group.Group     // owns the background goroutines
	cleaner  cleaner.Cleaner // retries failed releases
	schedule schedule        // renews the holds and ends them in time
	queues   *queues         // waiters of this process by key; nil where the driver's scope is the process
	circles  circle.Search   // waits that may be part of a circle
	sizes    sizes           // reported differences of pool sizes

	lastSlots lastSlots // by pool

	stragglers stragglers // lost leases whose functions still run
	health     health     // whether the backend serves

	closeOnce sync.Once
	over      chan struct{} // closed when a Close has finished
}

// New returns a Locker over d and takes ownership of d: Close closes it. After an
// error the caller still owns d. The zero Config is valid. Values out of bounds are
// ErrInvalid, and FIFO is ErrUnsupported with a driver without an order (L7).
func New(d driver.Driver, c Config) (*Locker, error) {
	c = c.withDefaults()
	if err := c.check(d); err != nil {
		return nil, fmt.Errorf("new locker: %w", err)
	}
	host, _ := os.Hostname() // for display; an empty one is left out
	l := &Locker{
		driver: d,
		info:   d.Info(),
		config: c,
		self:   Holder{Host: host, PID: os.Getpid()},
		over:   make(chan struct{}),
	}
	l.pools, _ = d.(driver.PoolDriver)
	l.runs, _ = d.(driver.Runner)
	l.asker, _ = d.(driver.Asker)
	l.clock, l.awake = newClock(l.info.Scope), newClock(driver.Fleet)
	l.group.Init()
	l.gate.init()
	l.health.init(l)
	l.cleaner.Init((*cleaning)(l))
	if l.info.Scope > driver.Process {
		l.schedule.nap = maxNap
		l.queues = newQueues(l)
	}
	l.schedule.init(l.tick, &l.clock)
	return l, nil
}

// With runs fn under a lease of key and releases it when fn has returned,
// panicked or called runtime.Goexit. The context given to fn is the lease's
// context: it ends with ctx, or when the lease is lost.
//
// With returns fn's error. If the lease was lost before fn returned, With
// returns an error that wraps both ErrLost and fn's error, even if fn returned
// nil. If the lease was not granted, fn is not called; see [Locker.Acquire] for
// the errors.
func (l *Locker) With(ctx context.Context, key string, fn func(context.Context) error, opts ...Option) (err error) {
	c, err := l.newCall(key, opts)
	c.within = true
	l.locate(&c)
	if err == nil && fn == nil {
		err = invalidOption("the function is nil") // L14
	}
	lease, err := l.acquire(ctx, &c, err)
	if err != nil {
		return err
	}
	// L11: also when fn panics or calls runtime.Goexit.
	defer func() { err = joinLoss(key, err, lease.finish()) }()
	return fn(lease.Context())
}

// joinLoss joins the error of the release with the error of the work. A release
// that failed is retried in the background and is not a failure of the work:
// the lease was live until the work was done.
func joinLoss(key string, work, release error) error {
	switch {
	case !errors.Is(release, ErrLost):
		return work
	case work == nil:
		return fmt.Errorf("with %q: %w", key, release)
	case errors.Is(work, release): // this very loss, not one of another key
		return work
	}
	return fmt.Errorf("with %q: %w: %w", key, release, work)
}

// Acquire waits for a lease of key and returns it. The caller must Release it.
// The lease lives on ctx: if ctx ends and the caller does not release the lease
// soon after, the Locker releases it and reports it as Forgotten.
//
// Acquire returns a *NotAcquiredError (ErrNotAcquired) when the wait is over
// and the backend has confirmed within the last 2 s that the key is busy; it
// wraps ctx's error if ctx ended the wait. It returns ErrUnavailable when the
// backend does not answer, and ctx's error alone when ctx ended before either
// was known. It returns ErrDeadlock when ctx already carries a lease of the
// key, and a *DeadlockError when it waits in a circle with other calls of this
// Locker whose contexts carry the leases in question: of the waits in a circle,
// the one that would end first gets the error at once, and the others go on. It
// may return ErrInvalid, ErrUnsupported and ErrClosed.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	c, err := l.newCall(key, opts)
	l.locate(&c)
	return l.acquire(ctx, &c, err)
}

// TryAcquire is Acquire without waiting. It does not jump the queue: a free
// key that others wait for is busy. [Wait] given to it is ErrInvalid.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	c, err := l.newCall(key, opts)
	if err == nil && c.waitSet {
		err = invalidOption("Wait given to TryAcquire, which never waits")
	}
	c.wait = 0
	l.locate(&c)
	return l.acquire(ctx, &c, err)
}

// Stats returns the counters of this Locker.
func (l *Locker) Stats() Stats {
	s := l.counters.snapshot(l.info.Name)
	s.Unavailable = l.health.lost() != nil
	return s
}

// Unavailable returns the reason why the backend does not serve locks now, or
// nil. The first call that fails detects a loss of the backend.
func (l *Locker) Unavailable() error { return l.health.lost() }

// Held returns the sorted keys of the leases that this Locker holds. The key of
// a pool appears once for each slot. Held does not call the driver. A lease
// may be missing during its renewal.
func (l *Locker) Held() []string {
	var keys []string
	for _, h := range l.schedule.all() {
		if h.inUse() {
			keys = append(keys, h.grant.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Info returns the driver's name, its scope and the rules that it does not
// keep.
func (l *Locker) Info() driver.Info { return l.info }

// Inspect returns the holders of key, and its waiters in the order of service.
// The waiters of another process that share one ticket appear as one waiter. A key
// that is not in use has neither; data of another program has State.Skipped.
//
// Inspect returns ErrUnavailable when the backend does not answer within a second,
// ErrInvalid for a key that no lease can have, ErrClosed, or ctx's error.
func (l *Locker) Inspect(ctx context.Context, key string) (State, error) {
	if err := l.check(ctx, key, nil); err != nil {
		return State{}, fmt.Errorf("inspect %q: %w", shorten(key), err)
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	s, err := l.driver.Inspect(bounded, key)
	if err != nil {
		return State{}, fmt.Errorf("inspect %q: %w", key, l.callError(ctx, err, driver.CallTimeout))
	}
	return l.complete(s), nil
}

// List returns the state of every key in use that begins with prefix, sorted by
// key. It is made for operators: it may be slow, and the states are not of one
// instant. Data of another program has a State with Skipped. List returns
// ErrUnavailable when the backend does not answer within 10 s, ErrClosed, or ctx's
// error.
func (l *Locker) List(ctx context.Context, prefix string) ([]State, error) {
	if err := l.check(ctx, "list", nil); err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	const bound = 10 * driver.CallTimeout
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	states, err := l.driver.List(bounded, prefix)
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, l.callError(ctx, err, bound))
	}
	all := make([]State, 0, len(states))
	for _, s := range states {
		all = append(all, l.complete(s))
	}
	return all, nil
}

// check does the common checks at the start of every call except Acquire,
// TryAcquire and With.
func (l *Locker) check(ctx context.Context, key string, argument error) error {
	switch {
	case argument != nil:
		return argument
	case l.gate.shut():
		return ErrClosed
	case ctx.Err() != nil:
		return contextError(ctx)
	}
	return checkKey(key)
}

// holder returns the Holder that describes a call with ctx that began at since.
func (l *Locker) holder(ctx context.Context, label string, since time.Time) Holder {
	h := l.self
	h.Label, h.Since = label, since
	if l.config.Identify != nil {
		return l.identify(ctx, h)
	}
	return h
}

// identify is separate from holder so that a Holder without Identify stays off
// the heap.
func (l *Locker) identify(ctx context.Context, h Holder) Holder {
	l.config.Identify(ctx, &h)
	return h
}

// complete replaces, in the backend's state of a key, this process's ticket by
// its waiters and this process's grant by its current lease. Empty lists are
// not nil: they are encoded in JSON as [].
func (l *Locker) complete(s State) State {
	if l.queues != nil {
		s = l.queues.complete(s)
	}
	if s.Holders == nil {
		s.Holders = []Holding{}
	}
	if s.Waiters == nil {
		s.Waiters = []Holder{}
	}
	return s
}

// callError classifies the error of a call that had the caller's ctx and a timeout
// of the Locker: the end of the timeout is not reported as the end of ctx. An
// outage may have used up the deadline of ctx, so only a cancelled call is
// no sign of an outage (L21).
func (l *Locker) callError(ctx context.Context, err error, bound time.Duration) error {
	cancelled := errors.Is(ctx.Err(), context.Canceled)
	switch {
	case ctx.Err() == nil:
		err = l.unavailable(err, bound)
	case cancelled && errors.Is(err, context.Canceled) && !errors.Is(err, ErrUnavailable):
		return contextError(ctx)
	case isContextError(err) && !errors.Is(err, ErrUnavailable): // of a context that ends with ctx
		err = beside(ctx, ErrUnavailable)
	default:
		err = beside(ctx, l.classify(err))
	}
	if !cancelled {
		l.health.failed(err)
	}
	return err
}

// classify converts an error of the driver to one of this package.
func (l *Locker) classify(err error) error {
	for _, known := range []error{ErrNotAcquired, ErrLost, ErrUnavailable, ErrDeadlock, ErrInvalid, ErrUnsupported, ErrClosed, ErrPoolSize} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// lacks returns an ErrUnsupported about what, with the driver's reason, if the driver
// does not keep the rule, and nil if it does.
func lacks(d driver.Info, rule, what string) error {
	for _, l := range d.Lacks {
		if l.Rule == rule {
			return fmt.Errorf("%w: %s on the driver %s: %s", ErrUnsupported, what, d.Name, l.Why)
		}
	}
	return nil
}

// beside wraps err together with the error of ctx, which has ended.
func beside(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) { // also the timeout of a connection
		return err
	}
	return fmt.Errorf("%w: %w", err, contextError(ctx))
}

// contextError returns ctx's error together with its cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
