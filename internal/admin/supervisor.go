package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/megaframework/mega/config"
)

// Supervisor is the interface of a supervisor and its workers for the socket. All
// fields must be safe for concurrent calls.
type Supervisor struct {
	Info    func() Info
	Workers func() []Worker // by number; of two with the same number the newer one is last
	// Restart replaces a worker, or all of them if id is 0, one after the
	// other. It returns when it has succeeded or failed.
	Restart func(ctx context.Context, id int) error
	// Reload requests the supervisor and all workers to read the configuration
	// again.
	Reload func(context.Context) ([]config.Change, error)
	// SetLevel sets the supervisor's own minimum log level.
	SetLevel func(app, level string) error
	Log      *slog.Logger
}

// OpenSupervisor opens the admin socket of a supervisor. It forwards all requests
// but the following to a ready worker: the one in ?worker=, or else any, since most
// answers are the same in all workers.
//
//	GET  /process         its identity: Info, with its Workers
//	GET  /workers         []Worker
//	POST /worker/restart  {id}, 0 for all -> {restarted}
//	POST /config/reload   in the supervisor and all workers
//	POST /log             in every worker, or in one
//
// The caller must Close it.
func OpenSupervisor(c Supervisor, folders []string) (*Server, error) {
	serves := func(ending context.Context) http.Handler { return supervisorHandler(ending, c) }
	info := c.Info()
	return open(place{folders, info.Name, info.PID, suffix}, serves, c.Log)
}

// supervisorHandler returns the handler of a supervisor's socket.
func supervisorHandler(ending context.Context, c Supervisor) http.Handler {
	mux := http.NewServeMux()
	v := supervisorOperations{c}
	to := forwarder{c.Workers, "", c.Log}
	mux.Handle("GET /process", v.unlessWorker(to, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, v.info()) }))
	mux.HandleFunc("GET /workers", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, v.info().Workers) })
	mux.HandleFunc("POST /worker/restart", v.restart)
	mux.HandleFunc("POST /config/reload", v.reload)
	mux.Handle("POST /log", v.unlessWorker(to, v.level))
	mux.Handle("GET /bus/tail", endWith(ending, to))
	mux.Handle("/", to)
	return mux
}

// info returns the supervisor's Info, with its Workers.
func (c Supervisor) info() Info {
	i := c.Info()
	i.Workers = append([]Worker{}, c.Workers()...)
	return i
}

// supervisorOperations are the handlers of requests that the supervisor answers
// itself.
type supervisorOperations struct{ Supervisor }

// unlessWorker returns a handler that calls does, or to if the request names a
// worker.
func (c supervisorOperations) unlessWorker(to http.Handler, does http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has(workerQuery) {
			to.ServeHTTP(w, r)
			return
		}
		does(w, r)
	})
}

// endWith returns a handler that calls to, and ends its stream when ending ends.
func endWith(ending context.Context, to http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		client := withWriteDeadline(w, writeTime)
		defer context.AfterFunc(ending, func() {
			cancel()
			client.shorten() // a client that does not read would delay the end
		})()
		to.ServeHTTP(client, r.WithContext(ctx))
	})
}

type restartRequest struct {
	ID int `json:"id"`
}

type restartAnswer struct {
	Restarted int `json:"restarted"`
}

// restart continues if the client disconnects, because half a restart would
// leave two generations of workers.
func (c supervisorOperations) restart(w http.ResponseWriter, r *http.Request) {
	var in restartRequest
	if !read(w, r, &in) {
		return
	}
	workers := c.Workers()
	ids := Numbers(workers)
	if in.ID != 0 && !slices.Contains(ids, in.ID) {
		refuseWorker(w, unknownWorker(strconv.Itoa(in.ID), workers))
		return
	}
	var which []slog.Attr
	if in.ID != 0 {
		which = append(which, slog.Int("worker", in.ID))
	}
	logChange(c.Log, r, "admin: restarting workers", which...)
	unbounded(w)
	if err := c.Restart(context.WithoutCancel(r.Context()), in.ID); err != nil {
		refuse(w, http.StatusConflict, codeOf(err, "worker.not_restarted"), err)
		return
	}
	n := 1
	if in.ID == 0 {
		n = len(ids)
	}
	answer(w, http.StatusOK, restartAnswer{n})
}

// reload continues if the client disconnects, because half a reload would leave
// workers with two configurations.
func (c supervisorOperations) reload(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has(workerQuery) {
		refuse(w, http.StatusBadRequest, "request.invalid", errors.New("all workers have one configuration: omit the worker number"))
		return
	}
	unbounded(w)
	operations{Process{Reload: c.Reload, Log: c.Log}}.reload(w, r.WithContext(context.WithoutCancel(r.Context())))
}

// levelTime is the timeout for the workers to set a level.
const levelTime = 5 * time.Second

// level sets a level in all workers and, for the whole process, in the supervisor.
func (c supervisorOperations) level(w http.ResponseWriter, r *http.Request) {
	set := func(app, level string) error { return c.setLevels(r.Context(), app, level) }
	operations{Process{SetLevel: set, Log: c.Log}}.level(w, r)
}

// setLevels returns an error that names the workers that did not set the level. It has
// the code unanswered if no worker has refused the level.
func (c supervisorOperations) setLevels(peer context.Context, app, level string) error {
	ctx, cancel := context.WithTimeout(peer, levelTime)
	defer cancel()
	workers := Serving(c.Workers())
	if app != "" && len(workers) == 0 { // the supervisor has no level of an app
		return errNoneReady
	}
	errs := make([]error, len(workers))
	var setting sync.WaitGroup
	for i, worker := range workers {
		setting.Go(func() {
			if err := worker.client(peer).SetLevel(ctx, app, level); err != nil {
				errs[i] = fmt.Errorf("%v: %w", worker, err)
			}
		})
	}
	setting.Wait()
	err := errors.Join(errs...)
	refused := slices.ContainsFunc(errs, isRefusal)
	if app == "" {
		own := c.SetLevel(app, level)
		err, refused = errors.Join(err, own), refused || own != nil
	}
	if err == nil || refused {
		return err
	}
	return &workerError{http.StatusBadGateway, unanswered, err.Error()}
}

// isRefusal reports whether err is the answer that a request is wrong.
func isRefusal(err error) bool {
	no, answered := errors.AsType[*Error](err)
	return answered && no.Status < http.StatusInternalServerError
}

// client returns a client of the worker on behalf of the peer in ctx.
func (w Worker) client(ctx context.Context) *Client {
	c := Dial(w.Path)
	c.http.Transport = identityTransport{ctx, c.http.Transport}
	return c
}

// identityTransport adds the peer and the operator in ctx to each request.
type identityTransport struct {
	ctx context.Context
	to  http.RoundTripper
}

// RoundTrip sends one request.
func (t identityTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	setIdentity(t.ctx, r.Header)
	return t.to.RoundTrip(r)
}
