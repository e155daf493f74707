package metrics

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// workerLabel is the label for the worker of a series.
const workerLabel = "worker"

// workerTime is the timeout of a worker's answer to a scrape. It is less than
// Prometheus's timeout for the whole scrape, which is 10 seconds by default.
const workerTime = 3 * time.Second

// maxScrape bounds the answer of one worker, in bytes.
const maxScrape = 64 << 20

// Source is a worker that can be scraped.
type Source struct {
	Worker int
	// To sends a request for /metrics to the worker.
	To http.RoundTripper
}

// Gathered combines the metrics of a supervisor's workers: each of their series
// has the label worker, and the supervisor's own series come beside them. A
// worker that does not answer in time is left out, and counted.
//
// A series that already has such a label keeps it as exported_worker, as in
// Prometheus when a target's label conflicts with its own.
type Gathered struct {
	own     *prometheus.Registry
	sources func() []Source
	missed  *prometheus.CounterVec
	timeout time.Duration
}

// Gather scrapes all workers concurrently. If a worker is left out, the error
// contains the reason, and the result contains the other workers' series.
func (g *Gathered) Gather() ([]*dto.MetricFamily, error) {
	sources := g.sources()
	answers, errs := make([][]*dto.MetricFamily, len(sources)), make([]error, len(sources))
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	var asking sync.WaitGroup
	for i, s := range sources {
		asking.Go(func() { answers[i], errs[i] = s.scrape(ctx) })
	}
	asking.Wait()
	var m merger
	for i, s := range sources {
		m.add(strconv.Itoa(s.Worker), answers[i])
		if errs[i] = errors.Join(errs[i], m.conflictError()); errs[i] != nil {
			g.missed.WithLabelValues(strconv.Itoa(s.Worker)).Inc()
			errs[i] = fmt.Errorf("worker %d: %w", s.Worker, errs[i])
		}
	}
	own, err := g.own.Gather() // last, so that it includes the workers that were left out
	m.add("", own)
	return m.families(), errors.Join(errors.Join(errs...), err, m.conflictError())
}

// Handler answers scrapes with the available series.
func (g *Gathered) Handler(log promhttp.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeTime, ErrorHandling: promhttp.ContinueOnError, ErrorLog: log,
	})
}

// delimited is the format that preserves all of a worker's metrics.
var delimited = expfmt.NewFormat(expfmt.TypeProtoDelim)

// scrape returns the metrics of the worker. A hanging worker accepts the
// connection and does not answer.
func (s Source) scrape(ctx context.Context) ([]*dto.MetricFamily, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://worker/metrics", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", string(delimited))
	w, err := s.To.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Body.Close() }()
	if w.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered with status %d", w.StatusCode)
	}
	return decode(io.LimitReader(w.Body, maxScrape), expfmt.ResponseFormat(w.Header))
}

func decode(r io.Reader, format expfmt.Format) (families []*dto.MetricFamily, _ error) {
	if format.FormatType() == expfmt.TypeUnknown {
		return nil, fmt.Errorf("the answer has no format of Prometheus")
	}
	for d := expfmt.NewDecoder(bufio.NewReader(r), format); ; {
		f := &dto.MetricFamily{}
		switch err := d.Decode(f); {
		case errors.Is(err, io.EOF):
			return families, nil
		case err != nil:
			return nil, fmt.Errorf("read the metrics: %w", err)
		}
		families = append(families, f)
	}
}

// merger merges metric families by name.
type merger struct {
	byName    map[string]*dto.MetricFamily
	conflicts []string // of the last call of add: families whose kind differs from the first one
}

// add adds the families of a worker, or of the supervisor if worker is empty.
// Two versions of a program may use one name for different kinds; the first
// kind is kept.
func (m *merger) add(worker string, families []*dto.MetricFamily) {
	if m.byName == nil {
		m.byName = map[string]*dto.MetricFamily{}
	}
	m.conflicts = nil
	for _, f := range families {
		if worker != "" {
			addWorkerLabel(f, worker)
		}
		known := m.byName[f.GetName()]
		switch {
		case known == nil:
			m.byName[f.GetName()] = f
		case known.GetType() != f.GetType():
			m.conflicts = append(m.conflicts, fmt.Sprintf("%s is a %s here and a %s in another worker", f.GetName(), kind(f), kind(known)))
		default:
			known.Metric = append(known.Metric, f.GetMetric()...)
		}
	}
}

func kind(f *dto.MetricFamily) string { return strings.ToLower(f.GetType().String()) }

// conflictError returns an error for the families that the last call of add has left
// out.
func (m *merger) conflictError() error {
	if m.conflicts == nil {
		return nil
	}
	return fmt.Errorf("left out: %s", strings.Join(m.conflicts, "; "))
}

func (m *merger) families() []*dto.MetricFamily {
	return slices.SortedFunc(maps.Values(m.byName), func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// addWorkerLabel adds the label worker to the series of a family.
func addWorkerLabel(f *dto.MetricFamily, worker string) {
	for _, m := range f.GetMetric() {
		renameLabel(m.GetLabel(), workerLabel)
		m.Label = append(m.GetLabel(), &dto.LabelPair{Name: new(workerLabel), Value: new(worker)})
		slices.SortFunc(m.GetLabel(), func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	}
}

// renameLabel renames the label name to exported_name, if labels has it. It first
// renames a label that already has the new name in the same way.
func renameLabel(labels []*dto.LabelPair, name string) {
	for _, l := range labels {
		if l.GetName() == name {
			renameLabel(labels, "exported_"+name)
			l.Name = new("exported_" + name)
			return
		}
	}
}
