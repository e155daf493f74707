package request

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// problem is an error as a client sees it: RFC 9457. It has the fields of
// megactx.Problem, for the view "error".
type problem struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Detail  string `json:"detail,omitempty"`
	Request string `json:"request,omitempty"` // the request's id, to be quoted to an operator
	Errors  Fields `json:"errors,omitempty"`

	retry time.Duration // when to try again; 0 means never
	says  phrase        // the text of Detail, if it is the framework's
	lang  string        // of the texts
}

// A client is asked to try again after at least a second. Longer than a minute
// is a guess: leases are renewed, and released early.
const (
	retrySoon = time.Second
	retryLate = time.Minute
)

// clientClosed is the status in the log of a request whose client disconnected.
// It is never sent.
const clientClosed = 499

// The codes of requests whose client receives no answer.
const (
	codeCancelled = "request.cancelled"
	codeAborted   = "request.aborted" // the handler aborted the connection
)

// known is the answer for an error.
type known struct {
	err    error
	status int
	code   string
	retry  bool
}

// answers maps errors to answers. The first matching row decides, so the most
// specific row comes first: a lost lease comes before the result of the work
// done under it, and a lock's own error comes before the context's error joined
// to it. The texts, mega.problem.<code>, never name holders; the log does.
func answers() []known {
	return []known{
		{limit.ErrLimited, http.StatusTooManyRequests, "limit.limited", true}, // with the error of a lock under Concurrent
		{limit.ErrInvalid, http.StatusBadRequest, "limit.invalid", false},
		{limit.ErrUnavailable, http.StatusServiceUnavailable, "limit.unavailable", true},
		{limit.ErrClosed, http.StatusServiceUnavailable, "limit.closed", true},
		{limit.ErrUnsupported, http.StatusInternalServerError, "limit.unsupported", false},
		{lock.ErrNotAcquired, http.StatusConflict, "lock.not_acquired", true},
		{lock.ErrInvalid, http.StatusBadRequest, "lock.invalid", false},
		{lock.ErrUnavailable, http.StatusServiceUnavailable, "lock.unavailable", true},
		{lock.ErrClosed, http.StatusServiceUnavailable, "lock.closed", true},
		{lock.ErrDeadlock, http.StatusInternalServerError, "lock.deadlock", false},
		{lock.ErrUnsupported, http.StatusInternalServerError, "lock.unsupported", false},
		{lock.ErrPoolSize, http.StatusInternalServerError, "lock.pool_size", false},
		{lock.ErrStale, http.StatusConflict, "lock.stale", false},
		{lock.ErrNoLease, http.StatusInternalServerError, "lock.no_lease", false},
		{bus.ErrNoResponders, http.StatusBadGateway, "bus.no_responders", true},
		{bus.ErrRefused, http.StatusBadGateway, "bus.refused", false},
		{bus.ErrTimeout, http.StatusGatewayTimeout, "bus.timeout", false},
		{bus.ErrOverloaded, http.StatusServiceUnavailable, "bus.overloaded", true},
		{bus.ErrDisconnected, http.StatusServiceUnavailable, "bus.disconnected", true},
		{bus.ErrClosed, http.StatusServiceUnavailable, "bus.closed", true},
		{bus.ErrDraining, http.StatusServiceUnavailable, "bus.draining", true},
		{bus.ErrTooLarge, http.StatusRequestEntityTooLarge, "bus.too_large", false},
		{bus.ErrBadSubject, http.StatusBadRequest, "bus.bad_subject", false},
		{bus.ErrBadHeader, http.StatusBadRequest, "bus.bad_header", false},
		{bus.ErrDecode, http.StatusBadGateway, "bus.decode", false},
		{ErrNotConfigured, http.StatusInternalServerError, "mega.not_configured", false},
		{errUnknownView, http.StatusInternalServerError, "mega.unknown_view", false},
		{ErrShuttingDown, http.StatusServiceUnavailable, "mega.shutting_down", true},
		{context.DeadlineExceeded, http.StatusGatewayTimeout, "request.timeout", false},
	}
}

// problemOf returns the answer for err. end is the reason why the request
// itself has ended: its timeout, a disconnected client, or the shutdown; nil if
// it has not ended.
func problemOf(err, end error) problem {
	if _, panicked := errors.AsType[*panicError](err); panicked { // its value is no answer
		return newProblem(http.StatusInternalServerError, "internal", "internal")
	}
	var own *Error
	switch {
	case errors.Is(end, ErrShuttingDown) && errors.Is(err, context.Canceled):
		return problemOf(ErrShuttingDown, nil)
	case end != nil && !errors.Is(end, context.DeadlineExceeded) && errors.Is(err, context.Canceled):
		return problem{Type: "about:blank", Status: clientClosed, Code: codeCancelled}
	case errors.Is(err, lock.ErrLost):
		return newProblem(http.StatusConflict, "lock.lost", "lock.lost")
	case errors.As(err, &own) && own.isFailure():
		return problem{
			Type: "about:blank", Title: http.StatusText(own.status), Status: own.status, Code: own.code,
			Detail: own.detail, says: own.says, Errors: own.fields,
		}
	}
	if remote, ok := errors.AsType[*bus.RemoteError](err); ok {
		p := newProblem(http.StatusBadGateway, remote.Code(), "remote")
		if remote.Retryable {
			p.retry = retrySoon
		}
		return p
	}
	for _, a := range answers() {
		if errors.Is(err, a.err) {
			p := newProblem(a.status, codeOf(err, a.code), a.code)
			if a.retry {
				p.retry = retryAfter(err)
			}
			return p
		}
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return problemOf(TooLarge(tooLarge), end)
	case errors.Is(end, context.DeadlineExceeded):
		return problemOf(context.DeadlineExceeded, nil) // also for another error that the work returned when its context ended
	}
	return newProblem(http.StatusInternalServerError, "internal", "internal")
}

