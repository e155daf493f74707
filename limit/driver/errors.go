package driver

// Error is an error that callers can compare with errors.Is. Its code is for
// programs.
type Error struct{ code, text string }

// Error returns the text.
func (e *Error) Error() string { return e.text }

// Code returns the stable dotted code, such as "limit.unavailable".
func (e *Error) Code() string { return e.code }

// The errors of limits. A refusal (ErrLimited) and an unavailable backend
// (ErrUnavailable) are never the same error; a driver returns no ErrLimited.
var (
	ErrLimited     = &Error{"limit.limited", "limit: not allowed in time"}
	ErrUnavailable = &Error{"limit.unavailable", "limit: backend unavailable"}
	ErrInvalid     = &Error{"limit.invalid", "limit: invalid"}
	ErrUnsupported = &Error{"limit.unsupported", "limit: unsupported by the driver"}
	ErrClosed      = &Error{"limit.closed", "limit: closed"}
)
