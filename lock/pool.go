package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// The defaults of a [Pool].
const (
	defaultCleanupTimeout = 30 * time.Second
	defaultStrikes        = 3
)

// Pool describes numbered things that one holder at a time prepares, uses and
// cleans: sandboxes, ports, devices. A Pool is not changed after its first use,
// and all programs that use a key describe it in the same way.
//
// A slot that was not handed back clean is dirty: its holder crashed, lost its
// lease, or was ended by force. The next holder of a dirty slot runs Cleanup
// before Init, and so does the first holder of a slot of which the backend knows
// nothing.
type Pool struct {
	Key  string
	Size int // number of slots, 1 to MaxSlots
	// Init prepares the slot before the work; its ctx ends with the caller's, or
	// when the lease is lost. Its error is the error of the call. Nil prepares
	// nothing.
	Init func(ctx context.Context, s *Slot) error
	// Cleanup undoes Init and the work. It runs only while the lease is live. Its
	// ctx carries the caller's values and not its cancellation, and ends after
	// CleanupTimeout or when the lease is lost. It must be idempotent: it may
	// meet a slot that another process left. Nil cleans nothing: every slot that
	// is released counts as clean.
	Cleanup func(ctx context.Context, s *Slot) error
	// CleanupTimeout bounds one Cleanup. Default 30s.
	CleanupTimeout time.Duration
	// Quarantine is the time that a slot rests after it was lost or forced, so
	// that what its last holder has started can end. Default 0, at most 24h.
	Quarantine time.Duration
	// Strikes is the number of failed Inits in a row that withdraw a slot.
	// Default 3.
	Strikes int
	// Resize changes the size of a pool that is in use with another size, as
	// Slots does. Without it such a call returns a *PoolSizeError. Calls that wait
	// meanwhile get slots of the new size, also if their own is smaller.
	Resize bool
}

// WithSlot runs fn with a slot of p. It calls Init, fn and Cleanup in this
// order, and releases the slot when Cleanup has returned. Cleanup also runs
// when Init or fn has failed, panicked or called runtime.Goexit; the panic
// continues afterwards. The context given to fn ends with ctx, or when the
// lease is lost; the slot itself stays leased and renewed until Cleanup has
// returned, also after the end of ctx.
//
// WithSlot returns the error of Init or fn, and joins ErrLost to it if the lease
// was lost before Cleanup returned. A failed Cleanup is no error of the call: it
// withdraws the slot until [Locker.Heal], and is reported as Withdrawn. If
// no slot was granted, WithSlot returns the errors of [Locker.Acquire], with
// the code lock.pool_withdrawn if every slot is withdrawn; or a *PoolSizeError. The
// options NoRenew and Cooldown, and Slots with another size, are ErrInvalid.
func (l *Locker) WithSlot(ctx context.Context, p *Pool, fn func(ctx context.Context, s *Slot) error, opts ...Option) (err error) {
	c, err := l.newPoolCall(p, opts)
	c.within = true
	l.locate(&c)
	if err == nil && fn == nil {
		err = invalidOption("the function is nil") // L14
	}
	s, err := l.takeSlot(ctx, &c, err)
	if err != nil {
		return err
	}
	defer func() { // P2: also when fn panics or calls runtime.Goexit
		_, _ = s.leave()
		err = joinLoss(p.Key, err, s.loss())
	}()
	return fn(&s.work, s)
}

// AcquireSlot waits for a slot of p, prepares it with Init and returns it. The
// caller must call [Slot.Release], which runs Cleanup. The errors are those of
// [Locker.WithSlot]. Unlike a lease, a slot is not taken back when ctx ends.
func (l *Locker) AcquireSlot(ctx context.Context, p *Pool, opts ...Option) (*Slot, error) {
	c, err := l.newPoolCall(p, opts)
	l.locate(&c)
	return l.takeSlot(ctx, &c, err)
}

