package console_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/console"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is a program with locks and messages in memory, and its pages.
type program struct {
	locks  *lock.Locker
	limits *limit.Limiter
	bus    *bus.Bus
	pages  http.Handler
}

func newProgram(t *testing.T) program {
	t.Helper()
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := messages.Drain(ctx); err != nil {
			t.Error(err)
		}
		if err := limits.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	report := &plan.Report{
		Program: "shop", Apps: []plan.Served{{App: "web", URL: "http://127.0.0.1:8080", Routes: 3}},
		Lock: plan.Decision{Component: "lock", Chosen: "memory", Scope: "process", Why: "no server is configured", Origin: "default", Warnings: []string{"exclusion ends at this process"},
			Candidates: []plan.Candidate{{Name: "redis", Scope: "fleet", Outcome: plan.Rejected, Reason: "no cache is configured", Needs: "cache.main.url"}, {Name: "memory", Scope: "process", Outcome: plan.Chosen}},
		},
		Bus:   plan.Decision{Component: "bus", Chosen: "nats", Scope: "fleet"},
		Limit: plan.Decision{Component: "limit", Chosen: "redis", Scope: "fleet"},
	}
	views := admin.Views(admin.Process{
		Info:  admin.Info{Name: "shop", PID: 4121, Env: "dev", Apps: []string{"web"}, Driver: "memory", Scope: "process", Since: time.Now(), Bus: admin.DriverScope{Driver: "memory", Scope: "process"}, Limit: admin.DriverScope{Driver: "memory", Scope: "process"}},
		Locks: locks, Limits: limits, Bus: messages,
		Boot: func() any { return report },
		Config: func() any {
			return []plan.Setting{{Key: "lock.ttl", Value: "10s", Origin: "default"}, {Key: "nats.url", Value: "nats://***@<host>", Origin: "mega.config.yaml:3", Over: []string{"default"}}}
		},
		Routes: func() any { return []string{} },
		Errors: func() any {
			return logging.Recent{
				Lost: []logging.Record{{Time: time.Now(), Level: "WARN", Message: "lock lost", Attrs: []logging.Attr{{Key: "key", Value: "<order>:7"}, {Key: "stack", Value: "main.buy  main.go:42\n… 18 frames\u202e"}}}},
			}
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", views))
	mux.HandleFunc("/ops/build", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"program":"shop","go":"go1.26"}`)
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"status":"not ready","reasons":{"disk":"no space <left>"},"degraded":["locks end at this process (driver memory)","the hub is slow"]}`)
	})
	return program{locks, limits, messages, mux}
}

// open serves the console of a program, and ends it with the test.
func open(t *testing.T, p program) (*console.Console, *httptest.Server) {
	t.Helper()
	c := console.New(console.Config{On: true, Program: "shop", Pages: p.pages})
	s := httptest.NewServer(c.Mount(p.pages))
	t.Cleanup(s.Close)
	t.Cleanup(c.Close)
	return c, s
}

func see(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(body)
}

// contains reports the texts that a page lacks.
func contains(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%q is missing in\n%s", text, page)
		}
	}
}

const hostile = `x:<script>alert("1")</script>'&`

func TestOverviewShowsWhatRunsAndWhyItIsNotReady(t *testing.T) {
	_, s := open(t, newProgram(t))
	w, page := see(t, s.URL+"/console")
	if w.StatusCode != 200 {
		t.Errorf("status %d", w.StatusCode)
	}
	contains(t, page, "shop, pid 4121", "memory, scope process", "not ready", "no space &lt;left&gt;", "exclusion ends at this process", "the hub is slow", `href="http://127.0.0.1:8080"`)
	if strings.Contains(page, "locks end at this process") {
		t.Errorf("the scope of the locks is on the page twice:\n%s", page)
	}
}

