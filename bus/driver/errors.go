package driver

import "fmt"

// Error is an error that callers can compare with errors.Is. Its code is for
// programs.
type Error struct{ code, text string }

// Error returns the text.
func (e *Error) Error() string { return e.text }

// Code returns the stable dotted code, such as "bus.no_responders".
func (e *Error) Code() string { return e.code }

// The errors of the bus. A front adds the failed operation and, if the end of a
// context caused the error, the context's error.
var (
	ErrBadSubject   = &Error{"bus.bad_subject", "bus: bad subject"}
	ErrBadGroup     = &Error{"bus.bad_group", "bus: bad group"}
	ErrBadHeader    = &Error{"bus.bad_header", "bus: bad header"}
	ErrInvalid      = &Error{"bus.invalid", "bus: invalid"}
	ErrTooLarge     = &Error{"bus.too_large", "bus: message too large"}
	ErrClosed       = &Error{"bus.closed", "bus: closed"}
	ErrDraining     = &Error{"bus.draining", "bus: draining"}
	ErrNoResponders = &Error{"bus.no_responders", "bus: nobody responds"}
	ErrTimeout      = &Error{"bus.timeout", "bus: no answer in time"}
	ErrOverloaded   = &Error{"bus.overloaded", "bus: overloaded"}
	ErrDisconnected = &Error{"bus.disconnected", "bus: disconnected"}
	ErrRefused      = &Error{"bus.refused", "bus: refused by the backend"}
	ErrTerminated   = &Error{"bus.terminated", "bus: subscription terminated"}
	ErrDecode       = &Error{"bus.decode", "bus: cannot decode"}
	ErrCycle        = &Error{"bus.cycle", "bus: too many hops"}
	ErrUnsupported  = &Error{"bus.unsupported", "bus: unsupported by the driver"}
)

// TooLargeError is an ErrTooLarge with the size and the limit.
type TooLargeError struct {
	Subject string
	Size    int // of data and headers, in bytes
	Limit   int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("bus: message too large: %d bytes with its headers, at most %d", e.Size, e.Limit)
}

// Code returns "bus.too_large".
func (e *TooLargeError) Code() string { return ErrTooLarge.code }

// Is reports whether target is ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// RemoteError is the error that a responder answered instead of a result. A
// responder that returns one chooses the error that its requester gets.
type RemoteError struct {
	// Reason is the code, for machines: 1 to 64 letters, digits, dots, dashes
	// and underscores. It is "panic" if the responder panicked, and "error" if
	// it returned an error without a code.
	Reason    string
	Message   string
	Retryable bool // a retry may help
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("bus: the responder failed: %s: %s", e.Reason, e.Message)
}

// Code returns the responder's code.
func (e *RemoteError) Code() string { return e.Reason }

// PanicError is the error made from a handler's panic.
type PanicError struct {
	Value any // argument of panic; nil after runtime.Goexit
	Stack []byte
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "bus: the handler ended its goroutine"
	}
	return fmt.Sprintf("bus: the handler panicked: %v", e.Value)
}

// Code returns "bus.panic".
func (e *PanicError) Code() string { return "bus.panic" }

// Unwrap returns the value if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
