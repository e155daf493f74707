// Package metrics counts the events of a process, for Prometheus: its locks by
// class of key, its messages, the requests of its apps, its boot, its build,
// and the statistics of the Go runtime and the system.
//
// Each Metrics has its own registry, so that one process can have two of them.
// The names of the series are part of the framework's interface; [Catalogue]
// lists them, and the package has no other series.
package metrics

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Build describes the build of a program.
type Build struct {
	Program  string
	Version  string
	Revision string
	Go       string
}

// Metrics holds the metrics of one process. Its methods are safe for concurrent
// use.
type Metrics struct {
	registry *prometheus.Registry
	locks    locks
	limits   limits
	requests *prometheus.HistogramVec
	handlers *bySubscription[prometheus.Observer]
	dropped  *bySubscription[prometheus.Counter]
	boot     *prometheus.GaugeVec
}

// New returns Metrics that contain only the build of the program.
func New(b Build) *Metrics {
	r := prometheus.NewRegistry()
	m := &Metrics{
		registry: r, locks: newLocks(r), limits: newLimits(r), boot: gauge(r, bootSeconds),
		requests: histogram(r, requestSeconds, requestBuckets),
		handlers: newBySubscription(histogram(r, busSeconds, busBuckets).WithLabelValues),
		dropped:  newBySubscription(counter(r, busDropped).WithLabelValues),
	}
	gauge(r, buildInfo).WithLabelValues(b.Program, b.Version, b.Revision, b.Go).Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// The bounds of scrapes: the number of concurrent scrapes, and their timeout.
const (
	maxScrapes = 3
	scrapeTime = 10 * time.Second
)

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapeTime})
}

// Registerer returns the registry for an application's own series.
func (m *Metrics) Registerer() prometheus.Registerer { return m.registry }

// Gatherer returns the reader of all series.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Boot records the duration of a phase of the boot.
func (m *Metrics) Boot(phase string, took time.Duration) {
	m.boot.WithLabelValues(phase).Set(took.Seconds())
}

// Series is the name of a metric with its labels.
type Series struct {
	Name   string
	Kind   string // counter, gauge, histogram
	Labels []string
	Help   string
}

func (s Series) desc() *prometheus.Desc { return prometheus.NewDesc(s.Name, s.Help, s.Labels, nil) }

// The series. Locks and requests are in their own files.
var (
	bootSeconds = Series{"mega_boot_seconds", "gauge", []string{"phase"}, "Duration of a phase of the boot."}
	buildInfo   = Series{"mega_build_info", "gauge", []string{"program", "version", "revision", "go"}, "Always 1. The labels describe the build of the program."}
)

// Catalogue returns every series of this package, sorted by name. It does not
// list the series of the Go runtime (go_…) and of the process (process_…).
func Catalogue() []Series {
	all := slices.Concat(lockCatalogue(), limitCatalogue(), busCatalogue(), []Series{requestSeconds, requestsActive, bootSeconds, buildInfo})
	slices.SortFunc(all, func(a, b Series) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func counter(r *prometheus.Registry, s Series) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: s.Name, Help: s.Help}, s.Labels)
	r.MustRegister(c)
	return c
}

func gauge(r *prometheus.Registry, s Series) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: s.Name, Help: s.Help}, s.Labels)
	r.MustRegister(g)
	return g
}

func histogram(r *prometheus.Registry, s Series, buckets []float64) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: s.Name, Help: s.Help, Buckets: buckets}, s.Labels)
	r.MustRegister(h)
	return h
}
