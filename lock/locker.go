package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Locker grants leases of named keys. It owns its driver, and all that must be
// the same on every driver: validation, defaults, the local queue, renewal,
// loss, clean-up, events and counters.
type Locker struct {
	driver   driver.Driver
	info     driver.Info
	config   Config
	self     Holder // the part of a Holder that does not change
	clock    clock
	counters counters

	gate     gate     // counts who is inside, for Close
	crew     crew     // owns the background goroutines
	cleaner  cleaner  // repeats releases that did not get through
	schedule schedule // renews the holds and ends them in time
	queues   *queues  // waiters of this process by key; nil where the driver's scope is the process
	sizes    sizes    // disagreements about pools that were reported

	stragglers stragglers // lost leases whose functions still run
	health     health     // whether the backend serves

	closeOnce sync.Once
	over      chan struct{} // closed when a Close has come to its end
}

// New returns a Locker over d, which it owns from now on: Close closes it. The
// zero Config works; values out of bounds are ErrInvalid.
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
	l.clock = newClock(l.info.Scope)
	l.crew.init()
	l.gate.init()
	l.health.locker = l
	l.cleaner.init(l)
	if l.info.Scope > driver.Process {
		l.schedule.nap = maxNap
		l.queues = newQueues(l)
	}
	l.schedule.init(l.tick, &l.clock)
	return l, nil
}

// With runs fn under a lease of key and releases it when fn has returned,
// panicked or called runtime.Goexit. The context given to fn is that of the
// lease: it ends with ctx, or when the lease is lost.
//
// With returns fn's error. If the lease was lost before fn returned, it
// returns an error that wraps ErrLost as well as fn's, also where fn returned
// nil. If the lease was not granted, fn is not called; see [Locker.Acquire]
// for the errors.
func (l *Locker) With(ctx context.Context, key string, fn func(context.Context) error, opts ...Option) (err error) {
	c, err := l.newCall(key, opts)
	c.within = true
	runtime.Callers(2, c.site[:])
	if err == nil && fn == nil {
		err = invalidOption("the function is nil") // L14
	}
	lease, err := l.acquire(ctx, &c, err)
	if err != nil {
		return err
	}
	// L11: also when fn panics or calls runtime.Goexit.
	defer func() { err = joinLoss(key, err, lease.leave()) }()
	return fn(lease.Context())
}

// joinLoss adds what releasing found out to what the work returned. A release
// that did not get through is repeated in the background and is not the
// work's failure: the lease was live until the work was done.
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
// The lease lives on ctx: when ctx has ended and the lease is not released
// soon after, it is released and reported as Forgotten.
//
// The errors: *NotAcquiredError (ErrNotAcquired) when the wait is over and the
// backend has confirmed within the last 2 s that the key is busy, which wraps
// ctx's error if that ended the wait; ErrUnavailable when the backend does not
// answer; ctx's error alone when it ended before either was known; ErrDeadlock
// when ctx already carries a lease of the key; ErrInvalid, ErrUnsupported and
// ErrClosed.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	// Where the call came from is cheapest to find out in a small function.
	var site callSite
	runtime.Callers(2, site[:])
	return l.acquireFrom(ctx, key, opts, &site)
}

func (l *Locker) acquireFrom(ctx context.Context, key string, opts []Option, site *callSite) (*Lease, error) {
	c, err := l.newCall(key, opts)
	c.site = *site
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
	runtime.Callers(2, c.site[:])
	return l.acquire(ctx, &c, err)
}

// ForceRelease ends every lease of key, whoever holds it, and returns how many
// there were. Their contexts end with a *LostError whose cause is Forced and
// that carries reason and who asked; the next waiters are served. It needs a
// reason of 1 to 512 bytes.
func (l *Locker) ForceRelease(ctx context.Context, key, reason string) (released int, err error) {
	if err := l.check(ctx, key, checkReason(reason)); err != nil {
		return 0, fmt.Errorf("force release %q: %w", shorten(key), err)
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	n, err := l.driver.ForceRelease(bounded, key, reason, l.holder(ctx, "", time.Now())) // L16
	if err != nil {
		return n, fmt.Errorf("force release %q: %w", key, l.within(ctx, err, driver.CallTimeout))
	}
	l.observe(ForcedRelease{Key: key, Reason: reason, Released: n})
	return n, nil
}

func checkReason(reason string) error {
	if reason == "" || len(reason) > MaxReason {
		return invalidOption("the reason has %d bytes, want 1 to %d", len(reason), MaxReason)
	}
	return nil
}

// Stats returns what this Locker holds and has done.
func (l *Locker) Stats() Stats {
	s := l.counters.snapshot(l.info.Name)
	s.Unavailable = l.health.lost() != nil
	return s
}

// Unavailable returns why the backend does not serve locks now, or nil. A loss
// is found by the first call that fails.
func (l *Locker) Unavailable() error { return l.health.lost() }

// Held returns the keys of the leases that this Locker holds, sorted; that of a
// pool once for each slot. It asks the driver nothing; a lease that is just
// being renewed may be missing.
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

// Info says what the driver is, how far its exclusion reaches and what it
// cannot do.
func (l *Locker) Info() driver.Info { return l.info }

// Inspect returns who holds key, and who waits for it in the order of service.
// The waiters of other processes that queue behind one another there appear as
// one.
func (l *Locker) Inspect(ctx context.Context, key string) (State, error) {
	if err := l.check(ctx, key, nil); err != nil {
		return State{}, fmt.Errorf("inspect %q: %w", shorten(key), err)
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	s, err := l.driver.Inspect(bounded, key)
	if err != nil {
		return State{}, fmt.Errorf("inspect %q: %w", key, l.within(ctx, err, driver.CallTimeout))
	}
	return l.complete(s), nil
}

// List returns the state of every key in use that begins with prefix, sorted
// by key. It is made for operators: it may be slow, and is not one instant's
// view.
func (l *Locker) List(ctx context.Context, prefix string) ([]State, error) {
	if err := l.check(ctx, "list", nil); err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, err)
	}
	const bound = 10 * driver.CallTimeout
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	states, err := l.driver.List(bounded, prefix)
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", prefix, l.within(ctx, err, bound))
	}
	all := make([]State, 0, len(states))
	for _, s := range states {
		all = append(all, l.complete(s))
	}
	return all, nil
}

// check is what every call but Acquire's family begins with.
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

// holder is what others see of who asks with ctx since then.
func (l *Locker) holder(ctx context.Context, label string, since time.Time) Holder {
	h := l.self
	h.Label, h.Since = label, since
	if l.config.Identify != nil {
		return l.identify(ctx, h)
	}
	return h
}

// identify is apart from holder, so that a Holder nobody completes stays off
// the heap.
func (l *Locker) identify(ctx context.Context, h Holder) Holder {
	l.config.Identify(ctx, &h)
	return h
}

// complete replaces, in the backend's view of a key, the one ticket and grant
// of this process by the waiters and the lease that stand behind them. What is
// empty is a list, too: encoded as JSON it is [].
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

// within sorts the error of a call that had the caller's ctx and a bound of our
// own: an end by the latter is not passed off as the former's.
func (l *Locker) within(ctx context.Context, err error, bound time.Duration) error {
	if ctx.Err() == nil {
		return l.unavailable(err, bound)
	}
	return l.classify(err)
}

// classify makes an error of the driver one of this package's.
func (l *Locker) classify(err error) error {
	for _, known := range []error{ErrNotAcquired, ErrLost, ErrUnavailable, ErrDeadlock, ErrInvalid, ErrUnsupported, ErrClosed} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// contextError is ctx's error together with its cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
