package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/megaframework/mega/internal/group"
)

// Lead runs fn in one process of the driver's scope at a time: it waits for a
// lease of key, however long, and runs fn under it. The context given to fn ends
// with ctx or with the lease; the fence of its lease is the number of the term.
//
// Lead returns nil when fn has returned nil while its lease was live. When the
// lease was lost, Lead waits for the next one, whatever fn returned. When fn has
// returned an error, Lead reports it as Retrying, releases the key, and waits
// for the next lease after a pause that grows from 1 s to 1 min; a term of a
// minute starts the pauses anew.
//
// Otherwise Lead returns ctx's error when ctx has ended, after fn has returned and
// the key is released; it wraps fn's error too if that is another one. It returns
// ErrInvalid, ErrUnsupported, ErrDeadlock and ErrClosed at once. It refuses the
// options Wait and Slots.
func (l *Locker) Lead(ctx context.Context, key string, fn func(context.Context) error, opts ...Option) error {
	c, err := l.newCall(key, opts)
	l.locate(&c)
	switch {
	case err != nil:
	case fn == nil:
		err = invalidOption("the function is nil") // L14
	case c.waitSet:
		err = invalidOption("Wait with Lead, which waits as long as its context")
	case c.sized: // E1
		err = invalidOption("Slots(%d) with Lead", c.slots)
	}
	c.within, c.wait = true, Forever // E1, E4: a lock as any other
	p := pauses{locker: l, key: key}
	for {
		over, lasted, failed := l.term(ctx, c, fn, err)
		if over {
			return failed
		}
		if lasted >= longTerm { // E2
			p.last = 0
		}
		if failed != nil { // else a lost lease
			p.pause(ctx, failed, maxPause) // if ctx ends, the next term ends at once
		}
	}
}

// longTerm is the length of a term after which the pauses start anew.
const longTerm = time.Minute

// term waits for a lease and runs fn under it. It reports whether the campaign
// is over, with its error; otherwise failed is the error to retry after. lasted
// is the length of the term without the wait, or of a wait that has failed.
func (l *Locker) term(ctx context.Context, c call, fn func(context.Context) error, invalid error) (over bool, lasted time.Duration, failed error) {
	begun := l.clock.now()
	lease, err := l.acquire(ctx, &c, invalid)
	if ctx.Err() != nil && err != nil {
		return true, 0, fmt.Errorf("lead %q: %w", c.key, contextError(ctx))
	}
	if err != nil {
		return isFinal(err), l.clock.now().sub(begun), err
	}
	lost := false
	err = func() error {
		defer func() { lost = lease.finish() != nil }() // L11; E3: at once
		return fn(lease.Context())
	}()
	lasted = l.clock.now().sub(lease.since)
	switch {
	case ctx.Err() != nil && (lost || err != nil):
		ended := contextError(ctx)
		if err != nil && !errors.Is(err, ctx.Err()) { // E2: no retry reports it
			ended = fmt.Errorf("%w: %w", ended, err)
		}
		return true, lasted, fmt.Errorf("lead %q: %w", c.key, ended)
	case lost:
		return false, lasted, nil // E2
	}
	return err == nil, lasted, err
}

// isFinal reports whether another try would fail in the same way.
func isFinal(err error) bool {
	for _, final := range []error{ErrInvalid, ErrUnsupported, ErrDeadlock, ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// Every runs fn once per tick in the driver's scope, as [Locker.Once] does, until
// ctx ends. Each process asks at the beginning of each tick, with a jitter of at
// most a tenth of the interval and at most a second, and at once when Every is
// called: a tick that nobody has used yet is used then. The ticks are the
// backend's; the clock of the process does not matter.
//
// Under [AtLeastOnce], Every waits while another process runs fn, for any Wait: if
// that process crashes, this one runs fn in the same tick. When a run has lasted
// longer than a tick, a process that waits runs the present tick at once; without
// one, the next run is in the next tick.
//
// An error of fn is reported as Ran and does not end Every. When the backend
// does not answer, Every reports Retrying and asks again after 1 s to 1 min, or after
// the interval if that is shorter.
//
// Every returns ctx's error when ctx has ended, after fn has returned, and
// ErrInvalid, ErrUnsupported, ErrDeadlock and ErrClosed at once.
func (l *Locker) Every(ctx context.Context, key string, every time.Duration, fn func(context.Context) error, opts ...Option) error {
	c, err := l.newOnce(key, every, fn, opts)
	l.locate(&c)
	if c.atLeast { // O3: the tick is due again when the process of the run crashes
		c.wait = Forever
	}
	p := pauses{locker: l, key: key}
	var tick instant // on l.awake, the beginning of a tick; 0 before the first answer
	for {
		round, called := c, false
		_, failed := l.once(ctx, &round, every, func(ctx context.Context) error {
			called = true
			return fn(ctx)
		}, err)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("run %q every %v: %w", key, every, contextError(ctx))
		case failed == nil, called && !round.lost: // fn may return the ErrLost of another key
			p.last = 0
			tick = cmp.Or(round.nextTick, tick)
			l.sleepUntil(ctx, l.tickAfter(tick, every).add(spread(every)))
		case !called && isFinal(failed):
			return failed
		default: // under AtLeastOnce, the tick of a lost lease is still due
			p.pause(ctx, failed, min(every, maxPause))
		}
	}
}

// tickAfter returns the first tick from now on, given the beginning of any tick,
// or 0 if none is known: then it returns the time to ask again.
func (l *Locker) tickAfter(tick instant, every time.Duration) instant {
	now := l.awake.now()
	switch {
	case tick == 0:
		return now.add(min(every, maxPause))
	case tick <= now:
		return tick.add((now.sub(tick)/every + 1) * every) //nolint:durationcheck // a quotient of durations is a number
	}
	return tick
}

// pauses are the pauses of a campaign: from 1 s to 1 min, each twice as long as
// the last, before a random part of up to a fifth.
type pauses struct {
	locker *Locker
	key    string
	last   time.Duration
}

const (
	minPause = time.Second
	maxPause = time.Minute
)

// pause reports failed and sleeps, for about most at most, or until ctx ends.
func (p *pauses) pause(ctx context.Context, failed error, most time.Duration) {
	p.last = min(max(2*p.last, minPause), maxPause)
	d := group.Jitter(min(p.last, most))
	p.locker.observe(Retrying{Key: p.key, Err: failed, Pause: d})
	p.locker.sleepUntil(ctx, p.locker.awake.now().add(d))
}

// sleepUntil sleeps until t on l.awake, until ctx ends or until Close. It looks at the
// clock once a minute, because timers do not count the time of a suspended machine.
func (l *Locker) sleepUntil(ctx context.Context, t instant) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.gate.closing, cancel)()
	for left := t.sub(l.awake.now()); left > 0; left = t.sub(l.awake.now()) {
		if !group.Sleep(ctx, min(left, time.Minute)) {
			return
		}
	}
}

// spread returns the time after the beginning of a tick at which this process
// asks, so that not all processes ask at once.
func spread(every time.Duration) time.Duration { return rand.N(min(every/10, time.Second) + 1) }
