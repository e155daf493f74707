package boot

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/workers"
)

// watch serves the probes, the metrics and the admin socket of a supervisor.
// The supervisor answers probes and scrapes itself. It forwards other requests
// to a worker.
type watch struct {
	ops   *listen.Server // nil before it is open
	admin *admin.Server  // nil if it cannot be opened
}

// openOps opens the listener of ops.addr.
func (s *supervisor) openOps() (err error) {
	if s.watch.ops, err = ops.Listen(s.plan.Config, s.lookout(), s.log); err != nil {
		return err
	}
	s.report.Ops = s.watch.ops.URL()
	return nil
}

// serveOps starts to serve ops.addr, and opens the admin socket. The workers
// exist by then.
func (s *supervisor) serveOps() {
	s.watch.ops.Serve(func(err error) { s.log.Error("ops listener stopped", "error", err) })
	if s.watch.admin = opened(s.log, noAdmin)(admin.OpenSupervisor(s.operated(), admin.Folders(s.process.Environ))); s.watch.admin != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.report.Admin = s.watch.admin.Path()
	}
}

// closeOps closes the ops listener and the admin socket, after the workers have
// ended.
func (s *supervisor) closeOps() {
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	var err error
	if s.watch.admin != nil {
		err = s.watch.admin.Close(ctx)
	}
	if s.watch.ops != nil {
		err = errors.Join(err, s.watch.ops.Drain(ctx))
	}
	if err != nil {
		s.log.Warn("ops requests cut off", "error", err)
	}
}

// operated returns the view of the supervisor that the admin socket serves.
func (s *supervisor) operated() admin.Supervisor {
	return admin.Supervisor{
		Info:     s.info,
		Workers:  s.seen,
		Restart:  s.workers.Restart,
		Reload:   func(ctx context.Context) ([]admin.Change, error) { return changed(s.workers.Reload(ctx)) },
		SetLevel: s.logs.Set,
		Log:      s.log,
	}
}

func (s *supervisor) info() admin.Info {
	s.mu.Lock()
	r := s.report
	s.mu.Unlock()
	return admin.Info{
		Name: r.Program, PID: r.PID, Env: r.Env, Apps: s.plan.Program.Running(), Since: s.began, Meets: s.plan.Config.Cluster.Socket,
		Driver: r.Lock.Chosen, Scope: r.Lock.Scope, Bus: admin.DriverScope{Driver: r.Bus.Chosen, Scope: r.Bus.Scope},
	}
}

// seen returns the workers.
func (s *supervisor) seen() (all []admin.Worker) {
	for _, w := range s.workers.Workers() {
		all = append(all, admin.Worker{
			ID: w.ID, PID: w.PID, State: string(w.State), Generation: w.Generation, Restarts: w.Restarts, Since: w.Since, Ended: w.Ended,
			Path: w.Socket,
		})
	}
	return all
}

// supervisorPaths lists the paths of a worker and the additional paths of a
// supervisor.
const supervisorPaths = ops.Paths + `/ops/workers    workers with their states
With ?worker=N worker N answers, otherwise a ready one; the header Mega-Worker names it.
Without ?worker=N /ops/process describes the supervisor.
`

// lookout returns the handler of ops.addr.
func (s *supervisor) lookout() http.Handler {
	mux := http.NewServeMux()
	ask := admin.Forward(s.seen, s.log)
	mux.HandleFunc("/livez", func(out http.ResponseWriter, _ *http.Request) {
		ops.WriteJSON(out, http.StatusOK, ops.Readiness{Status: "ok"})
	})
	mux.HandleFunc("/startupz", s.startupz)
	mux.HandleFunc("/readyz", s.readyz)
	mux.Handle("/metrics", s.gathered().Handler(slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)))
	mux.HandleFunc("/ops/workers", func(out http.ResponseWriter, _ *http.Request) {
		ops.WriteJSON(out, http.StatusOK, append([]admin.Worker{}, s.seen()...))
	})
	mux.HandleFunc("/ops/process", func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("worker") {
			ask.ServeHTTP(out, r)
			return
		}
		info := s.info()
		info.Workers = s.seen()
		ops.WriteJSON(out, http.StatusOK, info)
	})
	mux.Handle("/ops/", ask)
	mux.HandleFunc("/{$}", func(out http.ResponseWriter, _ *http.Request) { ops.WriteText(out, supervisorPaths) })
	if s.plan.Config.Env == "dev" {
		mux.Handle("/debug/pprof/", ask)
	}
	return mux
}

// gathered returns the metrics of all workers.
func (s *supervisor) gathered() *metrics.Gathered {
	sources := func() (all []metrics.Source) {
		for _, worker := range admin.Serving(s.seen()) {
			all = append(all, metrics.Source{Worker: worker.ID, To: worker.Scrapes()})
		}
		return all
	}
	return metrics.NewGathered(ops.NewBuild(s.plan.Config.Name).Metrics(), s.counted, sources)
}

func (s *supervisor) counted() metrics.Workers {
	c := metrics.Workers{States: map[string]int{}, Restarts: map[int]int{}}
	for _, state := range []workers.State{workers.Starting, workers.Ready, workers.Stopping, workers.Failing, workers.Down} {
		c.States[string(state)] = 0
	}
	for _, p := range s.seen() {
		c.States[p.State]++
		if p.State != admin.Down { // the number of restarts of a worker that is down is not known
			c.Restarts[p.ID] = p.Restarts
		}
	}
	return c
}
