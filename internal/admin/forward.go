package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// forwarder forwards a supervisor's requests to a worker: the worker in
// ?worker=, or else the first one that answers, from the lowest number on.
type forwarder struct {
	workers func() []Worker
	prefix  string // of the paths at the worker
	log     *slog.Logger
}

// Forward returns a handler for a supervisor's ops listener. A worker answers
// each request, and a header of the answer names that worker.
func Forward(workers func() []Worker, log *slog.Logger) http.Handler {
	return forwarder{workers, watchPath, log}
}

func (f forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	candidates, err := choose(f.workers(), r.URL.Query())
	if err != nil {
		refuseWorker(w, err)
		return
	}
	unbounded(w)
	relay := &relay{candidates: candidates, refresh: f.candidatesNow(r)}
	proxy := httputil.ReverseProxy{
		Rewrite:        f.rewrite,
		Transport:      relay,
		FlushInterval:  -1, // flush the events of a stream at once
		ErrorLog:       slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		ModifyResponse: func(a *http.Response) error { f.addWorkerHeaders(a, r, relay.answered); return nil },
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, err error) { refuseWorker(w, err) },
	}
	proxy.ServeHTTP(withWriteDeadline(w, writeTime), r)
}

// candidatesNow returns a function that chooses the candidates again, after all
// have failed: a worker that was ready a moment ago may have been replaced.
func (f forwarder) candidatesNow(r *http.Request) func() []Worker {
	return func() []Worker {
		now, _ := choose(f.workers(), r.URL.Query())
		return now
	}
}

func (f forwarder) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", "worker", "worker"
	p.Out.URL.Path, p.Out.URL.RawPath = f.prefix+p.In.URL.Path, ""
	if q := p.In.URL.Query(); q.Has(workerQuery) {
		q.Del(workerQuery)
		p.Out.URL.RawQuery = q.Encode()
	}
	setIdentity(p.In.Context(), p.Out.Header)
}

// workerHeader is the header that names the worker of an answer.
const workerHeader = "Mega-Worker"

// addWorkerHeaders adds the worker of an answer, and links to the answers of the
// other workers.
func (f forwarder) addWorkerHeaders(a *http.Response, r *http.Request, from Worker) {
	a.Header.Set(workerHeader, strconv.Itoa(from.ID))
	a.Header.Del("X-Content-Type-Options") // the ops listener sets it for all answers
	for _, w := range Serving(f.workers()) {
		if w.ID == from.ID {
			continue
		}
		q := r.URL.Query()
		q.Set(workerQuery, strconv.Itoa(w.ID))
		a.Header.Add("Link", fmt.Sprintf(`<%s?%s>; rel="alternate"; title="worker %d"`, r.URL.EscapedPath(), q.Encode(), w.ID))
	}
}

// Serving returns the workers that can answer, by number. Of two with the same
// number it returns the newer one. workers is sorted by number and then by age.
func Serving(workers []Worker) (all []Worker) {
	for _, w := range workers {
		if w.State != ready {
			continue
		}
		if n := len(all); n > 0 && all[n-1].ID == w.ID {
			all = all[:n-1]
		}
		all = append(all, w)
	}
	return all
}

// workerError is the reason why no worker answers.
type workerError struct {
	status int
	code   string
	text   string
}

func (e *workerError) Error() string { return e.text }

// Code returns the dotted code.
func (e *workerError) Code() string { return e.code }

var errNoneReady = &workerError{http.StatusServiceUnavailable, "worker.none_ready", "no worker is ready; retry later"}

// choose returns the candidates for an answer, in the order of their attempts.
func choose(workers []Worker, query map[string][]string) ([]Worker, error) {
	all := Serving(workers)
	if text := query[workerQuery]; len(text) > 0 {
		return chosen(workers, all, text[0])
	}
	if len(all) == 0 {
		return nil, errNoneReady
	}
	return all, nil
}

// chosen returns the serving worker with the number in text, or the error why it
// cannot answer.
func chosen(workers, serving []Worker, text string) ([]Worker, error) {
	id, err := strconv.Atoi(text)
	for _, w := range serving {
		if err == nil && w.ID == id {
			return []Worker{w}, nil
		}
	}
	for _, w := range workers {
		if err == nil && w.ID == id {
			return nil, &workerError{http.StatusServiceUnavailable, "worker.not_ready", fmt.Sprintf("worker %d is %s; ask another worker, or retry later", id, w.State)}
		}
	}
	return nil, unknownWorker(text, workers)
}

// unknownWorker is the error for a worker that is not among workers.
func unknownWorker(text string, workers []Worker) *workerError {
	var known []string
	for _, id := range Numbers(workers) {
		known = append(known, strconv.Itoa(id))
	}
	text = fmt.Sprintf("unknown worker %q; the workers are %s", text, strings.Join(known, ", "))
	return &workerError{http.StatusNotFound, "worker.unknown", text}
}

// relay sends a request to the first worker that answers.
type relay struct {
	candidates []Worker
	refresh    func() []Worker
	answered   Worker
}

// replaceTime is how long a worker may be missing while it is replaced.
const replaceTime = 100 * time.Millisecond

// RoundTrip tries the workers in order. It sends a request that may have
// effects to one worker only, after a check that the worker answers.
func (t *relay) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := t.ask(r, t.candidates)
	if err == nil || !repeatable(r, err) {
		return a, err
	}
	select {
	case <-time.After(replaceTime):
	case <-r.Context().Done():
		return nil, err
	}
	now := slices.DeleteFunc(t.refresh(), func(w Worker) bool {
		return slices.ContainsFunc(t.candidates, func(c Worker) bool { return c.PID == w.PID })
	})
	if len(now) == 0 {
		return nil, err
	}
	return t.ask(r, now)
}