// Heal puts a withdrawn or resting slot of the pool key back into circulation,
// for an operator's reason of 1 to 512 bytes. Its next holder cleans it first.
// Heal changes no other slot, and is no error for a slot in another state. It
// returns ErrInvalid, ErrUnsupported, ErrUnavailable when the backend does not
// answer within a second, ErrClosed, or ctx's error.
func (l *Locker) Heal(ctx context.Context, key string, slot int, reason string) error {
	if err := cmp.Or(l.check(ctx, key, checkReason(reason)), checkSlot(slot), l.supportsPools()); err != nil {
		return fmt.Errorf("heal %q: %w", shorten(key), err)
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	if err := l.pools.Heal(bounded, key, slot, reason, l.holder(ctx, "", time.Now())); err != nil {
		return fmt.Errorf("heal %q: %w", key, l.callError(ctx, err, driver.CallTimeout))
	}
	l.observe(Healed{Key: key, Slot: slot, Reason: reason})
	return nil
}

// Pools returns the states of the pools that this Locker has used lately, at
// most 256, sorted by key. It is made for metrics: it calls the driver once per
// pool, for at most a second together, and leaves out the pools that the
// backend has forgotten. With an error it returns the states before it.
func (l *Locker) Pools(ctx context.Context) ([]State, error) {
	ctx, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	var all []State
	for _, key := range l.lastSlots.keys() {
		s, err := l.Inspect(ctx, key)
		if err != nil {
			return all, err
		}
		if s.Slots != nil {
			all = append(all, s)
		}
	}
	return all, nil
}

func checkSlot(slot int) error {
	if slot < 0 || slot >= MaxSlots {
		return invalidOption("the slot is %d, want 0 to %d", slot, MaxSlots-1)
	}
	return nil
}

// supportsPools returns ErrUnsupported if the driver keeps no states of slots.
func (l *Locker) supportsPools() error {
	if l.pools != nil {
		return nil
	}
	const what = "slots with states"
	return cmp.Or(lacks(l.info, "L15", what), fmt.Errorf("%w: %s on the driver %s", ErrUnsupported, what, l.info.Name))
}

// newPoolCall returns the arguments of a call for a slot of p.
func (l *Locker) newPoolCall(p *Pool, opts []Option) (call, error) {
	if p == nil {
		return call{slots: 1}, invalidOption("the pool is nil")
	}
	if p.Size < 1 || p.Size > MaxSlots {
		return call{key: p.Key, slots: 1}, invalidOption("Size is %d, want 1 to %d", p.Size, MaxSlots)
	}
	c := call{key: p.Key, ttl: l.config.TTL, wait: l.config.Wait, slots: p.Size, sized: true, fifo: l.config.FIFO, fixed: !p.Resize, pool: p}
	if len(opts) > 0 {
		c = c.with(opts)
	}
	if err := c.check(); err != nil {
		return c, err
	}
	switch {
	case c.slots != p.Size || c.fixed == p.Resize:
		return c, invalidOption("Slots given for a pool, which has its own size")
	case c.noRenew:
		return c, invalidOption("NoRenew given for a pool, whose slots are renewed until they are clean") // P1
	case c.cooldown > 0:
		return c, invalidOption("Cooldown given for a pool; use Quarantine")
	case p.CleanupTimeout < 0:
		return c, invalidOption("CleanupTimeout is %v, want 0 or more", p.CleanupTimeout)
	case p.Quarantine < 0 || p.Quarantine > MaxTTL:
		return c, invalidOption("Quarantine is %v, want 0 to %v", p.Quarantine, MaxTTL)
	case p.Strikes < 0:
		return c, invalidOption("Strikes is %d, want 0 or more", p.Strikes)
	}
	c.last = l.lastSlots.of(c.key, &l.clock)
	return c, nil
}

func (p *Pool) cleanupTimeout() time.Duration { return cmp.Or(p.CleanupTimeout, defaultCleanupTimeout) }

func (p *Pool) strikes() int { return cmp.Or(p.Strikes, defaultStrikes) }

// takeSlot returns a prepared slot. It leaves a slot whose first Cleanup fails
// withdrawn, and takes another one within what is left of the wait (P4).
func (l *Locker) takeSlot(ctx context.Context, c *call, invalid error) (*Slot, error) {
	for {
		lease, err := l.acquire(ctx, c, invalid)
		if err != nil {
			return nil, err
		}
		s := newSlot(lease, c)
		switch err := s.prepare(ctx); {
		case err == nil:
			return s, nil
		case !errors.Is(err, errUnclean):
			return nil, err
		}
		c.wait = c.rest(c.waited)
	}
}

// errUnclean means that a dirty slot could not be cleaned and is withdrawn.
var errUnclean = errors.New("lock: slot could not be cleaned")

// describe completes r with the pool of c.
func (l *Locker) describe(r *driver.Request, c *call) {
	r.Fixed = c.fixed
	if c.pool != nil {
		r.Pool = c.last.wants(c.pool.Quarantine)
	}
}