// A page without an answer shows why, and no numbers.
func TestPagesOfAProgramThatStartsInventNothing(t *testing.T) {
	starts := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":"the process has not started yet"}`)
	})
	_, s := open(t, program{pages: starts})
	for _, path := range []string{"/console", "/console/locks", "/console/limits", "/console/bus", "/console/lock?key=a"} {
		_, page := see(t, s.URL+path)
		contains(t, page, "has not started yet")
		for _, invented := range []string{"pid 0", "0001", "<dd>0", "<figure", "Driver ,", "None.", "No lock is held", "later holder"} {
			if strings.Contains(page, invented) {
				t.Errorf("%s has %q:\n%s", path, invented, page)
			}
		}
	}
}

// As while a supervisor waits for an address, or after the deaths of all workers.
func TestPagesOfAProgramWithoutAReadyWorkerSayWhy(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ops/process", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"name":"shop","pid":4121}`) })
	var lost atomic.Bool
	mux.HandleFunc("/ops/workers", func(w http.ResponseWriter, _ *http.Request) {
		if lost.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":"the list is lost"}`)
			return
		}
		_, _ = io.WriteString(w, `[{"id":1,"state":"down"}]`)
	})
	c := console.New(console.Config{On: true, Program: "shop", Supervised: true, Pages: mux})
	s := httptest.NewServer(c.Mount(mux))
	defer s.Close()
	defer c.Close()
	for _, why := range []string{"no worker is ready", "the list is lost"} {
		for _, path := range []string{"/console/locks", "/console/limits", "/console/bus"} {
			_, page := see(t, s.URL+path)
			contains(t, page, why)
			if strings.Contains(page, "<dd>0") {
				t.Errorf("%s has numbers:\n%s", path, page)
			}
		}
		lost.Store(true)
	}
}

func TestLocksHaveTheirHoldersWaitersFencesAndSlots(t *testing.T) {
	p := newProgram(t)
	_, s := open(t, p)
	held, err := p.locks.Acquire(t.Context(), hostile, lock.Label("<b>label</b>"))
	if err != nil {
		t.Fatal(err)
	}
	slot, err := p.locks.Acquire(t.Context(), "pool", lock.Slots(3))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = p.locks.Acquire(ctx, hostile, lock.Wait(lock.Forever), lock.Label("in the queue"))
	}()
	waits(t, p.locks, hostile)
	_, page := see(t, s.URL+"/console/locks")
	contains(t, page, "x:&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;", "&lt;b&gt;label&lt;/b&gt;", "in the queue", "2 of 3 free", "0: <span>held</span>", "<b>Slot 0</b>", "left</span>", "<meter")
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<b>label") {
		t.Errorf("a key or a label is not escaped:\n%s", page)
	}
	_, one := see(t, s.URL+"/console/lock?key=pool")
	contains(t, one, "Slot 0", "1 of 3 slots, 2 free")
	if _, all := see(t, s.URL+"/console/locks"); strings.Index(all, `id="prefix"`) > strings.Index(all, "<table") {
		t.Error("the field for a prefix is below the list")
	}
	if _, none := see(t, s.URL+"/console/locks?prefix=nothing"); strings.Contains(none, "pool") {
		t.Error("a prefix selects no keys")
	}
	contains(t, one, `<a href="/console/locks" aria-current="page">Locks</a>`)
	if _, bad := see(t, s.URL+"/console/lock?key="); !strings.Contains(bad, "note bad") {
		t.Errorf("a key that is not legal has no message:\n%s", bad)
	}
	cancel()
	<-waited
	for _, l := range []*lock.Lease{held, slot} {
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
}

