package lock

import "time"

// Observer receives the events of a [Locker]. Observe is called synchronously,
// from several goroutines at once and outside all locks; it must not block. A
// panic in it is caught and dropped.
//
// Logs, metrics, traces and consoles are observers, so that this package needs
// none of their libraries.
type Observer interface {
	Observe(Event)
}

// Event is one of the event types of this package. More may be added.
type Event interface{ event() }

type (
	// Acquired: a lease was granted, after a wait if Contended. Handed is set
	// if the grant was handed on inside the process, without a call to the
	// backend.
	Acquired struct {
		Key       string
		Fence     uint64
		Slot      int
		Waited    time.Duration
		Contended bool
		Handed    bool
	}
	// NotAcquired: a call ended without a lease, for the reason in Err: busy,
	// cancelled, unavailable, closed.
	NotAcquired struct {
		Key string
		Err error
	}
	// Released: a lease ended as it should.
	Released struct {
		Key   string
		Fence uint64
		Held  time.Duration
	}
	// Lost: a lease ended before it was released. Err is a *LostError, also
	// for a lease taken by ForceRelease (see its Cause).
	Lost struct {
		Key   string
		Fence uint64
		Held  time.Duration
		Err   error
	}
	// ForcedRelease: this process ended the leases of a key by force: all of them,
	// or the one that OnlySlot or OnlyFence names. Released is their number in all
	// processes, which may be 0.
	ForcedRelease struct {
		Key, Reason string
		Released    int
	}
	// RenewFailed: a renewal failed and will be retried.
	RenewFailed struct {
		Key  string
		Err  error
		Left time.Duration // until the lease is lost
	}
	// ReleaseFailed: a release failed. It is retried in the background until Left
	// has passed. Without a Fence nobody held a lease: the outcome of a request is
	// not known, and what it may have got is released.
	ReleaseFailed struct {
		Key   string
		Fence uint64
		Err   error
		Left  time.Duration
	}
	// PoolResized: callers use different sizes for a pool; New applies now.
	// Each pair of sizes of a key is reported once, and a key at most once a
	// minute.
	PoolResized struct {
		Key      string
		Old, New int
	}
	// Withdrawn: this process has withdrawn a slot of a pool, because its
	// Cleanup or several Inits in a row have failed. Nobody gets it until Heal.
	Withdrawn struct {
		Key    string
		Slot   int
		Reason string
	}
	// Healed: a Heal of this process has succeeded. A slot that was neither withdrawn
	// nor resting is as before.
	Healed struct {
		Key    string
		Slot   int
		Reason string
	}
	// Unavailable: the backend has stopped serving locks, for the reason in
	// Err. It is reported once, and ends with Available.
	Unavailable struct{ Err error }
	// Available: the backend serves locks again; After is the length of the
	// outage.
	Available struct{ After time.Duration }
	// Stale: a store refused a write because it has seen a greater fence than
	// the lease's.
	Stale struct {
		Key   string
		Fence uint64
		Slot  int
	}
	// Ran: the function of a Once or an Every has ended, and its key is released.
	// Err is its error, joined with an ErrLost if the lease was lost. It is not nil
	// after a panic or runtime.Goexit either.
	Ran struct {
		Key  string
		Tick int64
		Took time.Duration
		Err  error
	}
	// Retrying: the function of a Lead has returned the error Err, or a Lead or
	// an Every could not use its key because of Err. It tries again after Pause.
	Retrying struct {
		Key   string
		Err   error
		Pause time.Duration
	}
	// StillHeld: Close has waited for 10 s for a lease that was acquired at
	// Site.
	StillHeld struct {
		Key   string
		Fence uint64
		Held  time.Duration
		Site  string // file:line of the call
	}
	// Forgotten: the Locker released a lease from Acquire that its caller did
	// not release although its context had ended, or that was garbage.
	Forgotten struct {
		Key    string
		Fence  uint64
		Reason string // "its context ended", "it was garbage collected"
		Site   string // file:line of the Acquire
	}
)

func (Acquired) event()      {}
func (NotAcquired) event()   {}
func (Released) event()      {}
func (Lost) event()          {}
func (ForcedRelease) event() {}
func (RenewFailed) event()   {}
func (ReleaseFailed) event() {}
func (PoolResized) event()   {}
func (Withdrawn) event()     {}
func (Healed) event()        {}
func (Unavailable) event()   {}
func (Available) event()     {}
func (Stale) event()         {}
func (Ran) event()           {}
func (Retrying) event()      {}
func (StillHeld) event()     {}
func (Forgotten) event()     {}

// observed reports whether there is an observer. A check before the call of
// observe avoids the construction of an event without a receiver.
func (l *Locker) observed() bool { return l.config.Observer != nil }

// observe passes e to the observer, if there is one. It must be called without
// any mutex held.
func (l *Locker) observe(e Event) {
	if !l.observed() {
		return
	}
	defer func() { _ = recover() }()
	l.config.Observer.Observe(e)
}