// OutweighsInput reports whether the answer to an error that a validation returned
// is the error's own: one of the app, one of a lock, limit or message that is not
// about an argument, or the end of the request.
func OutweighsInput(err error) bool {
	if _, own := errors.AsType[*Error](err); own || errors.Is(err, context.Canceled) {
		return true
	}
	p := problemOf(err, nil)
	return p.Code != "internal" && p.Status != http.StatusBadRequest
}

// newProblem returns an answer whose detail is the text mega.problem.<text>.
func newProblem(status int, code, text string) problem {
	says := phrase{key: "problem." + text}
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: says.english(), says: says}
}

// retryAfter returns the time until a retry after err: for a limit, until it can
// be granted (W6), and for a busy lock, until the first of its leases expires
// (L21).
func retryAfter(err error) time.Duration {
	if limited, ok := errors.AsType[*limit.LimitedError](err); ok {
		return max(limited.RetryAfter, retrySoon)
	}
	busy, ok := errors.AsType[*lock.NotAcquiredError](err)
	if !ok || len(busy.Holders) == 0 {
		return retrySoon
	}
	first := slices.MinFunc(busy.Holders, func(a, b lock.Holding) int { return cmp.Compare(a.Left, b.Left) })
	return min(max(first.Left, retrySoon), retryLate)
}

// codeOf refines lock.invalid and limit.invalid to a more specific code, and
// lock.not_acquired and limit.limited to the code of a full queue.
func codeOf(err error, code string) string {
	var coded interface{ Code() string }
	refined := []string{"lock.invalid", "lock.not_acquired", "limit.invalid", "limit.limited"}
	if slices.Contains(refined, code) && errors.As(err, &coded) {
		return coded.Code()
	}
	return code
}

// note records an error for the log, and returns its answer. After the end of the
// request, it logs the error.
func (h *Host) note(rec *record, err error) problem {
	end := rec.ended()
	p := problemOf(err, end)
	read, write := rec.out.body.causes(err), rec.out.causes(err)
	switch {
	case (read || write) && errors.Is(end, ErrShuttingDown):
		p = problemOf(ErrShuttingDown, nil) // it has closed the connection
	case p.Code != "internal":
	case read:
		p = problemOf(BadBody("cut_off", err), nil)
	case write && errors.Is(end, context.Canceled): // net/http ends the context before the write returns
		p = problemOf(context.Canceled, end)
	}
	p.Request = rec.id
	rec.mu.Lock()
	o, late := rec.result, rec.left
	o.err, o.code, o.errStatus = err, p.Code, p.Status
	if !late {
		rec.result = o
	}
	rec.mu.Unlock()
	if late {
		h.failedLate(rec, o)
	}
	return p
}

// ended returns the reason why the request itself has ended, or nil if it has
// not.
func (rec *record) ended() error {
	if rec.timeout.hasPassed() {
		return context.DeadlineExceeded
	}
	return context.Cause(rec.request.Context())
}

// aboutContent are the headers with which a handler described its answer before
// it failed: they are wrong for the answer to an error.
var aboutContent = []string{"Content-Disposition", "Content-Range", "Etag", "Last-Modified"}

// fail answers a request with an error, unless an answer has begun or the
// client has disconnected.
func (h *Host) fail(w http.ResponseWriter, r *http.Request, rec *record, err error) {
	p := h.note(rec, err)
	if p.Status == clientClosed || rec.out.begun() != 0 {
		return
	}
	texts := h.Files().Locales
	wordsOf(texts, Of(r.Context()).Locale(), rec.request).translate(&p)
	header := w.Header()
	for _, name := range aboutContent {
		header.Del(name)
	}
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Language", p.lang)
	header.Add("Vary", "Accept")
	if p.retry > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retry.Seconds()))))
	}
	if WantsJSON(r) {
		writeProblem(w, p)
		return
	}
	if h.showsDevPage(r, p) {
		h.writeDevPage(w, r, rec, p)
		return
	}
	writeBody(w, p.Status, pageType, h.errorPage(r, p))
}

func writeProblem(w http.ResponseWriter, p problem) {
	body, err := json.Marshal(p)
	if err != nil { // its fields are strings and numbers
		panic(err)
	}
	writeBody(w, p.Status, "application/problem+json", body)
}

func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	Answer{Type: contentType, Body: body}.writeHeader(w.Header())
	w.WriteHeader(status)
	_, _ = w.Write(body) // a failed write means that the client disconnected
}
