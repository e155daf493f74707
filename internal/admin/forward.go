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
	"time"
)

// forwarder has a worker answer what its supervisor is asked: the one that
// ?worker= names, else the first that answers, from the lowest number on.
type forwarder struct {
	workers func() []Worker
	prefix  string // of the paths at the worker
	log     *slog.Logger
}

// Forward answers what is asked of the ops listener of a supervisor: a worker
// does, and the answer says which one.
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
		FlushInterval:  -1, // streams are to be seen as they come
		ErrorLog:       slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		ModifyResponse: func(a *http.Response) error { f.sign(a, r, relay.answered); return nil },
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, err error) { refuseWorker(w, err) },
	}
	proxy.ServeHTTP(patient{w}, r)
}

// again returns who else there is once all have failed: whoever was ready a
// moment ago may have been replaced since.
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

// workerHeader says in an answer which worker has given it.
const workerHeader = "Mega-Worker"

// sign says in an answer whose it is, and where those of the others are.
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

// Serving are the workers that can be asked, by their numbers. Of two with the
// same number it is the newer one, which stands behind the other.
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

// workerError says why no worker answers.
type workerError struct {
	status int
	code   string
	text   string
}

func (e *workerError) Error() string { return e.text }

// choose returns who may answer, in the order in which they are asked.
func choose(workers []Worker, query map[string][]string) ([]Worker, error) {
	all := Serving(workers)
	if text := query[workerQuery]; len(text) > 0 {
		return chosen(workers, all, text[0])
	}
	if len(all) == 0 {
		return nil, &workerError{http.StatusServiceUnavailable, "worker.none_ready", "no worker is ready: ask again in a moment"}
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
			return nil, &workerError{http.StatusServiceUnavailable, "worker.not_ready", fmt.Sprintf("worker %d is %s: ask another one, or this one in a moment", id, w.State)}
		}
		known = append(known, strconv.Itoa(w.ID))
	}
	text = fmt.Sprintf("there is no worker %q: they are %s", text, strings.Join(slices.Compact(known), ", "))
	return nil, &workerError{http.StatusNotFound, "worker.unknown", text}
}

// relay sends a request to the first of the workers that answers.
type relay struct {
	candidates []Worker
	again      func() []Worker
	answered   Worker
}

// replaceTime is how long whoever was just replaced may be missing.
const replaceTime = 100 * time.Millisecond

// RoundTrip asks one after the other. What may change something is sent to one
// alone, which has just shown that it answers.
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

// sentError is a request that was sent, and of which it is not known what has
// become.
type sentError struct{ error }

func (e sentError) Unwrap() error { return e.error }

// repeatable reports whether a request that has failed may be sent again.
func repeatable(r *http.Request, err error) bool {
	_, sent := errors.AsType[sentError](err)
	return r.Context().Err() == nil && (!sent || readOnly(r))
}

// elsewhere reports whether another worker is to be asked, since this one does not
// want to answer: it may have begun to end, without its locks, in the meantime.
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
			err = errors.Join(fmt.Errorf("it answers with status %d", a.StatusCode), a.Body.Close())
		}
		errs = append(errs, fmt.Errorf("%v: %w", w, err))
		if !repeatable(r, err) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// errNoSocket is why a worker cannot be asked that could not open its socket.
var errNoSocket = errors.New("it has no socket by which it could be asked: its log says why")

// helloTime is what a worker has to say that it is there. One that was stopped
// takes a connection, too.
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
		return nil, sentError{fmt.Errorf("it took the request and has not answered: %w", cmp.Or(cause(ctx), err))}
	}
	a.Body = ending{a.Body, cancel}
	return a, nil
}

// lives asks a worker that has taken a request again and again whether it is
// there, until answered is called. What it was asked may take its time, but if
// it was stopped meanwhile, hung is told. That it is no longer found does not
// count: it may be ending, and finishes what it has first.
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

// cause is why a request was given up, if its client has not gone away.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, errSilent) {
		return err
	}
	return nil
}

// ending is a body whose request ends with it.
type ending struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

// Close ends both.
func (e ending) Close() error {
	defer e.end(nil)
	return e.ReadCloser.Close()
}

// errSilent is a worker that takes connections and says nothing.
var errSilent = fmt.Errorf("it does not answer within %v: it may have been stopped, or be very busy", helloTime)

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
		return fmt.Errorf("it has ended: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return errSilent
	case err != nil:
		return fmt.Errorf("it does not answer: %w", err)
	}
	return a.Body.Close()
}

// refuseWorker says why there is no answer from a worker.
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

// patient is a writer to a client that may be slow, but not for ever.
type patient struct{ http.ResponseWriter }

// Write gives the client its time again.
func (p patient) Write(b []byte) (int, error) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTime)) // a recorder in a test has none
	return p.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (p patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }
