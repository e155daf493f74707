package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/megaframework/mega/lock/driver"
)

// The bounds of the arguments of a call.
const (
	MaxKey   = driver.MaxKey // bytes
	MinTTL   = 100 * time.Millisecond
	MaxTTL   = 24 * time.Hour
	MaxSlots = 4096
	MaxLabel = 128 // bytes

	// MaxReason bounds the reason of a ForceRelease or a Heal, in bytes.
	MaxReason = 512
)

// Forever, given to [Wait], waits as long as the context does.
const Forever = time.Duration(math.MaxInt64)

// Config configures a [Locker]. The zero value is ready for use.
type Config struct {
	// TTL is the time that others wait after a crash of the holder, unless a
	// call sets another one. Default 10s.
	TTL time.Duration
	// Wait is the time that a call waits for a busy lock, unless the call sets
	// another one. Default 5s.
	Wait time.Duration
	// FIFO makes the order of every call strict across processes, as [FIFO]
	// does for one call.
	FIFO bool
	// Observer receives the events of the Locker. Default: none.
	Observer Observer
	// Identify completes the Holder that describes a lease or a waiter of a
	// call with ctx. Host, PID, Label and Since are already in it. It runs on the
	// goroutine of the call, for several calls at once, and must not block.
	Identify func(ctx context.Context, h *Holder)
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
	c.Wait = cmp.Or(c.Wait, 5*time.Second)
	return c
}

// Option changes one call. Options are immutable and may be shared.
type Option struct {
	apply func(*call)
}

// TTL sets the time that others wait after a crash of the holder, 100ms to 24h.
// It does not have to cover the duration of the work: a lease renews itself.
func TTL(d time.Duration) Option { return Option{func(c *call) { c.ttl = d }} }

// Wait bounds the time that the call spends in the queue of a busy lock, and
// nothing else: a free key is granted for any value of Wait. With 0 the call
// does not wait. TryAcquire never waits and refuses this option.
func Wait(d time.Duration) Option { return Option{func(c *call) { c.wait, c.waitSet = d, true }} }

// Slots makes the key a pool of n numbered slots, 1 to 4096, of which the lease
// has one: see [Lease.Slot]. All callers of a key should use the same n; the n
// of the newest call applies. Under Slots(1) the key is locked as without the
// option; only package guard distinguishes the slot of such a pool from a plain
// key.
func Slots(n int) Option { return Option{func(c *call) { c.slots, c.sized = n, true }} }

// FixedSlots is Slots for a pool whose size nobody may change: while the pool is
// in use with another size, the call returns a *PoolSizeError.
func FixedSlots(n int) Option {
	return Option{func(c *call) { c.slots, c.sized, c.fixed = n, true, true }}
}

// FIFO makes the order strict across processes. It costs throughput under
// contention.
func FIFO() Option { return Option{func(c *call) { c.fifo = true }} }

// NoRenew disables the renewal of the lease, which then ends at its TTL.
func NoRenew() Option { return Option{func(c *call) { c.noRenew = true }} }

// Label describes the purpose of the lease to other processes, in at most 128
// bytes of UTF-8 without control characters.
func Label(s string) Option { return Option{func(c *call) { c.label = s }} }

// Cooldown keeps the key taken after its release, until d after the grant, 0 to
// 24h (O5): other callers wait or are refused until then. It is kept by the backend,
// and so outlives the process, except with a driver whose scope is the process.
// At a socket of the cluster driver, it ends when both the process and the hub
// have ended. After a crash of the holder, the key becomes free at the end of its TTL.
// A key is free at once after a ForceRelease, and if its lease was for nothing: a Once
// that was not due, or an AcquireAll that failed at another key.
func Cooldown(d time.Duration) Option { return Option{func(c *call) { c.cooldown = d }} }

// AtLeastOnce makes [Locker.Once] and [Locker.Every] store the tick when the
// function has returned instead of when it starts: after a crash, the loss of the
// lease, or a shutdown that the function answers with an error, another process runs
// it again in the same tick (O3). A panic of the function spends the tick as an error
// does, also if it ends the process.
func AtLeastOnce() Option { return Option{func(c *call) { c.atLeast = true }} }

