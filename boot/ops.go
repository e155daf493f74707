package boot

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/plan"
)

// lookout serves the probes, the metrics and the views of the process, at the
// listener of ops.addr or through its supervisor. It is read-only: changes go
// through the admin socket.
type lookout struct {
	probes  *probes
	metrics *metrics.Metrics
	build   build
	profile bool // serve pprof

	views atomic.Pointer[http.Handler] // the pages below /ops; nil until the boot is complete
}

// openOps starts the ops listener, so that the boot can be observed, too. If
// another process has the default address, it uses a free port.
func (b *booting) openOps(made *plan.Plan, log *slog.Logger) error {
	if b.process.Offline != nil {
		return nil
	}
	b.degraded(made.Decisions)
	b.life.endWith(watching, hook{name: "checks", budget: lastWord, run: b.probes.drain})
	if b.supervised() { // the supervisor has the listener, and calls this process
		return nil
	}
	server, err := newOps(made.Config, b.lookout.handler(), log)
	if err != nil {
		return err
	}
	b.report.Ops = server.URL()
	b.life.endWith(watching, hook{name: "ops", budget: hookBudget, run: server.Drain})
	server.Serve(b.fail)
	return nil
}

// newOps opens the listener of ops.addr in front of watch, which is read-only.
func newOps(c *config.Config, watch http.Handler, log *slog.Logger) (*listen.Server, error) {
	addr := string(c.Ops.Addr)
	g := &guard{next: watch, token: newBearer(c.Ops.Token.Reveal())}
	l, err := listen.Listen(addr)
	if errors.Is(err, syscall.EADDRINUSE) && c.Origin("ops.addr").IsDefault() {
		l, err = listen.Listen("127.0.0.1:0")
	}
	if err != nil {
		return nil, listenFailure(c, "ops.addr", addr, err)
	}
	g.local = listen.IsLoopback(l.Addr())
	server := listen.NewServer("ops", l, g, log)
	l.ReserveDescriptors()
	server.Limit(listen.OpsConnections(), log)
	return server, nil
}

// publish makes the report and the views of the started process available.
func (b *booting) publish() {
	report := b.report
	b.told.Store(&report)
	for _, p := range report.Phases {
		b.metrics.Boot(p.Name, p.Took)
	}
	b.metrics.Boot("total", report.Took)
	views := admin.Views(b.operated())
	b.lookout.views.Store(&views)
}

func (l *lookout) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", l.probes.livez)
	mux.HandleFunc("/readyz", l.probes.readyz)
	mux.HandleFunc("/startupz", l.probes.startupz)
	mux.Handle("/metrics", l.metrics.Handler())
	mux.HandleFunc("/ops/build", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, l.build) })
	mux.Handle("/ops/", http.StripPrefix("/ops", http.HandlerFunc(l.see)))
	mux.HandleFunc("/{$}", index)
	if l.profile {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func (l *lookout) see(w http.ResponseWriter, r *http.Request) {
	views := l.views.Load()
	if views == nil {
		refuse(w, http.StatusServiceUnavailable, "mega.starting", errors.New("the process has not started yet"))
		return
	}
	(*views).ServeHTTP(w, r)
}

const paths = `/livez          the process lives
/startupz       it has started
/readyz         it wants traffic; ?verbose for each check
/metrics        for Prometheus
/ops/boot       the report of the boot
/ops/config     the configuration, and where each value came from
/ops/locks      who holds and who waits; ?prefix= and ?limit=
/ops/lock       the same of one lock; ?key=
/ops/stats      what has been done with locks
/ops/bus        the same of messages, and of each subscription
/ops/bus/topics what is subscribed and responded to, by pattern
/ops/routes     of every app
/ops/process    which process this is
/ops/build      what it was built from
`

func index(w http.ResponseWriter, _ *http.Request) { text(w, paths) }

func text(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(body)) // the client went away
}

// answer writes body as JSON.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client went away
}

func refuse(w http.ResponseWriter, status int, code string, err error) {
	answer(w, status, map[string]string{"code": code, "error": err.Error()})
}

// guard refuses requests that would change something, requests that a browser
// makes for the page of another site, and requests for private pages without
// permission.
type guard struct {
	next  http.Handler
	local bool   // the listener is on a loopback address
	token bearer // that private pages need
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Frame-Options", "DENY")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "request.method_not_allowed", errors.New("nothing can be changed here: use the admin socket"))
	case g.local && !listen.LocalName(r.Host):
		// A page whose own name resolves to a loopback address could read these
		// pages as its own.
		refuse(w, http.StatusForbidden, "ops.foreign_host", errors.New("ask for localhost, or for a loopback address"))
	case listen.CrossSite(r):
		refuse(w, http.StatusForbidden, "request.cross_origin", errors.New("this request came from the page of another site"))
	case isPublic(r.URL.Path) || g.local && !g.token.isSet():
		g.next.ServeHTTP(w, r)
	case !g.token.isSet():
		refuse(w, http.StatusForbidden, "ops.token_not_set", errors.New("only probes and metrics are served on this address: set ops.token"))
	case !g.token.allows(r):
		w.Header().Set("WWW-Authenticate", `Bearer realm="ops"`)
		refuse(w, http.StatusUnauthorized, "ops.unauthorized", errors.New("send the token of ops.token: Authorization: Bearer TOKEN"))
	default:
		g.next.ServeHTTP(w, r)
	}
}

// isPublic reports whether a page is open to everyone: the probes, the metrics
// and the list of pages. Only the exact paths match, so that no other spelling
// of a private path is public.
func isPublic(path string) bool {
	switch path {
	case "/", "/livez", "/readyz", "/startupz", "/metrics":
		return true
	}
	return false
}

// bearer is the token that a request has to carry. The zero bearer is not set,
// and allows no request.
type bearer struct {
	set bool
	sum [sha256.Size]byte
}

func newBearer(token string) bearer { return bearer{token != "", sha256.Sum256([]byte(token))} }

func (b bearer) isSet() bool { return b.set }

// allows reports whether a request carries the token. It compares hashes in
// constant time, so that neither the token nor its length can be measured.
func (b bearer) allows(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return b.set && strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], b.sum[:]) == 1
}
