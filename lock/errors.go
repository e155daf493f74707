package lock

import "github.com/megaframework/mega/lock/driver"

// The errors of this package. Compare with errors.Is; each has a Code method
// that returns the dotted code given here, also through errors.As with an
// interface{ Code() string }. A context's error is wrapped beside the lock's
// own, so errors.Is(err, context.Canceled) still holds.
var (
	// ErrNotAcquired means that the lock was busy until the wait ended:
	// lock.not_acquired, lock.queue_full if the key has too many waiters, or
	// lock.pool_withdrawn if every slot of the pool is withdrawn. It is always a
	// *NotAcquiredError.
	ErrNotAcquired = driver.ErrNotAcquired
	// ErrLost means that a lease ended before it was released: lock.lost. It is
	// a *LostError, except when a method of a released lease returns it.
	ErrLost = driver.ErrLost
	// ErrUnavailable means that the backend did not answer, or that its answer
	// is not reliable: lock.unavailable.
	ErrUnavailable = driver.ErrUnavailable
	// ErrDeadlock means that the wait would never end: lock.deadlock. Either a
	// parent of the context already carries a lease of the key, or calls of
	// this Locker wait for each other in a circle; the error is then a
	// *DeadlockError.
	ErrDeadlock = driver.ErrDeadlock
	// ErrInvalid means that an argument is out of bounds: lock.invalid_key or
	// lock.invalid_option. Nothing was sent to the backend.
	ErrInvalid = driver.ErrInvalid
	// ErrUnsupported means that the driver does not support the operation:
	// lock.unsupported.
	ErrUnsupported = driver.ErrUnsupported
	// ErrClosed means that the Locker was closed: lock.closed.
	ErrClosed = driver.ErrClosed
	// ErrStale means that a store has seen a greater fence than the lease's: a
	// later holder has written. Nothing was written: lock.stale. It is a
	// *StaleError where the lease is known.
	ErrStale = driver.ErrStale
	// ErrNoLease means that a guarded operation was called without a lease on
	// its context: lock.no_lease.
	ErrNoLease = driver.ErrNoLease
	// ErrPoolSize means that a pool is in use with another size: lock.pool_size.
	// It is a *PoolSizeError.
	ErrPoolSize = driver.ErrPoolSize
)

type (
	// NotAcquiredError is an ErrNotAcquired that names the holders.
	NotAcquiredError = driver.NotAcquiredError
	// LostError is an ErrLost with the cause of the loss.
	LostError = driver.LostError
	// Cause is why a lease was lost.
	Cause = driver.Cause
	// Holder describes a holder or a waiter.
	Holder = driver.Holder
	// Holding is a live lease, seen from outside.
	Holding = driver.Holding
	// PoolSizeError is an ErrPoolSize with both sizes.
	PoolSizeError = driver.PoolSizeError
	// State is the state of a key at one instant.
	State = driver.State
	// Run is one run of a key's work; see [Locker.Once].
	Run = driver.Run
	// SlotState is the state of one slot of a pool, seen from outside.
	SlotState = driver.SlotState
	// SlotStatus is free, held, dirty, resting or withdrawn.
	SlotStatus = driver.SlotStatus
	// Tally is the number of slots of a pool by status.
	Tally = driver.Tally
	// Leaving describes who left a slot dirty, when and why.
	Leaving = driver.Leaving
)

// The statuses of a slot.
const (
	SlotFree      = driver.SlotFree
	SlotHeld      = driver.SlotHeld
	SlotDirty     = driver.SlotDirty
	SlotResting   = driver.SlotResting
	SlotWithdrawn = driver.SlotWithdrawn
)

// The reasons why a slot is dirty.
const (
	LeftUnknown  = driver.LeftUnknown
	LeftExpired  = driver.LeftExpired
	LeftForced   = driver.LeftForced
	LeftDied     = driver.LeftDied
	LeftReleased = driver.LeftReleased
	LeftShrunk   = driver.LeftShrunk
	LeftHealed   = driver.LeftHealed
)

// The causes of a loss.
const (
	Expired     = driver.Expired
	Forced      = driver.Forced
	Unreachable = driver.Unreachable
	Shutdown    = driver.Shutdown
)