func TestListOfLocksIsShortForBigPools(t *testing.T) {
	p := newProgram(t)
	_, s := open(t, p)
	pool := &lock.Pool{Key: "box", Size: 4096, Strikes: 1}
	for range 100 {
		slot, err := p.locks.AcquireSlot(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = slot.Release() }()
	}
	plain, err := p.locks.Acquire(t.Context(), "plain", lock.Slots(4096))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Release() }()
	_, page := see(t, s.URL+"/console/locks")
	contains(t, page, "and 80 more", "and 3\u202f840 more", "0: <span>held</span>")
	if slots, holders := strings.Count(page, "<li class"), strings.Count(page, `class="holding"`); slots != 512 || holders != 21 {
		t.Errorf("%d slots and %d holders, want 512 and 21", slots, holders)
	}
	_, page = see(t, s.URL+"/console/lock?key=box")
	if slots, holders := strings.Count(page, "<li class"), strings.Count(page, `class="holding"`); slots != 256 || holders != 100 {
		t.Errorf("%d slots and %d holders, want 256 and all", slots, holders)
	}
}

func TestLimitsHaveTheirRatesWaitersAndPause(t *testing.T) {
	p := newProgram(t)
	_, s := open(t, p)
	if _, none := see(t, s.URL+"/console/limits"); !strings.Contains(none, "No limit is in use") {
		t.Errorf("a program without limits has no message:\n%s", none)
	}
	rates := limit.Limit{Rates: []limit.Rate{limit.PerHour(1500), limit.PerDay(3000)}}
	if _, err := p.limits.Allow(t.Context(), hostile, rates, limit.Cost(1500)); err != nil {
		t.Fatal(err)
	}
	if err := p.limits.Pause(t.Context(), "partner", time.Hour, "<b>maintenance</b>"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = p.limits.Wait(ctx, hostile, rates)
	}()
	for queued := false; !queued; time.Sleep(time.Millisecond) {
		state, err := p.limits.Inspect(t.Context(), hostile)
		if err != nil {
			t.Fatal(err)
		}
		queued = len(state.Waiters) > 0
	}
	_, page := see(t, s.URL+"/console/limits")
	contains(t, page, "x:&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;", "<ol class=\"waiters\">", "partner", "&lt;b&gt;maintenance&lt;/b&gt;", "by <span class=\"holder\">",
		"1\u202f500 of 1\u202f500 per 1h\n", "1\u202f500 of 3\u202f000 per 24h\n", "0 left", "next free in", "a unit is free", "<meter", "memory, scope process")
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<b>maintenance") {
		t.Errorf("a key or a reason is not escaped:\n%s", page)
	}
	if _, one := see(t, s.URL+"/console/limits?prefix=part"); !strings.Contains(one, "partner") || strings.Contains(one, "alert") {
		t.Errorf("a prefix does not select keys:\n%s", one)
	}
	cancel()
	<-waited
}

func TestMessagesHaveTheirPatternsAndLosses(t *testing.T) {
	p := newProgram(t)
	_, s := open(t, p)
	handled := make(chan struct{})
	sub, err := p.bus.Subscribe(t.Context(), "product.*", func(context.Context, *bus.Msg) error { close(handled); return nil }, bus.Group("ledger"), bus.Name("<b>sales</b>"))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	if err := p.bus.Publish(t.Context(), "product.sold", nil); err != nil {
		t.Fatal(err)
	}
	<-handled
	_, page := see(t, s.URL+"/console/bus")
	contains(t, page, "product.*", "group ledger", "&lt;b&gt;sales&lt;/b&gt;", "Published per second", "Dropped")
}

func TestBootShowsEachCandidateAndConfigurationEachOrigin(t *testing.T) {
	_, s := open(t, newProgram(t))
	_, boot := see(t, s.URL+"/console/boot")
	contains(t, boot, "no cache is configured", "cache.main.url", "rejected", "chosen", "exclusion ends at this process",
		"Locks: memory, scope process", "Messages: nats, scope fleet", "Limits: redis, scope fleet")
	_, page := see(t, s.URL+"/console/config")
	contains(t, page, "nats://***@&lt;host&gt;", "mega.config.yaml:3", "instead of default", "Set: 1", "Defaults: 1")
}

func TestErrorsShowLostLeases(t *testing.T) {
	_, s := open(t, newProgram(t))
	_, page := see(t, s.URL+"/console/errors")
	contains(t, page, "lock lost", "&lt;order&gt;:7", "None since the start.")
}

