package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// The series of a supervisor.
var (
	workersNow      = Series{"mega_workers", "gauge", []string{"state"}, "Workers of this supervisor, by state."}
	workersRestarts = Series{"mega_worker_restarts_total", "counter", []string{"worker"}, "Replaced workers, after an exit or for a restart."}
	workersMissed   = Series{"mega_worker_scrape_failures_total", "counter", []string{"worker"}, "Scrapes without the metrics of a worker, or without a part of them."}
)

// WorkerCatalogue returns the series of a supervisor, sorted by name. They are
// added to its workers' series.
func WorkerCatalogue() []Series { return []Series{workersRestarts, workersMissed, workersNow} }

// Workers is the state of a supervisor's workers.
type Workers struct {
	States   map[string]int // the number of workers in each state
	Restarts map[int]int    // by worker
}

// supervisor is the worker label of the supervisor's own series, if workers
// have the same series.
const supervisor = "supervisor"

// NewGathered returns the combined metrics of a supervisor's workers. Each
// scrape calls both functions.
func NewGathered(b Build, workers func() Workers, sources func() []Source) *Gathered {
	r := prometheus.NewRegistry()
	g := &Gathered{own: r, sources: sources, missed: counter(r, workersMissed), timeout: workerTime}
	r.MustRegister(workersCollector(workers))
	own := prometheus.WrapRegistererWith(prometheus.Labels{workerLabel: supervisor}, r)
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: buildInfo.Name, Help: buildInfo.Help}, buildInfo.Labels)
	info.WithLabelValues(b.Program, b.Version, b.Revision, b.Go).Set(1)
	own.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return g
}

// workersCollector returns the state of the workers for each scrape.
type workersCollector func() Workers

// Describe implements [prometheus.Collector].
func (c workersCollector) Describe(out chan<- *prometheus.Desc) {
	out <- workersNow.desc()
	out <- workersRestarts.desc()
}

// Collect implements [prometheus.Collector].
func (c workersCollector) Collect(out chan<- prometheus.Metric) {
	workers := c()
	for state, n := range workers.States {
		out <- prometheus.MustNewConstMetric(workersNow.desc(), prometheus.GaugeValue, float64(n), state)
	}
	for worker, n := range workers.Restarts {
		out <- prometheus.MustNewConstMetric(workersRestarts.desc(), prometheus.CounterValue, float64(n), strconv.Itoa(worker))
	}
}
