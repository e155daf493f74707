// Package metrics counts what happens in a process, for Prometheus: its locks
// by class of key, its messages, the requests of its apps, its boot, what it was built from,
// and what the Go runtime and the system say of it.
//
// Each Metrics has a registry of its own, so that two of them live side by side
// in one process. The names of the series are part of the framework's
// interface; [Catalogue] lists them, and nothing is counted that is not in it.
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

// Build is what a program was built from.
type Build struct {
	Program  string
	Version  string
	Revision string
	Go       string
}

// Metrics is what one process counts. Its methods may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry
	locks    locks
	requests *prometheus.HistogramVec
	handlers *bySubscription[prometheus.Observer]
	dropped  *bySubscription[prometheus.Counter]
	boot     *prometheus.GaugeVec
}

// New returns Metrics that know what the program was built from, and nothing
// else yet.
func New(b Build) *Metrics {
	r := prometheus.NewRegistry()
	m := &Metrics{
		registry: r, locks: newLocks(r), boot: gauge(r, bootSeconds),
		requests: histogram(r, requestSeconds, requestBuckets),
		handlers: newBySubscription(histogram(r, busSeconds, busBuckets).WithLabelValues),
		dropped:  newBySubscription(counter(r, busDropped).WithLabelValues),
	}
	gauge(r, buildInfo).WithLabelValues(b.Program, b.Version, b.Revision, b.Go).Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// The bounds of what one scrape may cost: how many are answered at a time, and
// for how long.
const (
	maxScrapes = 3
	scrapeTime = 10 * time.Second
)

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapeTime})
}

// Registerer takes series of an application's own.
func (m *Metrics) Registerer() prometheus.Registerer { return m.registry }

// Gatherer reads what has been counted.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Boot tells how long a phase of the boot took.
func (m *Metrics) Boot(phase string, took time.Duration) {
	m.boot.WithLabelValues(phase).Set(took.Seconds())
}

// Series is one name that Prometheus sees, with the labels that it has.
type Series struct {
	Name   string
	Kind   string // counter, gauge, histogram
	Labels []string
	Help   string
}

func (s Series) desc() *prometheus.Desc { return prometheus.NewDesc(s.Name, s.Help, s.Labels, nil) }

// The series. Locks and requests are in their own files.
var (
	bootSeconds = Series{"mega_boot_seconds", "gauge", []string{"phase"}, "How long a phase of the boot took."}
	buildInfo   = Series{"mega_build_info", "gauge", []string{"program", "version", "revision", "go"}, "Always 1; its labels say what the program was built from."}
)

// Catalogue lists every series of this package, sorted by name. Those of the Go
// runtime (go_…) and of the process (process_…) come beside them.
func Catalogue() []Series {
	all := slices.Concat(lockCatalogue(), busCatalogue(), []Series{requestSeconds, requestsActive, bootSeconds, buildInfo})
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
