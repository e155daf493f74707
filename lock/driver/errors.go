package driver

import (
	"fmt"
	"strings"
	"time"
)

// Error is an error that callers can compare with errors.Is. Its code is for
// programs.
type Error struct{ code, text string }

// Error returns the text.
func (e *Error) Error() string { return e.text }

// Code returns the stable dotted code, such as "lock.lost".
func (e *Error) Code() string { return e.code }

// The errors of locks. A busy key (ErrNotAcquired) and an unavailable backend
// (ErrUnavailable) are never the same error.
var (
	ErrNotAcquired = &Error{"lock.not_acquired", "lock: not acquired"}
	ErrLost        = &Error{"lock.lost", "lock: lost"}
	ErrUnavailable = &Error{"lock.unavailable", "lock: backend unavailable"}
	ErrDeadlock    = &Error{"lock.deadlock", "lock: already held on this context"}
	ErrInvalid     = &Error{"lock.invalid", "lock: invalid"}
	ErrUnsupported = &Error{"lock.unsupported", "lock: unsupported by the driver"}
	ErrClosed      = &Error{"lock.closed", "lock: closed"}
	ErrStale       = &Error{"lock.stale", "lock: stale fence"}
	ErrNoLease     = &Error{"lock.no_lease", "lock: no lease on the context"}
	ErrPoolSize    = &Error{"lock.pool_size", "lock: pool has another size"}
)

// NotAcquiredError is an ErrNotAcquired with the holders that were in the way.
type NotAcquiredError struct {
	Key      string
	Waited   time.Duration // set by the front; of a call for several keys: for this one
	Holders  []Holding     // the known holders, at most 16; none if only waiters are ahead
	Position int           // in the queue when it was left, from 1; 0 if never queued or not known
	Full     bool          // the queue of the key had MaxTickets tickets
	// Withdrawn reports that every slot of the pool is withdrawn. Then nobody is in
	// the way.
	Withdrawn bool
	// Resized is the size that the pool had before the request changed it, or 0.
	Resized int
	// Request is the id of the request that made the call, or "". A holder with
	// the same id works for the same request, which so waits for itself.
	Request string
	Err     error // the context's error, if it ended the wait
}

func (e *NotAcquiredError) Error() string {
	var b strings.Builder
	b.WriteString(ErrNotAcquired.text)
	if e.Waited > 0 {
		fmt.Fprintf(&b, " after %v", e.Waited.Round(time.Millisecond))
	}
	if e.Full {
		b.WriteString(", the queue is full")
	}
	if e.Withdrawn {
		b.WriteString(", every slot is withdrawn")
	}
	if e.Position > 0 {
		fmt.Fprintf(&b, ", number %d in the queue", e.Position)
	}
	for i, h := range e.Holders {
		b.WriteString([]string{", held by ", " and "}[min(i, 1)] + h.String())
		if e.Request != "" && h.Request == e.Request {
			b.WriteString(", for the same request")
		}
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Code returns "lock.queue_full" if the queue of the key was full,
// "lock.pool_withdrawn" if every slot was withdrawn, and "lock.not_acquired"
// otherwise.
func (e *NotAcquiredError) Code() string {
	switch {
	case e.Full:
		return "lock.queue_full"
	case e.Withdrawn:
		return "lock.pool_withdrawn"
	}
	return ErrNotAcquired.code
}

// Is reports whether target is ErrNotAcquired.
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// Unwrap returns the context's error, if that ended the wait.
func (e *NotAcquiredError) Unwrap() error { return e.Err }

// Cause is the reason of a loss.
type Cause string

// The causes of a loss.
const (
	Expired     Cause = "expired"     // its time ran out, or the backend no longer has it
	Forced      Cause = "forced"      // an operator forced the release: see Reason and By
	Unreachable Cause = "unreachable" // the backend could not be reached until the deadline
	Shutdown    Cause = "shutdown"    // its Locker was closed
)

// LostError is an ErrLost with the cause of the loss.
type LostError struct {
	Key    string
	Cause  Cause
	Reason string // the operator's reason, if Forced
	By     Holder // the operator, if Forced
	Err    error  // the backend's last error, if Unreachable
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("lock: lost %q: %s", e.Key, e.Cause)
	if e.Cause == Forced {
		s += fmt.Sprintf(" by %v: %s", e.By, e.Reason)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Code returns "lock.lost".
func (e *LostError) Code() string { return ErrLost.code }

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the backend's error, if there is one.
func (e *LostError) Unwrap() error { return e.Err }
