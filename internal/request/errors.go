package request

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// codedError is an error that callers compare with errors.Is, with a code for
// machines.
type codedError struct{ code, text string }

func (e *codedError) Error() string { return e.text }
func (e *codedError) Code() string  { return e.code }

// The errors of a Ctx; package megactx describes them.
var (
	ErrNotConfigured   error = &codedError{"mega.not_configured", "mega: not configured"}
	ErrNoRequest       error = &codedError{"mega.no_request", "mega: not inside a request"}
	ErrAnswered        error = &codedError{"mega.answered", "mega: the request has been answered already"}
	ErrHandlerReturned error = &codedError{"mega.handler_returned", "mega: the handler has returned"}
	ErrShuttingDown    error = &codedError{"mega.shutting_down", "mega: shutting down"}

	errUnknownView error = &codedError{"mega.unknown_view", "there is no such view"}
)

// Error is an error with its own status and code.
type Error struct {
	status       int
	code, detail string
	says         phrase // the text of the detail, if it is the framework's
	fields       Fields
	shown        error // see Show
	cause        error
	callers      [4]uintptr // of megactx.Error, which package mega calls for the app
}

// NewError returns the error of an app for the caller of its caller.
func NewError(status int, code, detail string) *Error {
	e := &Error{status: status, code: code, detail: detail}
	runtime.Callers(3, e.callers[:])
	return e
}

// isFailure reports whether the status is one of an error. With any other, the
// client would take its request for a success.
func (e *Error) isFailure() bool { return e.status >= 400 && e.status <= 599 }

func (e *Error) Error() string {
	s := fmt.Sprintf("%d %s: %s", e.status, e.code, e.detail)
	if !e.isFailure() {
		s = fmt.Sprintf("the status %d is not one of an error, 400 to 599: %s: %s", e.status, e.code, e.detail)
	}
	if e.cause != nil && e.cause.Error() != e.detail {
		s += ": " + e.cause.Error()
	}
	return s
}

// Code returns the code.
func (e *Error) Code() string { return e.code }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Fields returns the messages about the fields of an input, or nil.
func (e *Error) Fields() Fields { return e.fields }

// Show makes e contain the error shown, which has the fields in the language of the
// client, in place of those of the cause.
func (e *Error) Show(shown error) { e.shown = shown }

// As finds the error of Show before the cause.
func (e *Error) As(target any) bool { return e.shown != nil && errors.As(e.shown, target) }

// Fields maps the invalid fields of an input to their messages.
type Fields map[string]string

// Error returns the fields in alphabetical order.
func (f Fields) Error() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		lines = append(lines, name+" "+f[name])
	}
	return strings.Join(lines, "; ")
}

// Refuse returns an error of the framework. Its detail is a text of the
// framework.
func Refuse(status int, code string, cause error, key string, kv ...any) *Error {
	says := phrase{key, kv}
	return &Error{status: status, code: code, detail: says.english(), says: says, cause: cause}
}

// BadBody returns the error for a body that cannot be read.
func BadBody(problem string, cause error) error {
	return Refuse(http.StatusBadRequest, "request.bad_body", cause, "problem.request."+problem)
}

// BadFields returns the error for a body whose fields make it unreadable.
func BadFields(wrong Fields) error {
	return &Error{status: http.StatusBadRequest, code: "request.bad_body", detail: wrong.Error(), cause: wrong, fields: wrong}
}

// Invalid returns the error for a body that was read but is invalid. The fields
// are those that the cause names, or nil.
func Invalid(cause error, fields Fields) error {
	return &Error{status: http.StatusUnprocessableEntity, code: "request.invalid", detail: cause.Error(), cause: cause, fields: fields}
}

// TooLarge returns the error for a body beyond the limit of its app.
func TooLarge(cause *http.MaxBytesError) error {
	return Refuse(http.StatusRequestEntityTooLarge, "request.too_large", cause, "problem.request.too_large", "limit", cause.Limit)
}

// withoutPanic returns err, or a *panicError if a method of err panics, as one of a
// nil pointer does. The answer, the log and the trace call these methods.
func withoutPanic(err error) (same error) {
	if err == nil {
		return nil
	}
	defer func() {
		if value := recover(); value != nil {
			same = &panicError{value, debug.Stack()}
		}
	}()
	_ = err.Error()
	_ = errors.Is(err, ErrShuttingDown)
	_, _ = errors.AsType[*panicError](err)
	return err
}

// panicError is a handler's panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }
func (e *panicError) Code() string  { return "internal" }

// Unwrap returns the value of the panic, if that value is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}
