package megactx

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
)

// fact is an error that callers compare with errors.Is, with a code for
// machines.
type fact struct{ code, text string }

func (e *fact) Error() string { return e.text }
func (e *fact) Code() string  { return e.code }

var (
	// ErrNotConfigured is the error of a Ctx without the requested service:
	// mega.not_configured.
	ErrNotConfigured error = &fact{"mega.not_configured", "mega: not configured"}
	// ErrNoRequest is the error of a Ctx outside a request: mega.no_request.
	ErrNoRequest error = &fact{"mega.no_request", "mega: not inside a request"}
	// ErrAnswered is the error of a second answer to a request: mega.answered.
	ErrAnswered error = &fact{"mega.answered", "mega: the request has been answered already"}
	// ErrHandlerReturned is the cause of a request's context after its handler
	// has returned. Later writes of the answer return it too:
	// mega.handler_returned.
	ErrHandlerReturned error = &fact{"mega.handler_returned", "mega: the handler has returned"}
	// ErrShuttingDown is the cause of the contexts of requests, streams and
	// tasks that are not finished at the shutdown timeout:
	// mega.shutting_down.
	ErrShuttingDown error = &fact{"mega.shutting_down", "mega: shutting down"}

	errUnknownView error = &fact{"mega.unknown_view", "there is no such view"}
)

// statusError is an error with its own status and code.
type statusError struct {
	status       int
	code, detail string
	says         phrase // the text of the detail, if it is the framework's
	fields       FieldErrors
	cause        error
	callers      [4]uintptr // of Error, which package mega calls for the app
}

// Error returns an error that answers a request with this status, this dotted
// code and this detail. It belongs to the application: nothing of it is hidden
// from the client. A detail that is a key of the app's texts is translated.
func Error(status int, code, detail string) error {
	e := &statusError{status: status, code: code, detail: detail}
	runtime.Callers(2, e.callers[:])
	return e
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%d %s: %s", e.status, e.code, e.detail)
	if e.cause != nil && e.cause.Error() != e.detail {
		s += ": " + e.cause.Error()
	}
	return s
}

func (e *statusError) Code() string  { return e.code }
func (e *statusError) Unwrap() error { return e.cause }

// As finds the errors of fields in the language of the client.
func (e *statusError) As(target any) bool {
	fields, ok := target.(*FieldErrors)
	if ok = ok && e.fields != nil; ok {
		*fields = e.fields
	}
	return ok
}

// FieldErrors maps the invalid fields of an input to their messages. A Validate
// method may return it; it becomes the member "errors" of the answer. A message
// that is a key of the app's texts is translated.
type FieldErrors map[string]string

// Error returns the fields in alphabetical order.
func (f FieldErrors) Error() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		lines = append(lines, name+" "+f[name])
	}
	return strings.Join(lines, "; ")
}

// Or returns f as an error, or nil if f is empty.
func (f FieldErrors) Or() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// refuse returns an error of the framework. Its detail is a text of the
// framework.
func refuse(status int, code string, cause error, key string, kv ...any) *statusError {
	says := phrase{key, kv}
	return &statusError{status: status, code: code, detail: says.english(), says: says, cause: cause}
}

// badBody returns the error for a body that cannot be read.
func badBody(problem string, cause error) error {
	return refuse(http.StatusBadRequest, "request.bad_body", cause, "problem.request."+problem)
}

// invalidInput returns the error for a body that was read but is invalid.
func invalidInput(cause error) error {
	e := &statusError{status: http.StatusUnprocessableEntity, code: "request.invalid", detail: cause.Error(), cause: cause}
	errors.As(cause, &e.fields)
	return e
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
