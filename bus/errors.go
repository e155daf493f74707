package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/megaframework/mega/bus/driver"
)

// The errors of this package. Compare with errors.Is; each has a Code method
// that returns the dotted code given here, also through errors.As with an
// interface{ Code() string }. A context's error is wrapped beside the bus's
// own, so errors.Is(err, context.Canceled) still holds.
var (
	// ErrBadSubject says that a subject or pattern breaks the grammar, or that
	// a pattern was given where a subject is wanted: bus.bad_subject.
	ErrBadSubject = driver.ErrBadSubject
	// ErrBadGroup says that the name of a group breaks the grammar:
	// bus.bad_group.
	ErrBadGroup = driver.ErrBadGroup
	// ErrBadHeader says that a key or a value cannot be sent: bus.bad_header.
	ErrBadHeader = driver.ErrBadHeader
	// ErrInvalid says that an option is out of bounds: bus.invalid.
	ErrInvalid = driver.ErrInvalid
	// ErrTooLarge says that a message is larger than the bus takes:
	// bus.too_large. It is always a *TooLargeError.
	ErrTooLarge = driver.ErrTooLarge
	// ErrClosed says that the Bus was closed: bus.closed.
	ErrClosed = driver.ErrClosed
	// ErrDraining says that the Bus takes no new subscriptions, since it is
	// being drained: bus.draining.
	ErrDraining = driver.ErrDraining
	// ErrNoResponders says that nobody responds to the subject:
	// bus.no_responders.
	ErrNoResponders = driver.ErrNoResponders
	// ErrTimeout says that no answer came in time: bus.timeout. It is a
	// context.DeadlineExceeded too.
	ErrTimeout = driver.ErrTimeout
	// ErrOverloaded says that there was no room for the message until its
	// context ended, or that a responder had none: bus.overloaded.
	ErrOverloaded = driver.ErrOverloaded
	// ErrDisconnected says that the backend, or who was asked, cannot be
	// reached: bus.disconnected. Asking again may help; whether the request was
	// handled is not known.
	ErrDisconnected = driver.ErrDisconnected
	// ErrRefused says that the backend refused a subscription, a publish or a
	// request, as for want of a permission. The error has the backend's words.
	ErrRefused = driver.ErrRefused
	// ErrTerminated says that a subscription was ended because its buffer was
	// full: bus.terminated.
	ErrTerminated = driver.ErrTerminated
	// ErrDecode says that data are not what was expected: bus.decode.
	ErrDecode = driver.ErrDecode
	// ErrCycle says that a message is the last of a chain of more than MaxHops,
	// each sent while the one before was handled: bus.cycle.
	ErrCycle = driver.ErrCycle
	// ErrUnsupported says that the driver cannot do this: bus.unsupported.
	ErrUnsupported = driver.ErrUnsupported

	// ErrEnd is what a [Responder] returns instead of an answer once it has
	// given all of its answers by [Msg.Reply]: it ends RequestMany.
	ErrEnd = errors.New("bus: end of the answers")
)

type (
	// TooLargeError is an ErrTooLarge that says by how much.
	TooLargeError = driver.TooLargeError
	// RemoteError is what a responder answered instead of a result.
	RemoteError = driver.RemoteError
	// PanicError is what a handler's panic has become.
	PanicError = driver.PanicError
)

// known are the errors that a driver may return.
var known = []error{
	ErrClosed, ErrNoResponders, ErrTimeout, ErrOverloaded, ErrDisconnected, ErrRefused, ErrTerminated, ErrTooLarge, ErrUnsupported,
	ErrBadSubject, ErrBadGroup, ErrBadHeader, ErrInvalid, ErrDraining,
}

// classify makes an error of the driver one of this package's, beside the
// error of ctx if that has ended.
func classify(ctx context.Context, err error) error {
	for _, k := range known {
		if errors.Is(err, k) {
			return beside(ctx, err)
		}
	}
	if ctx.Err() != nil {
		return beside(ctx, err)
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// beside adds the error of a context that has ended.
func beside(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w: %w", err, contextError(ctx))
}

// contextError is ctx's error together with its cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
