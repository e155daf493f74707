package megactx

import (
	"fmt"

	"github.com/megaframework/mega/internal/request"
)

var (
	// ErrNotConfigured is the error of a Ctx without the requested service:
	// mega.not_configured.
	ErrNotConfigured = request.ErrNotConfigured
	// ErrNoRequest is the error of a Ctx outside a request: mega.no_request.
	ErrNoRequest = request.ErrNoRequest
	// ErrAnswered is the error of a second answer to a request: mega.answered.
	ErrAnswered = request.ErrAnswered
	// ErrHandlerReturned is the cause of the context of a request or a message after
	// its handler has returned. Later writes of the answer return it too:
	// mega.handler_returned.
	ErrHandlerReturned = request.ErrHandlerReturned
	// ErrShuttingDown is the cause of the contexts of streams from the start of a
	// shutdown on, of background functions after the last request, and of requests and
	// tasks that are not finished at its timeout: mega.shutting_down.
	ErrShuttingDown = request.ErrShuttingDown

	errNoLocks  = without("locks")
	errNoLimits = without("limits")
	errNoBus    = without("bus")
)

// without returns the error of a view that no app has made.
func without(what string) error {
	return fmt.Errorf("%w: this Ctx has no %s: use the Ctx of a handler, of a task or of package megatest", ErrNotConfigured, what)
}

// Error returns an error that answers a request with this status, this dotted
// code and this detail. It belongs to the application: nothing of it is hidden
// from the client. A detail that is a key of the app's texts is translated. A
// status that is not one of an error, 400 to 599, answers 500 with the code
// internal. An error that wraps it with %w is answered in the same way, and its
// whole text is in the log.
func Error(status int, code, detail string) error { return request.NewError(status, code, detail) }

// FieldErrors maps the invalid fields of an input to their messages. A Validate
// method may return it; it becomes the member "errors" of the answer. A message
// that is a key of the app's texts is translated.
type FieldErrors map[string]string

// Error returns the fields in alphabetical order.
func (f FieldErrors) Error() string { return request.Fields(f).Error() }

// Or returns f as an error, or nil if f is empty.
func (f FieldErrors) Or() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Problem is an error as a client sees it: RFC 9457. The view "error" of an
// app, if it has one, renders it as a page.
type Problem struct {
	Type    string      `json:"type"`
	Title   string      `json:"title"`
	Status  int         `json:"status"`
	Code    string      `json:"code"`
	Detail  string      `json:"detail,omitempty"`
	Request string      `json:"request,omitempty"` // the request's id, to be quoted to an operator
	Errors  FieldErrors `json:"errors,omitempty"`
}
