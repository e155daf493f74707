package lock

import "github.com/megaframework/mega/lock/driver"

// The errors of this package. Compare with errors.Is; each has a Code method
// that returns the dotted code given here, also through errors.As with an
// interface{ Code() string }. A context's error is wrapped beside the lock's
// own, so errors.Is(err, context.Canceled) still holds.
var (
	// ErrNotAcquired reports that the lock was busy until the wait was over:
	// lock.not_acquired, or lock.queue_full if the key has too many waiters. It
	// is always a *NotAcquiredError.
	ErrNotAcquired = driver.ErrNotAcquired
	// ErrLost says that a lease ended before it was released: lock.lost. It is a
	// *LostError, but for what is asked of a lease after its release.
	ErrLost = driver.ErrLost
	// ErrUnavailable says that the backend did not answer, or not in a way
	// that can be relied on: lock.unavailable.
	ErrUnavailable = driver.ErrUnavailable
	// ErrDeadlock says that the key is held further up on the same context
	// chain, so that waiting would not end: lock.deadlock.
	ErrDeadlock = driver.ErrDeadlock
	// ErrInvalid says that an argument is out of bounds: lock.invalid_key or
	// lock.invalid_option. Nothing was sent.
	ErrInvalid = driver.ErrInvalid
	// ErrUnsupported says that the driver cannot do this: lock.unsupported.
	ErrUnsupported = driver.ErrUnsupported
	// ErrClosed says that the Locker was closed: lock.closed.
	ErrClosed = driver.ErrClosed
)

type (
	// NotAcquiredError is an ErrNotAcquired that says who was in the way.
	NotAcquiredError = driver.NotAcquiredError
	// LostError is an ErrLost that says why.
	LostError = driver.LostError
	// Cause is why a lease was lost.
	Cause = driver.Cause
	// Holder says who holds or waits.
	Holder = driver.Holder
	// Holding is a live lease, seen from outside.
	Holding = driver.Holding
	// State is what a key looked like at one instant.
	State = driver.State
)

// The causes of a loss.
const (
	Expired     = driver.Expired
	Forced      = driver.Forced
	Unreachable = driver.Unreachable
	Shutdown    = driver.Shutdown
)
