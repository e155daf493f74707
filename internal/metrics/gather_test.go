package metrics_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/lock"
)

// counting is the transport to a worker that counts in a registry of its own.
type counting struct{ handler http.Handler }

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// failing is one to a worker that cannot be reached.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// stopped is one to a worker that takes the request and says nothing.
type stopped struct{}

func (stopped) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// worker is one whose metrics were filled.
func worker(id int, fill ...func(*metrics.Metrics)) metrics.Source {
	m := newMetrics()
	for _, f := range fill {
		f(m)
	}
	return metrics.Source{Worker: id, To: counting{m.Handler()}}
}

func gathered(sources ...metrics.Source) *metrics.Gathered {
	workers := func() metrics.Workers {
		return metrics.Workers{States: map[string]int{"ready": len(sources), "starting": 1}, Restarts: map[int]int{1: 4}}
	}
	return metrics.NewGathered(metrics.Build{Program: "shop", Version: "v1", Revision: "abc", Go: "go1"}, workers, func() []metrics.Source { return sources })
}

func page(t *testing.T, g *metrics.Gathered) string {
	t.Helper()
	w := httptest.NewRecorder()
	g.Handler(discard{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

type discard struct{}

func (discard) Println(...any) {}

func TestWorkersAreScrapedAsOneWithTheLabelWorker(t *testing.T) {
	text := page(t, gathered(worker(1, all), worker(2, all, again)))
	want(t, text,
		`mega_lock_acquired_total{key_class="order:*",worker="1"} 1`,
		`mega_lock_acquired_total{key_class="order:*",worker="2"} 2`,
		`http_server_request_duration_seconds_count{app="web",method="GET",route="/orders/{id}",status="2xx",worker="2"} 1`,
		`http_server_request_duration_seconds_bucket{app="web",method="GET",route="/orders/{id}",status="2xx",worker="1",le="1"} 1`,
		`mega_build_info{go="go1",program="shop",revision="abc",version="v1",worker="1"} 1`,
		`mega_build_info{go="go1",program="shop",revision="abc",version="v1",worker="supervisor"} 1`,
		`mega_workers{state="ready"} 2`, `mega_workers{state="starting"} 1`, `mega_worker_restarts_total{worker="1"} 4`,
	)
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		for _, of := range []string{"1", "2", "supervisor"} {
			if !strings.Contains(text, name+`{worker="`+of+`"} `) {
				t.Errorf("no %s of %s", name, of)
			}
		}
	}
	if n := strings.Count(text, "# TYPE mega_lock_acquired_total "); n != 1 {
		t.Errorf("the family is there %d times", n)
	}
}

// again counts one more lease.
func again(m *metrics.Metrics) { m.Observe(lock.Acquired{Key: "order:1"}) }

// What is scraped has to be readable by Prometheus: no series twice, no family
// of two kinds, labels in order.
func TestGatheredFamiliesAreConsistent(t *testing.T) {
	g := gathered(worker(1, all), worker(2, all), worker(3))
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
		seen := map[string]bool{}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			key := m.String()
			if !slices.IsSorted(labels) || len(slices.Compact(slices.Clone(labels))) != len(labels) || seen[key] {
				t.Errorf("%s has %s", f.GetName(), key)
			}
			seen[key] = true
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("the families are %q", names)
	}
}

func TestWorkerCatalogueListsTheSupervisorsSeries(t *testing.T) {
	g := gathered(metrics.Source{Worker: 1, To: failing{errors.New("gone")}})
	families, err := g.Gather()
	if err == nil || !strings.Contains(err.Error(), "worker 1: gone") {
		t.Errorf("got %v", err)
	}
	var got, catalogue []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "mega_worker") {
			got = append(got, f.GetName()+" "+f.GetMetric()[0].GetLabel()[0].GetName()+" "+f.GetHelp()+" "+strings.ToLower(f.GetType().String()))
		}
	}
	for _, s := range metrics.WorkerCatalogue() {
		catalogue = append(catalogue, s.Name+" "+s.Labels[0]+" "+s.Help+" "+s.Kind)
	}
	if !slices.Equal(got, catalogue) {
		t.Errorf("counted:\n%s\nin the catalogue:\n%s", strings.Join(got, "\n"), strings.Join(catalogue, "\n"))
	}
}

