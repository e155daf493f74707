package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/megaframework/mega/bus/driver"
)

// The errors of this package. Compare with errors.Is; each but ErrEnd has a Code
// method that returns the dotted code given here, also through errors.As with an
// interface{ Code() string }. If the end of a context caused the error, it
// wraps the context's error too, so errors.Is(err, context.Canceled) holds.
var (
	// ErrBadSubject reports a subject or pattern that breaks the grammar, or a
	// pattern in place of a subject: bus.bad_subject.
	ErrBadSubject = driver.ErrBadSubject
	// ErrBadGroup reports a group name that breaks the grammar: bus.bad_group.
	ErrBadGroup = driver.ErrBadGroup
	// ErrBadHeader reports a key or value that cannot be sent: bus.bad_header.
	ErrBadHeader = driver.ErrBadHeader
	// ErrInvalid reports an option that is out of bounds: bus.invalid.
	ErrInvalid = driver.ErrInvalid
	// ErrTooLarge reports a message larger than the bus takes: bus.too_large.
	// It is always a *TooLargeError.
	ErrTooLarge = driver.ErrTooLarge
	// ErrClosed reports that the Bus was closed: bus.closed.
	ErrClosed = driver.ErrClosed
	// ErrDraining reports that the Bus refuses new subscriptions while it is
	// being drained: bus.draining.
	ErrDraining = driver.ErrDraining
	// ErrNoResponders reports that the subject has no responder:
	// bus.no_responders.
	ErrNoResponders = driver.ErrNoResponders
	// ErrTimeout reports that no answer came in time: bus.timeout. The error
	// wraps context.DeadlineExceeded too.
	ErrTimeout = driver.ErrTimeout
	// ErrOverloaded reports that the outbound queue had no room for the message
	// until its context ended, or that a responder had no room: bus.overloaded.
	ErrOverloaded = driver.ErrOverloaded
	// ErrDisconnected reports that the backend, or the responder, cannot be
	// reached: bus.disconnected. A retry may help; it is unknown whether the
	// request was handled.
	ErrDisconnected = driver.ErrDisconnected
	// ErrRefused reports that the backend refused a subscription, a publish or
	// a request, for example without a permission: bus.refused. The error has
	// the backend's text.
	ErrRefused = driver.ErrRefused
	// ErrTerminated reports that a subscription ended because its buffer was
	// full, or because the backend refused it later, for example without a
	// permission that it had: bus.terminated.
	ErrTerminated = driver.ErrTerminated
	// ErrDecode reports data that cannot be decoded: bus.decode.
	ErrDecode = driver.ErrDecode
	// ErrCycle reports a message that more than MaxHops others have led to, each
	// sent while the one before was handled: bus.cycle.
	ErrCycle = driver.ErrCycle
	// ErrUnsupported reports that the driver does not support the call:
	// bus.unsupported.
	ErrUnsupported = driver.ErrUnsupported

	// ErrEnd is the error that a [Responder] returns instead of an answer after
	// it has sent all of its answers with [Msg.Reply]: it ends RequestMany.
	ErrEnd = errors.New("bus: end of the answers")
)

type (
	// TooLargeError is an ErrTooLarge with the size and the limit.
	TooLargeError = driver.TooLargeError
	// RemoteError is the error that a responder answered instead of a result, with
	// the fields Reason, Message and Retryable: see [driver.RemoteError].
	RemoteError = driver.RemoteError
	// PanicError is the error made from a handler's panic.
	PanicError = driver.PanicError
)

// known lists the errors that a driver may return.
var known = []error{
	ErrClosed, ErrNoResponders, ErrTimeout, ErrOverloaded, ErrDisconnected, ErrRefused, ErrTerminated, ErrTooLarge, ErrUnsupported,
	ErrBadSubject, ErrBadGroup, ErrBadHeader, ErrInvalid, ErrDraining,
}

// classify converts an error of the driver to one of this package's, and adds
// the error of ctx if ctx has ended.
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

// beside wraps err together with the error of ctx, if ctx has ended.
func beside(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w: %w", err, contextError(ctx))
}

// contextError returns ctx's error together with its cause.
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
