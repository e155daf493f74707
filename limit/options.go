package limit

import (
	"cmp"
	"context"
	"time"

	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock"
	lockdriver "github.com/megaframework/mega/lock/driver"
)

// maxConcurrent bounds Concurrent.
const maxConcurrent = lock.MaxSlots

// Config configures a [Limiter]. The zero value is ready for use.
type Config struct {
	// Locker has the slots of Concurrent: the key of the pool is "limit:"
	// followed by the key of the limit, or by "sha256:" and its hash if that is
	// too long for a lock. Its driver should have the same scope.
	// Default: none, and Concurrent is ErrUnsupported.
	Locker *lock.Locker
	// Observer receives the events of the Limiter. Default: none.
	Observer Observer
	// Identify completes the Holder that describes a waiter or a pause of a call
	// with ctx. Host, PID and Since are already in it. It runs on the goroutine of
	// the call, for several calls at once, and must not block.
	Identify func(ctx context.Context, h *Holder)
	// Cache is the number of keys whose refusals this process remembers, for at
	// most a second, so that it does not ask again too early. Default 4096;
	// negative remembers none.
	Cache int
}

const defaultCache = 4096

func (c Config) withDefaults() Config {
	c.Cache = cmp.Or(c.Cache, defaultCache)
	return c
}

// Option changes one call. Options are immutable and may be shared.
type Option struct {
	kind optionKind
	n    int64
}

type optionKind int8

const (
	costOption optionKind = iota + 1
	maxWaitOption
)

// Cost sets the number of units of the call, 1 to the smallest N of its rates.
// Default 1. Allow with 0 consumes nothing and reports whether one unit would
// be allowed.
func Cost(n int) Option { return Option{costOption, int64(n)} }

// MaxWait bounds the time that Wait and With wait for units. A call that comes together
// with others of its process also waits for the answers to them, for about a second
// at most. A backend that does not answer is ErrUnavailable after a second, also with a
// shorter MaxWait; the deadline of the context bounds that, too. Default: as long as
// the context lasts. Allow never waits and refuses this option.
func MaxWait(d time.Duration) Option { return Option{maxWaitOption, int64(d)} }

// forever is the MaxWait of a call without one.
const forever time.Duration = -1

// call holds the arguments of one call.
type call struct {
	key     string
	limit   Limit
	rates   []Rate // for the driver
	cost    int
	maxWait time.Duration
}

// newCall returns the arguments, or an error if one is out of bounds.
func newCall(key string, m *Limit, opts []Option) (call, error) {
	c := call{key: key, limit: *m, cost: 1, maxWait: forever}
	if err := keyFault(key); err != nil {
		return c, err
	}
	if err := m.check(); err != nil {
		return c, err
	}
	for _, o := range opts {
		switch o.kind {
		case costOption:
			c.cost = int(o.n)
		case maxWaitOption:
			if o.n < 0 {
				return c, invalidOption("MaxWait is %v, want 0 or more", time.Duration(o.n))
			}
			c.maxWait = time.Duration(o.n)
		}
	}
	if c.cost < 0 || c.cost > m.smallest() {
		return c, invalidOption("Cost is %d, want 0 to %d, the smallest N", c.cost, m.smallest()) // W4
	}
	c.rates = m.effective()
	return c, nil
}

// keyFault refuses a key as a lock does (W15).
func keyFault(key string) error {
	if fault := lockdriver.KeyFault(key); fault != "" {
		return &invalidError{"limit.invalid_key", fault}
	}
	return nil
}

// request returns the request of c at the driver.
func (c *call) request() driver.Request {
	return driver.Request{Key: c.key, Rates: c.rates, Smooth: c.limit.Smooth, Cost: c.cost}
}

// by returns the rate with an index of the driver.
func (c *call) by(i int) Rate {
	if i < 0 || i >= len(c.limit.Rates) {
		return Rate{}
	}
	return c.limit.Rates[i]
}
