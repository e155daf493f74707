package limit

import (
	"fmt"
	"strings"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

// The errors of this package. Compare with errors.Is; each has a Code method
// that returns the dotted code given here. A context's error is wrapped beside
// the limit's own, so errors.Is(err, context.Canceled) still holds.
var (
	// ErrLimited means that a Wait or a With cannot be allowed in time:
	// limit.limited, or limit.queue_full if the key has too many waiters. It is
	// always a *LimitedError. Nothing was consumed.
	ErrLimited = driver.ErrLimited
	// ErrUnavailable means that the backend did not answer: limit.unavailable.
	ErrUnavailable = driver.ErrUnavailable
	// ErrInvalid means that an argument is out of bounds: limit.invalid_key or
	// limit.invalid_option. Nothing was sent to the backend.
	ErrInvalid = driver.ErrInvalid
	// ErrUnsupported means that the driver does not support the call, or that
	// Concurrent has no Locker: limit.unsupported.
	ErrUnsupported = driver.ErrUnsupported
	// ErrClosed means that the Limiter was closed: limit.closed.
	ErrClosed = driver.ErrClosed
)

// LimitedError is an ErrLimited with the reason.
type LimitedError struct {
	Key string
	// RetryAfter is the estimated time after which the call can be allowed; 0 if
	// it is not known.
	RetryAfter time.Duration
	Rate       Rate // that decided; zero for a pause, and if it is not known
	Waited     time.Duration
	Full       bool   // the key had driver.MaxTickets waiting processes
	Paused     *Pause // the pause of the key, or nil
	Err        error  // the context's error, or the lock's under Concurrent
}

func (e *LimitedError) Error() string {
	var b strings.Builder
	b.WriteString(ErrLimited.Error())
	if e.Waited >= time.Millisecond {
		fmt.Fprintf(&b, ", waited %v", e.Waited.Round(time.Millisecond))
	}
	if e.Full {
		b.WriteString(", the queue is full")
	}
	if e.Rate.N > 0 {
		fmt.Fprintf(&b, ", rate %d per %v", e.Rate.N, e.Rate.Per)
	}
	if e.Paused != nil {
		fmt.Fprintf(&b, ", paused by %v: %s", e.Paused.By, e.Paused.Reason)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, ", retry after %v", e.RetryAfter.Round(time.Millisecond))
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Code returns "limit.queue_full" if the key had too many waiting processes, and
// "limit.limited" otherwise.
func (e *LimitedError) Code() string {
	if e.Full {
		return "limit.queue_full"
	}
	return ErrLimited.Code()
}

// Is reports whether target is ErrLimited.
func (e *LimitedError) Is(target error) bool { return target == ErrLimited }

// Unwrap returns the context's error or the lock's.
func (e *LimitedError) Unwrap() error { return e.Err }

// invalidError is an ErrInvalid with a specific code and text.
type invalidError struct{ code, text string }

func (e *invalidError) Error() string        { return "limit: " + e.text }
func (e *invalidError) Code() string         { return e.code }
func (e *invalidError) Is(target error) bool { return target == ErrInvalid }

func invalidOption(format string, args ...any) error {
	return &invalidError{"limit.invalid_option", fmt.Sprintf(format, args...)}
}
