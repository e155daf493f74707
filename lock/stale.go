package lock

import "fmt"

// StaleError is an ErrStale that names the lease.
type StaleError struct {
	Key   string
	Fence uint64 // of the lease
	Slot  int    // -1 for a plain key
}

func (e *StaleError) Error() string {
	if e.Slot < 0 {
		return fmt.Sprintf("lock: the fence %d of %q is stale: a later holder has written", e.Fence, e.Key)
	}
	return fmt.Sprintf("lock: the fence %d of slot %d of %q is stale: a later holder has written", e.Fence, e.Slot, e.Key)
}

// Code returns "lock.stale".
func (e *StaleError) Code() string { return ErrStale.Code() }

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Stale counts a write that a store refused because of the lease's fence,
// reports it to the observer, and returns the error for the caller. Package
// guard calls it; a store with a check of its own may call it too.
func (l *Lease) Stale() *StaleError {
	e := &StaleError{Key: l.Key(), Fence: l.fence, Slot: -1}
	if l.isSlot {
		e.Slot = l.Slot()
	}
	locker := l.hold.locker
	locker.counters.stale.Add(1)
	locker.observe(Stale{Key: e.Key, Fence: e.Fence, Slot: e.Slot})
	return e
}
