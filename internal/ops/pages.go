package ops

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"syscall"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/settings"
)

// Pages serves the probes, the metrics and the views of the process, at the
// listener of ops.addr or through its supervisor.
type Pages struct {
	probes  *Probes
	metrics *metrics.Metrics
	build   Build
	profile bool // serve pprof

	views atomic.Pointer[http.Handler] // the pages below /ops; nil until the boot is complete
}

// NewPages returns the pages of a process. profile adds pprof.
func NewPages(p *Probes, m *metrics.Metrics, b Build, profile bool) *Pages {
	return &Pages{probes: p, metrics: m, build: b, profile: profile}
}

// Publish makes the views of the started process available.
func (l *Pages) Publish(views http.Handler) { l.views.Store(&views) }

// Listen opens the listener of ops.addr and returns its server, which is not started:
// watch serves the requests that the guard permits. If the default address is in
// use, Listen takes a free port.
func Listen(c *settings.Config, watch http.Handler, log *slog.Logger) (*listen.Server, error) {
	addr := string(c.Ops.Addr)
	g := &guard{next: watch, token: newBearer(c.Ops.Token.Reveal())}
	l, err := listen.Listen(addr)
	if errors.Is(err, syscall.EADDRINUSE) && c.Origin("ops.addr").IsDefault() {
		l, err = listen.Listen("127.0.0.1:0")
	}
	if err != nil {
		return nil, listen.Failure(c, "ops.addr", addr, err)
	}
	g.local = listen.IsLoopback(l.Addr())
	g.actions = c.Ops.Console && c.Ops.Actions && (g.local || !c.Origin("ops.actions").IsDefault())
	server := listen.NewServer("ops", l, g, log)
	l.ReserveDescriptors()
	server.Limit(listen.OpsConnections(), log)
	return server, nil
}

// Handler returns the handler of all pages.
func (l *Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	addProbes(mux, l.probes.started, l.probes.Ready)
	mux.Handle("/metrics", l.metrics.Handler())
	mux.HandleFunc("/ops/build", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, l.build) })
	mux.Handle("/ops/", http.StripPrefix("/ops", http.HandlerFunc(l.serveViews)))
	mux.HandleFunc("/{$}", index)
	if l.profile {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return admin.Coded(mux)
}

// serveViews serves the pages below /ops, after Publish.
func (l *Pages) serveViews(w http.ResponseWriter, r *http.Request) {
	views := l.views.Load()
	if views == nil {
		refuse(w, http.StatusServiceUnavailable, "mega.starting", errors.New("the process has not started yet"))
		return
	}
	(*views).ServeHTTP(w, r)
}

// Paths lists the pages.
const Paths = `/livez           200 while the process runs
/startupz        200 after the start
/readyz          200 while the process is ready for traffic; ?verbose for each check
/metrics         for Prometheus
/console         the console, in env dev or with ops.console
/ops/boot        report of the boot
/ops/config      configuration, with the origin of each value
/ops/locks       locks with their holders and waiters; ?prefix= and ?limit=
/ops/lock        one lock; ?key=
/ops/stats       counters of locks
/ops/limits      limits with their rates, waiters and pause; ?prefix= and ?limit=
/ops/limit       one limit; ?key=
/ops/limit/stats counters of limits
/ops/bus         counters of messages, and of each subscription
/ops/bus/topics  subscriptions and responders, by pattern
/ops/errors      last warnings and errors of the log, and lost leases
/ops/routes      routes of all apps
/ops/process     name, process id and drivers
/ops/build       version, revision and Go version
`

func index(w http.ResponseWriter, _ *http.Request) { writeText(w, Paths) }

// writeText writes body as plain text.
func writeText(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(body)) // the client went away
}

// writeJSON writes body as JSON.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client went away
}

func refuse(w http.ResponseWriter, status int, code string, err error) {
	writeJSON(w, status, map[string]string{"code": code, "error": err.Error()})
}
