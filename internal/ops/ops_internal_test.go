package ops

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/internal/metrics"
)

func newTestProbes() *Probes { return NewProbes(func(text string) string { return text }) }

func probe(p *Probes, target string) (int, Readiness) {
	mux := http.NewServeMux()
	addProbes(mux, p.started, p.Ready)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, target, nil))
	var is Readiness
	if err := json.Unmarshal(w.Body.Bytes(), &is); err != nil {
		panic(err)
	}
	return w.Code, is
}

func TestProbesFollowTheLifeOfTheProcess(t *testing.T) {
	p := newTestProbes()
	check := func(state string, live, started, ready int) {
		t.Helper()
		for path, want := range map[string]int{"/livez": live, "/startupz": started, "/readyz": ready} {
			if got, _ := probe(p, path); got != want {
				t.Errorf("%s: %s answers %d, want %d", state, path, got, want)
			}
		}
	}
	check("starting", 200, 503, 503)
	p.Begin()
	check("ready", 200, 200, 200)
	p.End()
	check("stopping", 200, 200, 503)
	p.Begin() // a boot that comes to its end too late
	check("stopping", 200, 200, 503)
}

func TestReadinessSaysWhichCheckFailedAndWhy(t *testing.T) {
	p := newTestProbes()
	p.Add(Check{"disk", time.Second, func(context.Context) error { return errors.New("it is full") }})
	p.Add(Check{"database", time.Second, func(context.Context) error { return nil }})
	p.Add(Check{"network", time.Second, func(context.Context) error { return errors.New("no idea") }})
	p.Degrade("locks end at this process")
	p.Begin()
	status, is := probe(p, "/readyz")
	if status != 503 || is.Status != "not ready" || is.Reasons["disk"] != "it is full" || !strings.Contains(is.Reasons["network"], "no idea") || len(is.Reasons) != 2 || is.Checks != nil {
		t.Errorf("got %d %+v", status, is)
	}
	if !slices.Equal(is.Degraded, []string{"locks end at this process"}) {
		t.Errorf("what is degraded is told as %q", is.Degraded)
	}
	_, is = probe(p, "/readyz?verbose")
	if len(is.Checks) != 3 || is.Checks[1].Name != "database" || is.Checks[1].Status != "ok" || is.Checks[0].Status != "failed" {
		t.Errorf("verbose: %+v", is.Checks)
	}
}

func TestWhatIsDegradedIsStillReady(t *testing.T) {
	p := newTestProbes()
	p.Degrade("locks end at this process")
	p.Begin()
	if status, is := probe(p, "/readyz"); status != 200 || is.Status != "ok" || len(is.Degraded) != 1 {
		t.Errorf("got %d %+v", status, is)
	}
}

// A check that hangs, and does not even heed its context, costs one goroutine
// and the time of its budget, however often it is asked for.
func TestCheckThatHangsHangsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProbes()
		let := make(chan struct{})
		var begun atomic.Int32 // each attempt is a goroutine
		p.Add(Check{"disk", 2 * time.Second, func(context.Context) error { begun.Add(1); <-let; return nil }})
		p.Begin()
		var askers sync.WaitGroup
		for range 50 {
			askers.Go(func() {
				if status, is := probe(p, "/readyz"); status != 503 || !strings.Contains(is.Reasons["disk"], "no result after 2.1s") {
					t.Errorf("got %d %+v", status, is)
				}
			})
		}
		began := time.Now()
		askers.Wait()
		if took := time.Since(began); took != 2*time.Second+checkGrace {
			t.Errorf("they waited %v", took)
		}
		if status, is := probe(p, "/readyz"); status != 503 || time.Since(began) != 2*time.Second+checkGrace {
			t.Errorf("one that comes later waits until %v: %d %+v", time.Since(began), status, is)
		}
		if n := begun.Load(); n != 1 {
			t.Errorf("%d attempts", n)
		}
		close(let)
		synctest.Wait()
		if status, _ := probe(p, "/readyz"); status != 200 || begun.Load() != 2 {
			t.Errorf("when it no longer hangs: %d after %d attempts", status, begun.Load())
		}
	})
}

func TestCheckEndsByItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProbes()
		p.Add(Check{"disk", 2 * time.Second, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		p.Begin()
		began := time.Now()
		if _, is := probe(p, "/readyz"); !strings.Contains(is.Reasons["disk"], "deadline") || time.Since(began) != 2*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), is)
		}
	})
}

