package boot

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/workers"
)

// watch serves the probes, the metrics and the admin socket of a supervisor.
// The supervisor answers probes and scrapes itself. It forwards other requests
// to a worker.
type watch struct {
	ops     *listen.Server // nil before it is open
	admin   *admin.Server  // nil if it cannot be opened
	started atomic.Bool    // whether a worker was ever ready
}

// openOps opens the listener of ops.addr.
func (w *crew) openOps() (err error) {
	if w.watch.ops, err = newOps(w.config, w.lookout(), w.log); err != nil {
		return err
	}
	w.report.Ops = w.watch.ops.URL()
	return nil
}

// serveOps starts to serve ops.addr, and opens the admin socket. The workers
// exist by then.
func (w *crew) serveOps() {
	w.watch.ops.Serve(func(err error) { w.log.Error("ops listener stopped", "error", err) })
	if w.watch.admin = opened(w.log, noAdmin)(admin.OpenCrew(w.operated(), admin.Folders(w.process.Environ))); w.watch.admin != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.report.Admin = w.watch.admin.Path()
	}
}

// closeOps closes the ops listener and the admin socket, after the workers have
// ended.
func (w *crew) closeOps() {
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	var err error
	if w.watch.admin != nil {
		err = w.watch.admin.Close(ctx)
	}
	if w.watch.ops != nil {
		err = errors.Join(err, w.watch.ops.Drain(ctx))
	}
	if err != nil {
		w.log.Warn("ops requests cut off", "error", err)
	}
}

// operated returns the view of the supervisor that the admin socket serves.
func (w *crew) operated() admin.Crew {
	return admin.Crew{
		Info:    w.info,
		Workers: w.seen,
		Restart: func(ctx context.Context, id int) error {
			if id == 0 {
				return w.workers.Restart(ctx)
			}
			return w.workers.RestartOne(ctx, id)
		},
		Reload:   func(ctx context.Context) ([]admin.Change, error) { return changed(w.reload(ctx)) },
		SetLevel: w.logs.set,
		Log:      w.log,
	}
}

func (w *crew) info() admin.Info {
	w.mu.Lock()
	r := w.report
	w.mu.Unlock()
	return admin.Info{
		Name: r.Program, PID: r.PID, Env: r.Env, Apps: w.program.Running(), Since: w.began, Meets: w.config.Cluster.Socket,
		Driver: r.Lock.Chosen, Scope: r.Lock.Scope, Bus: admin.Reach{Driver: r.Bus.Chosen, Scope: r.Bus.Scope},
	}
}

// seen returns the workers with their state and their admin sockets. A worker
// that has died is listed until it is replaced.
func (w *crew) seen() (all []admin.Worker) {
	type key struct{ id, pid int }
	sockets := map[key]string{}
	w.mu.Lock()
	for _, m := range w.members {
		sockets[key{m.process.ID(), m.process.PID()}] = m.socket
	}
	w.mu.Unlock()
	for _, p := range w.workers.Workers() {
		all = append(all, admin.Worker{
			ID: p.ID, PID: p.PID, State: string(p.State), Generation: p.Generation, Restarts: p.Restarts, Since: p.Since, Ended: p.Ended,
			Path: sockets[key{p.ID, p.PID}],
		})
	}
	for id := 1; id <= w.config.Cluster.Workers; id++ {
		if !slices.ContainsFunc(all, func(x admin.Worker) bool { return x.ID == id }) {
			all = append(all, admin.Worker{ID: id, State: admin.Down})
		}
	}
	slices.SortStableFunc(all, func(a, b admin.Worker) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// crewPaths lists the paths of a worker and the additional paths of a
// supervisor.
const crewPaths = paths + `/ops/workers    the processes that serve
With ?worker=N the worker with that number answers, else one that is ready: see the header Mega-Worker.
/ops/process without it is the supervisor's.
`

// lookout returns the handler of ops.addr.
func (w *crew) lookout() http.Handler {
	mux := http.NewServeMux()
	ask := admin.Forward(w.seen, w.log)
	mux.HandleFunc("/livez", func(out http.ResponseWriter, _ *http.Request) { answer(out, http.StatusOK, readiness{Status: "ok"}) })
	mux.HandleFunc("/startupz", w.startupz)
	mux.HandleFunc("/readyz", w.readyz)
	mux.Handle("/metrics", w.gathered().Handler(slog.NewLogLogger(w.log.Handler(), slog.LevelWarn)))
	mux.HandleFunc("/ops/workers", func(out http.ResponseWriter, _ *http.Request) {
		answer(out, http.StatusOK, append([]admin.Worker{}, w.seen()...))
	})
	mux.HandleFunc("/ops/process", func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("worker") {
			ask.ServeHTTP(out, r)
			return
		}
		info := w.info()
		info.Workers = w.seen()
		answer(out, http.StatusOK, info)
	})
	mux.Handle("/ops/", ask)
	mux.HandleFunc("/{$}", func(out http.ResponseWriter, _ *http.Request) { text(out, crewPaths) })
	if w.config.Env == "dev" {
		mux.Handle("/debug/pprof/", ask)
	}
	return mux
}

// gathered returns the metrics of all workers.
func (w *crew) gathered() *metrics.Gathered {
	sources := func() (all []metrics.Source) {
		for _, worker := range admin.Serving(w.seen()) {
			all = append(all, metrics.Source{Worker: worker.ID, To: worker.Scrapes()})
		}
		return all
	}
	return metrics.NewGathered(newBuild(w.config.Name).metrics(), w.counted, sources)
}

func (w *crew) counted() metrics.Crew {
	c := metrics.Crew{States: map[string]int{}, Restarts: map[int]int{}}
	for _, state := range []workers.State{workers.Starting, workers.Ready, workers.Stopping, workers.Failing, admin.Down} {
		c.States[string(state)] = 0
	}
	for _, p := range w.seen() {
		c.States[p.State]++
		if p.State != admin.Down { // the number of restarts of a worker that is down is not known
			c.Restarts[p.ID] = p.Restarts
		}
	}
	return c
}