// A worker that was stopped, or that has just died, takes nobody's metrics away
// but its own, and a bounded time.
func TestWorkerThatDoesNotAnswerIsLeftOutAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gathered(worker(1, all), metrics.Source{Worker: 2, To: stopped{}}, metrics.Source{Worker: 3, To: failing{errors.New("connection refused")}})
		began := time.Now()
		page(t, g)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		text := page(t, g)
		want(t, text, `mega_lock_acquired_total{key_class="order:*",worker="1"} 1`,
			`mega_worker_scrape_failures_total{worker="2"} 2`, `mega_worker_scrape_failures_total{worker="3"} 2`)
		if strings.Contains(text, `mega_worker_scrape_failures_total{worker="1"}`) || strings.Contains(text, `mega_lock_active{worker="2"}`) {
			t.Errorf("got\n%s", ours(text))
		}
	})
}

func TestSeriesWithALabelWorkerKeepsIt(t *testing.T) {
	own := func(m *metrics.Metrics) {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shop_jobs_total", Help: "Jobs."}, []string{"worker", "exported_worker"})
		m.Registerer().MustRegister(c)
		c.WithLabelValues("baker", "x").Inc()
	}
	want(t, page(t, gathered(worker(1, own))), `shop_jobs_total{exported_exported_worker="x",exported_worker="baker",worker="1"} 1`)
}

// Two versions of a program run side by side while it is restarted.
func TestFamilyThatIsOfAnotherKindInALaterWorkerIsLeftOut(t *testing.T) {
	opts := prometheus.Opts{Name: "shop_jobs", Help: "Jobs."}
	before := func(m *metrics.Metrics) {
		m.Registerer().MustRegister(prometheus.NewCounter(prometheus.CounterOpts(opts)))
	}
	after := func(m *metrics.Metrics) { m.Registerer().MustRegister(prometheus.NewGauge(prometheus.GaugeOpts(opts))) }
	g := gathered(worker(1, before), worker(2, after, all))
	_, err := g.Gather()
	if err == nil || !strings.Contains(err.Error(), "worker 2: left out: shop_jobs is a gauge here and a counter in another worker") {
		t.Errorf("got %v", err)
	}
	text := page(t, g)
	want(t, text, `shop_jobs{worker="1"} 0`, `mega_lock_acquired_total{key_class="order:*",worker="2"} 1`, `mega_worker_scrape_failures_total{worker="2"} 2`)
	if strings.Contains(text, `shop_jobs{worker="2"}`) {
		t.Errorf("got\n%s", text)
	}
}

func TestAnswerThatIsNoMetricsIsLeftOut(t *testing.T) {
	answers := func(status int, kind, body string) http.RoundTripper {
		return counting{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})}
	}
	for name, x := range map[string]struct {
		to   http.RoundTripper
		says string
	}{
		"an error":          {answers(503, "text/plain", "busy"), "status 503"},
		"JSON":              {answers(200, "application/json", "{}"), "no format"},
		"half an answer":    {answers(200, "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited", "\x7fabc"), "read the metrics"},
		"text that is none": {answers(200, "text/plain; version=0.0.4", "no metrics here\n"), "read the metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := gathered(metrics.Source{Worker: 2, To: x.to}).Gather(); err == nil || !strings.Contains(err.Error(), x.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestScrapeUsesTheCurrentWorkers(t *testing.T) {
	sources := []metrics.Source{worker(1)}
	g := metrics.NewGathered(metrics.Build{}, func() metrics.Workers { return metrics.Workers{} }, func() []metrics.Source { return sources })
	before := page(t, g)
	sources = []metrics.Source{worker(2)}
	after := page(t, g)
	if !strings.Contains(before, `{worker="1"}`) || strings.Contains(before, `{worker="2"}`) || strings.Contains(after, `{worker="1"}`) || !strings.Contains(after, `{worker="2"}`) {
		t.Errorf("got\n%s\nand then\n%s", ours(before), ours(after))
	}
}

var _ prometheus.Gatherer = (*metrics.Gathered)(nil)

func BenchmarkGather(b *testing.B) {
	g := gathered(worker(1, all), worker(2, all), worker(3, all), worker(4, all))
	ctx := context.Background()
	for b.Loop() {
		w := httptest.NewRecorder()
		g.Handler(discard{}).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
	}
}