// sentError is the error of a request that was sent and has an unknown outcome.
type sentError struct{ error }

func (e sentError) Unwrap() error { return e.error }

// repeatable reports whether a failed request may be sent again.
func repeatable(r *http.Request, err error) bool {
	_, sent := errors.AsType[sentError](err)
	return r.Context().Err() == nil && (!sent || readOnly(r))
}

// tryNext reports whether another worker may answer r in place of this one, which
// has refused: it may have begun to end in the meantime, and has no locks then.
func tryNext(r *http.Request, a *http.Response) bool {
	return a.StatusCode == http.StatusServiceUnavailable && readOnly(r)
}

func readOnly(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// ask sends r to the workers in order until one of them answers it.
func (t *relay) ask(r *http.Request, workers []Worker) (*http.Response, error) {
	var errs []error
	for i, w := range workers {
		a, err := w.ask(r)
		if err == nil && (i == len(workers)-1 || !tryNext(r, a)) {
			t.answered = w
			return a, nil
		}
		if err == nil {
			err = errors.Join(fmt.Errorf("answered with status %d", a.StatusCode), a.Body.Close())
		}
		errs = append(errs, fmt.Errorf("%v: %w", w, err))
		if !repeatable(r, err) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// errNoSocket is the error for a worker that could not open its socket.
var errNoSocket = errors.New("the worker has no socket; its log has the reason")

// pingTime is the timeout of a ping, and the interval between pings during a
// request. A connection alone proves nothing: the kernel accepts one for a stopped
// worker, too.
const pingTime = time.Second

// ask sends a request to the worker, after a ping. The error is a sentError if the
// worker may have received the request. The caller closes the body of the response.
func (w Worker) ask(r *http.Request) (*http.Response, error) {
	if w.Path == "" {
		return nil, errNoSocket
	}
	to := transport(w.Path)
	if err := ping(r.Context(), to); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	answered := watchAlive(ctx, to, cancel)
	a, err := to.RoundTrip(r.WithContext(ctx))
	answered()
	if err != nil {
		cancel(nil)
		return nil, sentError{fmt.Errorf("the request was sent but not answered: %w", cmp.Or(cause(ctx), err))}
	}
	a.Body = cancelingBody{a.Body, cancel}
	return a, nil
}

// watchAlive pings the worker that has accepted a request until the caller calls
// answered, which waits for its goroutine. The request itself may take long;
// watchAlive calls hung once if the worker does not answer a ping in time. A
// missing socket does not count: a worker that ends finishes its requests first.
func watchAlive(ctx context.Context, to http.RoundTripper, hung func(error)) (answered func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(pingTime)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := ping(ctx, to); ctx.Err() == nil && errors.Is(err, errSilent) {
				hung(err)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// cause returns the reason why a request was given up, unless its client has
// disconnected.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, errSilent) {
		return err
	}
	return nil
}

// cancelingBody is a body whose Close also cancels the context of its request.
type cancelingBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close closes the body and cancels the context.
func (e cancelingBody) Close() error {
	defer e.cancel(nil)
	return e.ReadCloser.Close()
}

// errSilent is the error for a worker that accepts connections and does not
// answer.
var errSilent = fmt.Errorf("no answer within %v: the process may be stopped or very busy", pingTime)

// ping requests /process of a worker. The error is errSilent if the worker does not
// answer within pingTime.
func ping(ctx context.Context, to http.RoundTripper) error {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://worker/process", nil)
	if err != nil {
		return err
	}
	a, err := to.RoundTrip(r)
	switch {
	case gone(err):
		return fmt.Errorf("the process has ended: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return errSilent
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	}
	return a.Body.Close()
}

// unanswered is the code of a worker that does not answer.
const unanswered = "worker.unanswered"

// refuseWorker answers with the reason why no worker answers.
func refuseWorker(w http.ResponseWriter, err error) {
	no, ok := errors.AsType[*workerError](err)
	if !ok {
		no = &workerError{http.StatusBadGateway, unanswered, err.Error()}
	}
	if no.status != http.StatusNotFound {
		w.Header().Set("Retry-After", "1")
	}
	refuse(w, no.status, no.code, no)
}

// deadlineWriter gives a slow client a new deadline for each write. It is safe for
// concurrent use by one writer and shorten.
type deadlineWriter struct {
	http.ResponseWriter
	timeout time.Duration

	mu        sync.Mutex // guards shortened, and the deadline of the connection
	shortened bool
}

// withWriteDeadline returns w if it is a deadlineWriter, or else a deadlineWriter
// that writes to it.
func withWriteDeadline(w http.ResponseWriter, timeout time.Duration) *deadlineWriter {
	if p, ok := w.(*deadlineWriter); ok {
		return p
	}
	return &deadlineWriter{ResponseWriter: w, timeout: timeout}
}

// Write extends the deadline and writes b.
func (p *deadlineWriter) Write(b []byte) (int, error) {
	p.extend()
	return p.ResponseWriter.Write(b)
}

// extend gives the client the full timeout from now on, unless shorten was called.
func (p *deadlineWriter) extend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shortened {
		p.setDeadlineLocked(p.timeout)
	}
}

// shorten gives the client lastWrite for all remaining writes together.
func (p *deadlineWriter) shorten() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shortened = true
	p.setDeadlineLocked(lastWrite)
}

func (p *deadlineWriter) setDeadlineLocked(after time.Duration) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(after)) // a recorder in a test has none
}

// Unwrap is for http.ResponseController.
func (p *deadlineWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