func TestWhoAsksDoesNotEndTheCheckOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProbes()
		p.Add(Check{"disk", 2 * time.Second, func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		p.Begin()
		gone, leave := context.WithCancel(t.Context())
		var both sync.WaitGroup
		both.Go(func() { p.Ready(gone, false) })
		synctest.Wait()
		both.Go(func() {
			if is := p.Ready(t.Context(), false); is.Status != "ok" {
				t.Errorf("got %+v", is)
			}
		})
		leave()
		both.Wait()
	})
}

func TestChecksEndWithReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProbes()
		p.Add(Check{"disk", time.Hour, func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Second); return ctx.Err() }})
		p.Begin()
		go p.Ready(t.Context(), false)
		synctest.Wait()
		p.End()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := p.Drain(ctx); err == nil || !strings.Contains(err.Error(), `"disk"`) {
			t.Errorf("drain: %v, want the name of the check", err)
		}
		if err := p.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		checks, _ := p.all()
		if r := p.attempt(checks[0]); r != nil {
			t.Error("one more is begun")
		}
	})
}

func newTestOps(local, profile bool) http.Handler {
	pages := NewPages(newTestProbes(), metrics.New(metrics.Build{}), Build{}, profile)
	return &guard{next: pages.Handler(), local: local}
}

func TestOnlyThisMachinesOwnPagesAreAnswered(t *testing.T) {
	type headers = map[string]string
	for _, x := range []struct {
		name    string
		local   bool
		method  string
		host    string
		headers headers
		status  int
	}{
		{"localhost", true, "GET", "localhost:9090", nil, 200},
		{"localhost without a port", true, "GET", "LOCALHOST", nil, 200},
		{"the address", true, "GET", "127.0.0.1:9090", nil, 200},
		{"another address of the loopback", true, "GET", "127.8.0.1", nil, 200},
		{"the address of IPv6", true, "GET", "[::1]:9090", nil, 200},
		{"the same without a port", true, "GET", "[::1]", nil, 200},
		{"HEAD", true, "HEAD", "localhost", nil, 200},
		{"a name that somebody has resolve to here", true, "GET", "evil.example:9090", nil, 403},
		{"a name that begins like one of ours", true, "GET", "localhost.evil.example", nil, 403},
		{"an address that begins like ours", true, "GET", "127.0.0.1.evil.example", nil, 403},
		{"a name with an @", true, "GET", "localhost@evil.example", nil, 403},
		{"no name, as no browser asks", true, "GET", "", nil, 200},
		{"a name, where others are served too", false, "GET", "node-7.internal:9090", nil, 200},
		{"our own page", true, "GET", "localhost:9090", headers{"Origin": "http://localhost:9090"}, 200},
		{"the page of another port", true, "GET", "localhost:9090", headers{"Origin": "http://localhost:8080"}, 403},
		{"another site's page", false, "GET", "node-7:9090", headers{"Origin": "https://evil.example"}, 403},
		{"a page from nowhere", true, "GET", "localhost", headers{"Origin": "null"}, 403},
		{"an image on another site's page", true, "GET", "localhost", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		{"a link on another site's page", true, "GET", "localhost", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200},
		{"an address that was typed", true, "GET", "localhost", headers{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200},
		{"POST", true, "POST", "localhost", nil, 405},
		{"DELETE", false, "DELETE", "localhost", nil, 405},
		{"OPTIONS", true, "OPTIONS", "localhost", nil, 405},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), x.method, "/livez", nil)
			r.Host = x.host
			for k, v := range x.headers {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			newTestOps(x.local, false).ServeHTTP(w, r)
			if w.Code != x.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, x.status)
			}
		})
	}
}

func TestProfilesAreForDevelopmentAlone(t *testing.T) {
	for _, dev := range []bool{true, false} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/debug/pprof/goroutine?debug=1", nil)
		newTestOps(true, dev).ServeHTTP(w, r)
		if (w.Code == 200) != dev {
			t.Errorf("dev is %v: got %d", dev, w.Code)
		}
	}
}

func TestNothingIsSeenBeforeItIsComplete(t *testing.T) {
	w := httptest.NewRecorder()
	newTestOps(true, false).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/ops/locks", nil))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "mega.starting") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
