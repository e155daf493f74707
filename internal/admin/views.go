package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// The bounds of one answer.
const (
	defaultLocks = 100
	MaxListed    = 1000 // locks, or limits, of one listing
	shownWaiters = 20   // of each key in a listing
	maxWaiters   = 1000 // of one key
)

// maxListings is the number of concurrent listings: each may scan all keys of a
// server.
const maxListings = 2

// Listing is the locks in use whose keys begin with a prefix, sorted by key.
type Listing struct {
	Locks     []Entry `json:"locks"`
	Total     int     `json:"total"`
	Truncated bool    `json:"truncated"` // there are more locks than Locks contains
}

// Entry is one lock, with its first waiters and their total number.
type Entry struct {
	lock.State
	Waiting int         `json:"waiting"`
	Pool    *lock.Tally `json:"pool,omitempty"` // nil for a plain lock
}

// NewEntry returns an Entry with at most shown waiters. Its lists are empty in
// place of null.
func NewEntry(s lock.State, shown int) Entry {
	e := Entry{State: s, Waiting: len(s.Waiters)}
	if s.IsPool() {
		tally := s.Tally()
		e.Pool = &tally
	}
	e.Holders = append([]lock.Holding{}, s.Holders...)
	e.Waiters = append([]lock.Holder{}, s.Waiters[:min(len(s.Waiters), shown)]...)
	return e
}

// Views returns a handler that shows the process. It changes nothing, except
// that it releases a lock by force if the context of the request has an
// operator: see WithOperator.
func Views(p Process) http.Handler {
	mux := http.NewServeMux()
	addViews(mux, p)
	mux.HandleFunc("POST /lock/release", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := operatorFrom(r.Context()); !ok {
			refuse(w, http.StatusForbidden, "admin.forbidden", errors.New("only the console and the admin socket release locks"))
			return
		}
		operations{p}.release(w, r)
	})
	return Coded(mux)
}

func addViews(mux *http.ServeMux, p Process) {
	v := views{p, make(chan struct{}, maxListings)}
	mux.HandleFunc("GET /process", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, p.Info) })
	mux.HandleFunc("GET /locks", v.locks)
	mux.HandleFunc("GET /lock", v.lock)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, newStatsView(p.Locks.Stats())) })
	mux.HandleFunc("GET /limits", v.limits)
	mux.HandleFunc("GET /limit", v.limit)
	mux.HandleFunc("GET /limit/stats", v.limitStats)
	mux.HandleFunc("GET /bus", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, newMessages(p.Bus)) })
	mux.HandleFunc("GET /bus/topics", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, newTopics(p.Bus.Stats().Subs)) })
	for path, see := range map[string]func() any{"/boot": p.Boot, "/config": p.Config, "/routes": p.Routes, "/errors": p.Errors} {
		if see == nil {
			continue
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { show(w, see()) })
	}
}

func show(w http.ResponseWriter, body any) {
	if body == nil {
		refuse(w, http.StatusServiceUnavailable, "mega.starting", errors.New("the process has not started yet"))
		return
	}
	answer(w, http.StatusOK, body)
}

type views struct {
	process  Process
	listings chan struct{} // has room for one more listing
}

// listing calls list with the prefix of the request, and the maximum length of
// the answer, unless too many listings are in progress or a value is not valid.
func (v views) listing(w http.ResponseWriter, r *http.Request, list func(prefix string, most int)) {
	prefix := r.FormValue("prefix")
	most, err := limitOf(r.FormValue("limit"))
	if err == nil && len(prefix) > lock.MaxKey { // the keys of limits have the same bound
		err = fmt.Errorf("the prefix has %d bytes, want at most %d", len(prefix), lock.MaxKey)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "request.invalid", err)
		return
	}
	select {
	case v.listings <- struct{}{}:
		defer func() { <-v.listings }()
	default:
		refuse(w, http.StatusServiceUnavailable, "mega.busy", fmt.Errorf("%d listings are in progress, the maximum", maxListings))
		return
	}
	list(prefix, most)
}

