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
	relay := &relay{candidates: candidates, again: f.again(r)}
	proxy := httputil.ReverseProxy{
		Rewrite:        f.rewrite,
		Transport:      relay,
		FlushInterval:  -1, // flush the events of a stream at once
		ErrorLog:       slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		ModifyResponse: func(a *http.Response) error { f.sign(a, r, relay.answered); return nil },
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, err error) { refuseWorker(w, err) },
	}
	proxy.ServeHTTP(patiently(w, writeTime), r)
}

// again returns further candidates after all have failed, because a worker that
// was ready a moment ago may have been replaced.
func (f forwarder) again(r *http.Request) func() []Worker {
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
	behalf(p.In.Context(), p.Out.Header)
}

// workerHeader is the header that names the worker of an answer.
const workerHeader = "Mega-Worker"

// sign adds the worker of an answer and the paths to other workers' answers.
func (f forwarder) sign(a *http.Response, r *http.Request, from Worker) {
	a.Header.Set(workerHeader, strconv.Itoa(from.ID))
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
// number it returns the newer one, which is behind the other.
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

// choose returns the candidates for an answer, in the order of their attempts.
func choose(workers []Worker, query map[string][]string) ([]Worker, error) {
	all := Serving(workers)
	if text := query[workerQuery]; len(text) > 0 {
		return chosen(workers, all, text[0])
	}
	if len(all) == 0 {
		return nil, &workerError{http.StatusServiceUnavailable, "worker.none_ready", "no worker is ready; retry later"}
	}
	return all, nil
}

func chosen(workers, serving []Worker, text string) ([]Worker, error) {
	id, err := strconv.Atoi(text)
	for _, w := range serving {
		if err == nil && w.ID == id {
			return []Worker{w}, nil
		}
	}
	var known []string
	for _, w := range workers {
		if err == nil && w.ID == id {
			return nil, &workerError{http.StatusServiceUnavailable, "worker.not_ready", fmt.Sprintf("worker %d is %s; ask another worker, or retry later", id, w.State)}
		}
		known = append(known, strconv.Itoa(w.ID))
	}
	return nil, unknownWorker(text, known)
}

// unknownWorker is the error for a worker that is not among the known ones.
func unknownWorker(text string, known []string) *workerError {
	text = fmt.Sprintf("unknown worker %q; the workers are %s", text, strings.Join(slices.Compact(known), ", "))
	return &workerError{http.StatusNotFound, "worker.unknown", text}
}

// relay sends a request to the first worker that answers.
type relay struct {
	candidates []Worker
	again      func() []Worker
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
	now := slices.DeleteFunc(t.again(), func(w Worker) bool {
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

// elsewhere reports whether to try another worker because this one refuses: it
// may have begun to end, without its locks, in the meantime.
func elsewhere(r *http.Request, a *http.Response) bool {
	return a.StatusCode == http.StatusServiceUnavailable && readOnly(r)
}

func readOnly(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

func (t *relay) ask(r *http.Request, workers []Worker) (*http.Response, error) {
	var errs []error
	for i, w := range workers {
		a, err := w.ask(r)
		if err == nil && (i == len(workers)-1 || !elsewhere(r, a)) {
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

// helloTime is the timeout for a worker to show that it is alive. A connection
// alone proves nothing: a stopped worker accepts one, too.
const helloTime = time.Second

func (w Worker) ask(r *http.Request) (*http.Response, error) {
	if w.Path == "" {
		return nil, errNoSocket
	}
	to := transport(w.Path)
	if err := hello(r.Context(), to); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	answered := lives(ctx, to, cancel)
	a, err := to.RoundTrip(r.WithContext(ctx))
	answered()
	if err != nil {
		cancel(nil)
		return nil, sentError{fmt.Errorf("the request was sent but not answered: %w", cmp.Or(cause(ctx), err))}
	}
	a.Body = ending{a.Body, cancel}
	return a, nil
}

// lives checks repeatedly whether a worker that has accepted a request is
// alive, until answered is called. The request may take long; lives calls hung
// only if the worker stops answering meanwhile. A missing socket does not
// count: the worker may be ending, and finishes its requests first.
func lives(ctx context.Context, to http.RoundTripper, hung func(error)) (answered func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(helloTime)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := hello(ctx, to); ctx.Err() == nil && errors.Is(err, errSilent) {
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

// ending is a body whose Close also ends its request.
type ending struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

// Close ends both.
func (e ending) Close() error {
	defer e.end(nil)
	return e.ReadCloser.Close()
}

// errSilent is the error for a worker that accepts connections and does not
// answer.
var errSilent = fmt.Errorf("no answer within %v: the process may be stopped or very busy", helloTime)

func hello(ctx context.Context, to http.RoundTripper) error {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
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

// refuseWorker answers with the reason why no worker answers.
func refuseWorker(w http.ResponseWriter, err error) {
	no, ok := errors.AsType[*workerError](err)
	if !ok {
		no = &workerError{http.StatusBadGateway, "worker.unanswered", err.Error()}
	}
	if no.status != http.StatusNotFound {
		w.Header().Set("Retry-After", "1")
	}
	refuse(w, no.status, no.code, no)
}

// patient is a writer that gives a slow client a timeout for each write.
type patient struct {
	http.ResponseWriter
	timeout time.Duration

	mu    sync.Mutex // guards hasty, and the deadline of the connection
	hasty bool
}

// patiently returns w, or a patient that writes to it.
func patiently(w http.ResponseWriter, timeout time.Duration) *patient {
	if p, ok := w.(*patient); ok {
		return p
	}
	return &patient{ResponseWriter: w, timeout: timeout}
}

// Write restarts the client's timeout.
func (p *patient) Write(b []byte) (int, error) {
	p.renew()
	return p.ResponseWriter.Write(b)
}

func (p *patient) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasty {
		p.endLocked(p.timeout)
	}
}

// hurry gives the client a short timeout for all that is still written.
func (p *patient) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hasty = true
	p.endLocked(lastWrite)
}

func (p *patient) endLocked(after time.Duration) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(after)) // a recorder in a test has none
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }
