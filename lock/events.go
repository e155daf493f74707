package lock

import "time"

// Observer is told what happens in a [Locker]. Observe is called
// synchronously, from several goroutines at once and outside all locks; it
// must not block. A panic in it is caught and dropped.
//
// Logs, metrics, traces and consoles hang on it, so that this package needs
// none of their libraries.
type Observer interface {
	Observe(Event)
}

// Event is one of the event types of this package. More may be added.
type Event interface{ event() }

type (
	// Acquired: a lease was granted, after it had to wait if Contended. Handed
	// says that it was passed on inside the process, without asking the
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
	// ForcedRelease: this process took a key's leases away.
	ForcedRelease struct {
		Key, Reason string
		Released    int
	}
	// RenewFailed: a renewal did not get through and will be tried again.
	RenewFailed struct {
		Key  string
		Err  error
		Left time.Duration // until the lease is lost
	}
	// ReleaseFailed: a release, or the clean-up of an unknown outcome, did not
	// get through. It is tried again in the background until Left has passed.
	ReleaseFailed struct {
		Key  string
		Err  error
		Left time.Duration
	}
	// PoolResized: callers disagree about the size of a pool; New holds now.
	// Each pair of sizes of a key is reported once, and a key at most once a
	// minute.
	PoolResized struct {
		Key      string
		Old, New int
	}
	// Unavailable: the backend has stopped serving locks, for the reason in
	// Err. It is reported once, and ends with Available.
	Unavailable struct{ Err error }
	// Available: the backend serves locks again, After so long.
	Available struct{ After time.Duration }
	// StillHeld: Close has waited for 10 s for a lease that was taken at Site.
	StillHeld struct {
		Key   string
		Fence uint64
		Held  time.Duration
		Site  string // file:line of the call
	}
	// Forgotten: a lease from Acquire was not released although its context
	// had ended, it was garbage, or its request was over. It has been released
	// now.
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
func (Unavailable) event()   {}
func (Available) event()     {}
func (StillHeld) event()     {}
func (Forgotten) event()     {}

// observed says whether there is an observer; asking first keeps an event that
// nobody hears from being made.
func (l *Locker) observed() bool { return l.config.Observer != nil }

// observe tells the observer, if there is one. It must be called without any
// mutex held.
func (l *Locker) observe(e Event) {
	if !l.observed() {
		return
	}
	defer func() { _ = recover() }()
	l.config.Observer.Observe(e)
}