// Forwarded makes the caller of the calling function the call site in events. It
// is for functions that only forward their arguments to a Locker.
func Forwarded() Option { return Option{func(c *call) { c.forwarded = true }} }

// call holds the arguments of one call, and what the call records about itself.
type call struct {
	key           string
	ttl, wait     time.Duration
	waitSet       bool
	slots         int
	sized         bool      // the call is for a slot of a pool, of any size
	fixed         bool      // refuse a pool of another size
	pool          *Pool     // of WithSlot and AcquireSlot, else nil
	last          *lastSlot // of pool
	fifo, noRenew bool
	cooldown      time.Duration
	atLeast       bool
	label         string
	within        bool // the lease belongs to With and ends with its function
	forwarded     bool // the caller's caller is the call site
	from          callers

	// The record. acquire sets left, and a Once the last two.
	left     time.Duration // of wait
	waited   time.Duration // until the grant
	slot     *Slot         // the room for a slot of pool
	nextTick instant       // on the clock awake, the beginning of the next tick, as the backend has reported it
	lost     bool          // the lease was lost
}

func (l *Locker) newCall(key string, opts []Option) (call, error) {
	c := call{key: key, ttl: l.config.TTL, wait: l.config.Wait, slots: 1, fifo: l.config.FIFO}
	if len(opts) > 0 {
		c = c.with(opts)
	}
	return c, c.check()
}

// with applies options. It is a separate function so that a call without
// options stays off the heap.
func (c call) with(opts []Option) call {
	for _, o := range opts {
		if o.apply != nil {
			o.apply(&c)
		}
	}
	return c
}

func (c *call) check() error {
	if err := checkKey(c.key); err != nil {
		return err
	}
	switch {
	case c.ttl < MinTTL || c.ttl > MaxTTL:
		return invalidOption("TTL is %v, want %v to %v", c.ttl, MinTTL, MaxTTL)
	case c.wait < 0:
		return invalidOption("Wait is %v, want 0 or more", c.wait)
	case c.slots < 1 || c.slots > MaxSlots:
		return invalidOption("Slots is %d, want 1 to %d", c.slots, MaxSlots)
	case c.cooldown < 0 || c.cooldown > MaxTTL:
		return invalidOption("Cooldown is %v, want 0 to %v", c.cooldown, MaxTTL)
	case len(c.label) > MaxLabel:
		return invalidOption("Label has %d bytes, want at most %d", len(c.label), MaxLabel)
	case !utf8.ValidString(c.label):
		return invalidOption("Label %q is not valid UTF-8", c.label)
	case strings.ContainsFunc(c.label, unicode.IsControl):
		return invalidOption("Label %q contains a control character", c.label)
	}
	return nil
}

// checkKey refuses a key that is out of bounds or has an invisible character
// (L14).
func checkKey(key string) error {
	if fault := driver.KeyFault(key); fault != "" {
		return invalid("lock.invalid_key", "%s", fault)
	}
	return nil
}

// invalidError is an ErrInvalid with a specific code and text.
type invalidError struct{ code, text string }

func (e *invalidError) Error() string        { return "lock: " + e.text }
func (e *invalidError) Code() string         { return e.code }
func (e *invalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(code, format string, args ...any) error {
	return &invalidError{code, fmt.Sprintf(format, args...)}
}

func invalidOption(format string, args ...any) error {
	return invalid("lock.invalid_option", format, args...)
}

var errNilDriver = errors.New("lock: New needs a driver")

func (c Config) check(d driver.Driver) error {
	if d == nil {
		return errNilDriver
	}
	if err := lacks(d.Info(), "L7", "FIFO"); c.FIFO && err != nil {
		return err
	}
	probe := call{key: "config", ttl: c.TTL, wait: c.Wait, slots: 1}
	return probe.check()
}
