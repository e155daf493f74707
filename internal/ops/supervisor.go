package ops

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/workers"
)

// Supervisor serves the probes, the metrics and the pages of a program with
// several workers. It answers probes and scrapes itself, and forwards other
// requests to a worker.
type Supervisor struct {
	Workers *workers.Supervisor // set before the first request
	Info    func() admin.Info   // describes the supervisor
	Longest time.Duration       // the longest budget of a readiness check
	Build   Build
	Profile bool       // serve pprof
	Errors  func() any // the last warnings and errors of the supervisor
	Log     *slog.Logger
}

// WorkerStates returns the states of the workers, ordered by number.
func (s *Supervisor) WorkerStates() (all []admin.Worker) {
	for _, w := range s.Workers.Workers() {
		all = append(all, admin.Worker{
			ID: w.ID, PID: w.PID, State: string(w.State), Generation: w.Generation, Restarts: w.Restarts, Since: w.Since, Ended: w.Ended,
			Next: w.Next, Path: w.Socket,
		})
	}
	return all
}

// supervisorPaths lists the paths of a worker and the additional paths of a
// supervisor.
const supervisorPaths = Paths + `/ops/workers     workers with their states
With ?worker=N worker N answers, otherwise a ready one; the header Mega-Worker names it.
Without ?worker=N /ops/process and /ops/errors describe the supervisor.
`

// Handler returns the handler of ops.addr.
func (s *Supervisor) Handler() http.Handler {
	mux := http.NewServeMux()
	ask := admin.Forward(s.WorkerStates, s.Log)
	addProbes(mux, func() bool { return s.Workers.Ready() }, s.ready)
	mux.Handle("/metrics", s.workerMetrics().Handler(slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn)))
	mux.HandleFunc("/ops/workers", func(out http.ResponseWriter, _ *http.Request) {
		writeJSON(out, http.StatusOK, append([]admin.Worker{}, s.WorkerStates()...))
	})
	mux.HandleFunc("/ops/process", func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("worker") {
			ask.ServeHTTP(out, r)
			return
		}
		info := s.Info()
		info.Workers = s.WorkerStates()
		writeJSON(out, http.StatusOK, info)
	})
	mux.HandleFunc("/ops/errors", func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("worker") {
			ask.ServeHTTP(out, r)
			return
		}
		writeJSON(out, http.StatusOK, s.Errors())
	})
	mux.Handle("/ops/", ask)
	mux.HandleFunc("/{$}", func(out http.ResponseWriter, _ *http.Request) { writeText(out, supervisorPaths) })
	if s.Profile {
		mux.Handle("/debug/pprof/", ask)
	}
	return admin.Coded(mux)
}

// workerMetrics returns the metrics of the supervisor and of all workers.
func (s *Supervisor) workerMetrics() *metrics.Gathered {
	sources := func() (all []metrics.Source) {
		for _, worker := range admin.Serving(s.WorkerStates()) {
			all = append(all, metrics.Source{Worker: worker.ID, To: worker.ScrapeTransport()})
		}
		return all
	}
	return metrics.NewGathered(s.Build.Metrics(), s.countWorkers, sources)
}

// countWorkers returns the number of workers in each state and their restarts.
func (s *Supervisor) countWorkers() metrics.Workers {
	c := metrics.Workers{States: map[string]int{}, Restarts: map[int]int{}}
	for _, state := range []workers.State{workers.Starting, workers.Ready, workers.Stopping, workers.Failing, workers.Down} {
		c.States[string(state)] = 0
	}
	for _, p := range s.WorkerStates() {
		c.States[p.State]++
		c.Restarts[p.ID] = p.Restarts
	}
	return c
}