func (v views) locks(w http.ResponseWriter, r *http.Request) {
	v.listing(w, r, func(prefix string, most int) {
		states, err := v.process.Locks.List(r.Context(), prefix)
		if err != nil {
			fail(w, err)
			return
		}
		answer(w, http.StatusOK, newListingView(states, most))
	})
}

func limitOf(text string) (int, error) {
	if text == "" {
		return defaultLocks, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxListed {
		return 0, fmt.Errorf("limit is %q, want 1 to %d", text, MaxListed)
	}
	return n, nil
}

func (v views) lock(w http.ResponseWriter, r *http.Request) {
	state, err := v.process.Locks.Inspect(r.Context(), r.FormValue("key"))
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, newEntryView(state, maxWaiters))
}

// answer writes body as JSON in one piece, with its length, so that a server
// that closes right afterwards does not cut it off.
func answer(w http.ResponseWriter, status int, body any) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // the JSON of a message stays as it is
	e.SetIndent("", "  ")
	if err := e.Encode(body); err != nil {
		status = http.StatusInternalServerError
		text.Reset()
		text.WriteString(`{"code":"internal","error":"the answer cannot be encoded"}` + "\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // the client disconnected
}

// refusal is the body of a negative answer.
type refusal struct {
	Code string `json:"code"`
	Text string `json:"error"`
}

func refuse(w http.ResponseWriter, status int, code string, err error) {
	answer(w, status, refusal{code, err.Error()})
}

// Coded returns a handler that refuses unknown paths and methods with a code, where mux
// does with plain text.
func Coded(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			w = coded{w}
		}
		mux.ServeHTTP(w, r)
	})
}

// coded replaces the text of a refusal by JSON.
type coded struct{ http.ResponseWriter }

// WriteHeader writes a whole refusal, or the head of a redirect.
func (w coded) WriteHeader(status int) {
	switch status {
	case http.StatusNotFound:
		refuse(w.ResponseWriter, status, "request.not_found", errors.New("unknown path"))
	case http.StatusMethodNotAllowed:
		refuse(w.ResponseWriter, status, "request.method_not_allowed", errors.New("the path does not support this method"))
	default:
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write discards the text.
func (w coded) Write(b []byte) (int, error) { return len(b), nil }

// fail answers with an error of the locks, the limits or the bus. A responder's error
// keeps its own code.
func fail(w http.ResponseWriter, err error) {
	refuse(w, statusOf(err), codeOf(err, "internal"), err)
}

func statusOf(err error) int {
	if _, remote := errors.AsType[*bus.RemoteError](err); remote {
		return http.StatusBadGateway
	}
	for _, is := range []struct {
		status int
		errs   []error
	}{
		{http.StatusBadRequest, []error{lock.ErrInvalid, limit.ErrInvalid, bus.ErrInvalid, bus.ErrBadSubject, bus.ErrBadGroup, bus.ErrBadHeader}},
		{http.StatusRequestEntityTooLarge, []error{bus.ErrTooLarge}},
		{http.StatusNotImplemented, []error{lock.ErrUnsupported, limit.ErrUnsupported, bus.ErrUnsupported}},
		{http.StatusBadGateway, []error{bus.ErrNoResponders, bus.ErrRefused}},
		{http.StatusGatewayTimeout, []error{bus.ErrTimeout}},
		{http.StatusServiceUnavailable, []error{
			lock.ErrUnavailable, lock.ErrClosed, limit.ErrUnavailable, limit.ErrClosed,
			bus.ErrClosed, bus.ErrDraining, bus.ErrDisconnected, bus.ErrOverloaded,
		}},
	} {
		if slices.ContainsFunc(is.errs, func(known error) bool { return errors.Is(err, known) }) {
			return is.status
		}
	}
	return http.StatusInternalServerError
}

// codeOf returns the dotted code of an error, or otherwise if it has none.
func codeOf(err error, otherwise string) string {
	if coded, ok := errors.AsType[interface {
		error
		Code() string
	}](err); ok {
		return coded.Code()
	}
	return otherwise
}