func TestErrorsShowAStackOnLinesOfItsOwn(t *testing.T) {
	_, s := open(t, newProgram(t))
	_, page := see(t, s.URL+"/console/errors")
	contains(t, page, "main.buy  main.go:42\n… 18 frames\\u202e</code>")
}

func TestWorkersArePagesOfASupervisorAlone(t *testing.T) {
	_, s := open(t, newProgram(t))
	if w, page := see(t, s.URL+"/console/workers"); w.StatusCode != 404 || strings.Contains(page, "/console/workers") {
		t.Errorf("status %d", w.StatusCode)
	}
}

// waits returns when a call waits for key.
func waits(t *testing.T, l *lock.Locker, key string) {
	t.Helper()
	for {
		state, err := l.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Waiters) > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestEveryResponseForbidsInlineScriptsStylesAndOtherSites(t *testing.T) {
	_, s := open(t, newProgram(t))
	for _, path := range []string{"", "/locks", "/lock?key=a", "/limits", "/bus", "/errors", "/boot", "/config", "/style.css", "/console.js", "/nothing"} {
		w, page := see(t, s.URL+"/console"+path)
		policy := w.Header.Get("Content-Security-Policy")
		contains(t, policy, "default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'")
		if strings.Contains(policy, "unsafe") || strings.Contains(page, " style=") || strings.Contains(page, " onclick=") || strings.Contains(page, "https://") {
			t.Errorf("%s has something inline, or of another site", path)
		}
	}
}

func TestConsoleThatIsOffShowsNothing(t *testing.T) {
	p := newProgram(t)
	c := console.New(console.Config{Program: "shop", Pages: p.pages})
	c.Start()
	defer c.Close()
	s := httptest.NewServer(c.Mount(p.pages))
	defer s.Close()
	for _, path := range []string{"/console", "/console/locks", "/console/style.css"} {
		if w, page := see(t, s.URL+path); w.StatusCode != 404 || !strings.Contains(page, "ops.console") || strings.Contains(page, "4121") {
			t.Errorf("%s: %d\n%s", path, w.StatusCode, page)
		}
	}
	if w, _ := see(t, s.URL+"/ops/process"); w.StatusCode != 200 {
		t.Errorf("the other pages answer %d", w.StatusCode)
	}
}

// events opens the stream of a page.
func events(t *testing.T, ctx context.Context, url string) (status int, lines *bufio.Scanner) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	w, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Body.Close() })
	return w.StatusCode, bufio.NewScanner(w.Body)
}

// until reads a stream up to a line with text.
func until(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the stream ended before %q", text)
}

func TestStreamSendsAChangeAndEndsWithTheConsole(t *testing.T) {
	p := newProgram(t)
	c, s := open(t, p)
	status, lines := events(t, t.Context(), s.URL+"/console/locks")
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	until(t, lines, "No lock is held")
	lease, err := p.locks.Acquire(t.Context(), "product:42")
	if err != nil {
		t.Fatal(err)
	}
	until(t, lines, "product:42")
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	until(t, lines, "No lock is held")
	c.Close()
	for lines.Scan() { // to its end
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
}

func TestStreamsAreBoundedAndReturnTheirPlace(t *testing.T) {
	_, s := open(t, newProgram(t))
	var cancels []context.CancelFunc
	for range console.MaxStreams {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cancels = append(cancels, cancel)
		if status, _ := events(t, ctx, s.URL+"/console"); status != 200 {
			t.Fatalf("status %d", status)
		}
	}
	if status, _ := events(t, t.Context(), s.URL+"/console"); status != 503 {
		t.Errorf("one more: status %d", status)
	}
	cancels[0]()
	for { // the server notices it a moment later
		ctx, cancel := context.WithCancel(t.Context())
		status, _ := events(t, ctx, s.URL+"/console")
		cancel()
		if status == 200 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
