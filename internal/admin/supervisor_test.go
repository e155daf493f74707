//go:build linux || darwin

package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/testkit/output"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

// workerSet is a supervisor with workers, all of them in this process.
type workerSet struct {
	dir     string
	path    string // of the supervisor's socket
	workers atomic.Pointer[[]admin.Worker]
	log     *output.Buffer

	mu       sync.Mutex // guards the fields below
	restarts []int
	levels   []string
	ends     bool  // a change ends with its client
	fails    error // of a reload
}

func newWorkers(t *testing.T, workers ...admin.Worker) *workerSet {
	t.Helper()
	c := &workerSet{dir: shortdir.New(t), log: &output.Buffer{}}
	c.workers.Store(&workers)
	s, err := admin.OpenSupervisor(admin.Supervisor{
		Info:    func() admin.Info { return admin.Info{Name: "shop", PID: 4000, Driver: "cluster", Scope: "node"} },
		Workers: func() []admin.Worker { return *c.workers.Load() },
		Restart: func(ctx context.Context, id int) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ends = c.ends || ctx.Done() != nil
			c.restarts = append(c.restarts, id)
			if id == 2 {
				return errors.New("worker 2 does not start: the old process continues to serve")
			}
			return nil
		},
		Reload: func(ctx context.Context) ([]config.Change, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ends = c.ends || ctx.Done() != nil
			return []config.Change{{Key: "of the supervisor"}}, c.fails
		},
		SetLevel: func(_, level string) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.levels = append(c.levels, level)
			return nil
		},
		Log: slog.New(slog.NewTextHandler(c.log, nil)),
	}, folders(c.dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	c.path = s.Path()
	return c
}

// join opens the socket of a worker, which tells its number as its driver.
func (c *workerSet) join(t *testing.T, id, pid int) (admin.Process, *output.Buffer, *admin.Server) {
	t.Helper()
	p, log := process(t)
	p.Info.PID, p.Info.Worker, p.Info.Driver = pid, id, fmt.Sprint("driver of ", id)
	watch := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%d sees %s", id, r.URL) })
	s, err := admin.OpenWorker(p, watch, folders(c.dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	c.add(admin.Worker{ID: id, PID: pid, State: "ready", Path: s.Path()})
	return p, log, s
}

func (c *workerSet) add(w admin.Worker) {
	all := append(slices.Clone(*c.workers.Load()), w)
	slices.SortStableFunc(all, func(a, b admin.Worker) int { return a.ID - b.ID })
	c.workers.Store(&all)
}

// hangs is a worker that takes connections and says nothing, as one that was
// stopped.
func (c *workerSet) hangs(t *testing.T, id int) {
	t.Helper()
	path := filepath.Join(c.dir, fmt.Sprint("hangs", id))
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c.add(admin.Worker{ID: id, PID: 1, State: "ready", Path: path})
}

// died is a worker of which only the socket is left.
func (c *workerSet) died(t *testing.T, id int) {
	t.Helper()
	path := filepath.Join(c.dir, fmt.Sprint("died", id))
	leave(t, path)
	c.add(admin.Worker{ID: id, PID: 2, State: "ready", Path: path})
}

func TestSupervisorAnswersForItsWorkers(t *testing.T) {
	c := newWorkers(t)
	first, log, _ := c.join(t, 1, 4001)
	second, _, _ := c.join(t, 2, 4002)
	client, ctx := admin.Dial(c.path), t.Context()
	info, err := client.Process(ctx)
	if err != nil || info.PID != 4000 || len(info.Workers) != 2 || info.Workers[1].PID != 4002 || info.Workers[1].Path != "" {
		t.Errorf("it says that it is %+v, %v", info, err)
	}
	workers, err := client.Workers(ctx)
	if err != nil || len(workers) != 2 || workers[0].State != "ready" {
		t.Errorf("the workers are %+v, %v", workers, err)
	}
	info, err = client.Worker(2).Process(ctx)
	if err != nil || info.PID != 4002 || info.Worker != 2 {
		t.Errorf("worker 2 says that it is %+v, %v", info, err)
	}
	lease, err := first.Locks.Acquire(ctx, "first&only=1;%41+")
	if err != nil {
		t.Fatal(err)
	}
	held, err := second.Locks.Acquire(ctx, "second")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Release() }()
	for id, want := range map[int]string{0: "first&only=1;%41+", 1: "first&only=1;%41+", 2: "second"} {
		list, err := client.Worker(id).Locks(ctx, "", 5)
		if err != nil || len(list.Locks) != 1 || list.Locks[0].Key != want {
			t.Errorf("of worker %d: %+v, %v", id, list, err)
		}
	}
	entry, err := client.Lock(ctx, "first&only=1;%41+")
	if err != nil || len(entry.Holders) != 1 {
		t.Errorf("the key came as %+v, %v", entry, err)
	}
	if n, err := client.Release(ctx, "first&only=1;%41+", "by hand", admin.Only{}); n != 1 || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	<-lease.Context().Done()
	if !strings.Contains(log.String(), "by.pid="+fmt.Sprint(os.Getpid())) {
		t.Errorf("the worker logs:\n%s", log)
	}
}

// Who asks the supervisor is who is told, though it is the supervisor that asks
// the worker; and nobody else can say that he is somebody.
func TestWorkerBelievesItsSupervisorAlone(t *testing.T) {
	c := newWorkers(t)
	_, log, s := c.join(t, 1, 4001)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.Path())
	}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://worker/log", strings.NewReader(`{"level":"debug"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Mega-Peer", "12345 99999")
	w, err := client.Do(r)
	if err != nil || w.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", w, err)
	}
	_ = w.Body.Close()
	if strings.Contains(log.String(), "12345") || !strings.Contains(log.String(), "by.pid="+fmt.Sprint(os.Getpid())) {
		t.Errorf("the worker logs:\n%s", log)
	}
}

func TestChangesForAllWorkersReachAll(t *testing.T) {
	c := newWorkers(t)
	_, first, _ := c.join(t, 1, 4001)
	_, second, _ := c.join(t, 2, 4002)
	client, ctx := admin.Dial(c.path), t.Context()
	if err := client.SetLevel(ctx, "", "debug"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(first.String(), "log level set") || !strings.Contains(second.String(), "log level set") || !slices.Equal(c.levels, []string{"debug"}) {
		t.Errorf("the supervisor was told %q, and the workers log\n%s\nand\n%s", c.levels, first, second)
	}
	if err := client.Worker(2).SetLevel(ctx, "", "debug"); err != nil || strings.Count(first.String(), "log level set") != 1 || strings.Count(second.String(), "log level set") != 2 {
		t.Errorf("of worker 2 alone: %v\n%s\nand\n%s", err, first, second)
	}
	err := client.SetLevel(ctx, "web", "loud")
	if err == nil || !strings.Contains(err.Error(), "worker 1, pid 4001: no such level") || !strings.Contains(err.Error(), "worker 2, pid 4002: ") {
		t.Errorf("a level that there is not: %v", err)
	}
	changes, err := client.Reload(ctx)
	if err != nil || len(changes) != 1 || changes[0].Key != "of the supervisor" {
		t.Errorf("reload: %+v, %v", changes, err)
	}
	if _, err := client.Worker(1).Reload(ctx); err == nil || !strings.Contains(err.Error(), "all workers have one configuration") {
		t.Errorf("reload of one: %v", err)
	}
}

func TestWorkersAreRestarted(t *testing.T) {
	c := newWorkers(t)
	c.join(t, 1, 4001)
	c.join(t, 2, 4002)
	client, ctx := admin.Dial(c.path), t.Context()
	if n, err := client.Restart(ctx, 0); n != 2 || err != nil {
		t.Errorf("restarted %d, %v", n, err)
	}
	if n, err := client.Restart(ctx, 1); n != 1 || err != nil {
		t.Errorf("restarted %d, %v", n, err)
	}
	var no *admin.Error
	if _, err := client.Restart(ctx, 2); !errors.As(err, &no) || no.Status != 409 || no.Code() != "worker.not_restarted" || !strings.Contains(no.Text, "the old process continues to serve") {
		t.Errorf("got %+v", err)
	}
	if _, err := client.Restart(ctx, 7); !errors.As(err, &no) || no.Status != 404 || no.Code() != "worker.unknown" {
		t.Errorf("got %+v", err)
	}
	if want := []int{0, 1, 2}; !slices.Equal(c.restarts, want) {
		t.Errorf("restarted %v, want %v", c.restarts, want)
	}
	if !strings.Contains(c.log.String(), "restarting workers") || !strings.Contains(c.log.String(), "by.pid=") {
		t.Errorf("logged\n%s", c.log)
	}
}

func TestUnreachableWorkerIsReported(t *testing.T) {
	c := newWorkers(t)
	c.died(t, 1)
	c.hangs(t, 2)
	c.add(admin.Worker{ID: 3, PID: 3, State: "starting"})
	c.add(admin.Worker{ID: 4, PID: 4, State: "ready"})
	for id, want := range map[int]struct {
		status int
		code   string
		says   string
	}{
		1: {502, "worker.unanswered", "worker 1, pid 2: the process has ended"},
		2: {502, "worker.unanswered", "worker 2, pid 1: no answer"},
		3: {503, "worker.not_ready", "worker 3 is starting"},
		4: {502, "worker.unanswered", "worker 4, pid 4: the worker has no socket"},
		9: {404, "worker.unknown", `unknown worker "9"; the workers are 1, 2, 3, 4`},
	} {
		var no *admin.Error
		began := time.Now()
		_, err := admin.Dial(c.path).Worker(id).Locks(t.Context(), "", 0)
		if !errors.As(err, &no) || no.Status != want.status || no.Code() != want.code || !strings.Contains(no.Text, want.says) {
			t.Errorf("worker %d: %+v, want %+v", id, err, want)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("worker %d: it took %v", id, took)
		}
	}
}

func TestNoWorkerIsReady(t *testing.T) {
	c := newWorkers(t, admin.Worker{ID: 1, PID: 4001, State: "starting"})
	var no *admin.Error
	client, ctx := admin.Dial(c.path), t.Context()
	if _, err := client.Locks(ctx, "", 0); !errors.As(err, &no) || no.Status != 503 || no.Code() != "worker.none_ready" {
		t.Errorf("got %+v", err)
	}
	if err := client.SetLevel(ctx, "web", "debug"); !errors.As(err, &no) || no.Status != 503 || no.Code() != "worker.none_ready" {
		t.Errorf("the level of an app: %v", err)
	}
	if err := client.SetLevel(ctx, "", "debug"); err != nil { // the supervisor has a level of its own
		t.Errorf("the level of the process: %v", err)
	}
}

// One worker that was killed or stopped keeps nobody from asking the others,
// whether he looks or changes something.
func TestAnotherWorkerIsAskedWhereOneDoesNotAnswer(t *testing.T) {
	c := newWorkers(t)
	c.died(t, 1)
	c.hangs(t, 2)
	p, _, _ := c.join(t, 3, 4003)
	client, ctx := admin.Dial(c.path), t.Context()
	lease, err := p.Locks.Acquire(ctx, "third")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release() }()
	if list, err := client.Locks(ctx, "", 0); err != nil || len(list.Locks) != 1 {
		t.Errorf("locks: %+v, %v", list, err)
	}
	if n, err := client.Release(ctx, "third", "by hand", admin.Only{}); n != 1 || err != nil {
		t.Errorf("release: %d, %v", n, err)
	}
}

// A worker that has begun to end has no locks any more, but still its socket.
func TestWorkerThatEndsLeavesTheAnswerToAnother(t *testing.T) {
	c := newWorkers(t)
	p, _, _ := c.join(t, 1, 4001)
	if err := p.Locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, ctx := admin.Dial(c.path), t.Context()
	var no *admin.Error
	if _, err := client.Locks(ctx, "", 0); !errors.As(err, &no) || no.Code() != "lock.closed" {
		t.Errorf("the only one says %v", err)
	}
	c.join(t, 2, 4002)
	if _, err := client.Locks(ctx, "", 0); err != nil {
		t.Errorf("the other one says %v", err)
	}
	if _, err := client.Worker(1).Locks(ctx, "", 0); !errors.As(err, &no) || no.Code() != "lock.closed" {
		t.Errorf("the one that was named says %v", err)
	}
}

// A worker that is stopped once it has taken a request is given up, but not one
// that takes its time.
func TestWorkerThatHangsWithARequestIsGivenUp(t *testing.T) {
	c := newWorkers(t)
	path := filepath.Join(c.dir, "stops")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var stopped atomic.Bool
	stop := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/process" {
			stopped.Store(true)
		}
		if stopped.Load() {
			<-stop
		}
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { close(stop); _ = server.Close(); serving.Wait() })
	c.add(admin.Worker{ID: 1, PID: 1, State: "ready", Path: path})
	p, _, _ := c.join(t, 2, 4002)
	_, err = p.Bus.Respond(t.Context(), "slow", func(context.Context, *bus.Msg) ([]byte, error) {
		time.Sleep(2500 * time.Millisecond) // that is what it takes
		return []byte("done"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	client := admin.Dial(c.path)
	var asking sync.WaitGroup
	asking.Go(func() {
		reply, err := client.Worker(2).Request(t.Context(), admin.Message{Subject: "slow"})
		if err != nil || string(reply.Bytes()) != "done" {
			t.Errorf("the slow one answers %+v, %v", reply, err)
		}
	})
	asking.Go(func() {
		if _, err := client.Locks(t.Context(), "", 0); err != nil {
			t.Errorf("nobody else was asked: %v", err)
		}
		_, err := client.Worker(1).Locks(t.Context(), "", 0)
		if no, ok := errors.AsType[*admin.Error](err); !ok || no.Status != 502 || !strings.Contains(no.Text, "no answer within 1s") {
			t.Errorf("got %+v", err)
		}
	})
	asking.Wait()
}

// The one that was chosen is replaced before it is asked.
func TestReplacementAnswersForAnExitedWorker(t *testing.T) {
	c := newWorkers(t)
	c.died(t, 1)
	before := c.workers.Load()
	var looks atomic.Int32
	c.join(t, 1, 4011)
	after := c.workers.Load()
	h := admin.Forward(func() []admin.Worker {
		if looks.Add(1) == 1 {
			return *before
		}
		return *after
	}, slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/locks", nil))
	if w.Code != http.StatusOK || w.Body.String() != "1 sees /ops/locks" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestPageNamesItsWorkerAndLinksTheOthers(t *testing.T) {
	c := newWorkers(t)
	c.join(t, 1, 4001)
	c.join(t, 2, 4002)
	c.join(t, 3, 4003)
	c.join(t, 3, 4013) // which is to replace it
	h := admin.Forward(func() []admin.Worker { return *c.workers.Load() }, slog.New(slog.DiscardHandler))
	for query, want := range map[string]struct {
		body  string
		links []string
	}{
		"":                    {"1 sees /ops/locks", []string{`</ops/locks?worker=2>; rel="alternate"; title="worker 2"`, `</ops/locks?worker=3>; rel="alternate"; title="worker 3"`}},
		"?prefix=a&worker=3":  {"3 sees /ops/locks?prefix=a", []string{`</ops/locks?prefix=a&worker=1>; rel="alternate"; title="worker 1"`, `</ops/locks?prefix=a&worker=2>; rel="alternate"; title="worker 2"`}},
		"?prefix=%26+b&limit": {"1 sees /ops/locks?prefix=%26+b&limit", []string{`</ops/locks?limit=&prefix=%26+b&worker=2>; rel="alternate"; title="worker 2"`, `</ops/locks?limit=&prefix=%26+b&worker=3>; rel="alternate"; title="worker 3"`}},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/locks"+query, nil))
		if w.Body.String() != want.body || !slices.Equal(w.Header().Values("Link"), want.links) || w.Header().Get("Mega-Worker") != want.body[:1] {
			t.Errorf("%s: got %s with %v", query, w.Body, w.Header())
		}
	}
}

// Events are seen as they come, and the stream of a worker that ends ends.
func TestTailIsStreamedThroughTheSupervisor(t *testing.T) {
	for name, end := range map[string]func(s *admin.Server) error{
		"the worker's":     func(s *admin.Server) error { return s.Close(context.Background()) },
		"whoever follows'": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := newWorkers(t)
			p, _, s := c.join(t, 1, 4001)
			begun, seen := make(chan struct{}), make(chan string, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- admin.Dial(c.path).Tail(ctx, "order.*", func() { close(begun) }, func(e admin.Event) error { seen <- e.Subject; return nil })
			}()
			<-begun
			if err := p.Bus.Publish(ctx, "order.made", nil); err != nil {
				t.Fatal(err)
			}
			if subject := <-seen; subject != "order.made" {
				t.Errorf("seen %s", subject)
			}
			if end == nil {
				cancel()
			} else if err := end(s); err != nil {
				t.Error(err)
			}
			if err := <-ended; end != nil && err != nil || end == nil && !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// other opens the socket of another supervisor of the same workers. The test closes
// it.
func (c *workerSet) other(t *testing.T) *admin.Server {
	t.Helper()
	s, err := admin.OpenSupervisor(admin.Supervisor{
		Info: func() admin.Info { return admin.Info{Name: "other", PID: 5000} }, Workers: func() []admin.Worker { return *c.workers.Load() },
		Log: slog.New(slog.DiscardHandler),
	}, folders(c.dir))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestClosingTheSupervisorsSocketEndsItsStreams(t *testing.T) {
	c := newWorkers(t)
	c.join(t, 1, 4001)
	s := c.other(t)
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- admin.Dial(s.Path()).Tail(t.Context(), ">", func() { close(begun) }, func(admin.Event) error { return nil })
	}()
	<-begun
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestStalledTailDoesNotHoldUpTheEndOfTheSupervisor(t *testing.T) {
	c := newWorkers(t)
	p, _, _ := c.join(t, 1, 4001)
	endsBesideAStalledTail(t, c.other(t), p)
}

func TestWorkersOfASupervisorAreNotFoundThemselves(t *testing.T) {
	c := newWorkers(t)
	_, _, s := c.join(t, 1, 4001)
	found, err := admin.Find(t.Context(), folders(c.dir), "")
	if err != nil || len(found) != 1 || found[0].Info.PID != 4000 {
		t.Errorf("found %+v, %v", found, err)
	}
	if name := filepath.Base(s.Path()); name != "shop.4001.worker.sock" {
		t.Errorf("the worker's is called %s", name)
	}
	leave(t, filepath.Join(c.dir, "mega", "shop.77.worker.sock"))
	c.join(t, 2, 4002)
	if !missing(filepath.Join(c.dir, "mega", "shop.77.worker.sock")) {
		t.Error("what a dead worker left is still there")
	}
}

func TestProcessWithoutASupervisorHasNoWorkers(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	var no *admin.Error
	if _, err := admin.Dial(s.Path()).Worker(1).Locks(t.Context(), "", 0); !errors.As(err, &no) || no.Status != 404 || no.Code() != "worker.none" {
		t.Errorf("got %+v", err)
	}
	if info, err := admin.Dial(s.Path()).Process(t.Context()); err != nil || info.Workers != nil {
		t.Errorf("it says that it is %+v, %v", info, err)
	}
}

func TestWorkerIsAskedForItsMetrics(t *testing.T) {
	c := newWorkers(t)
	c.join(t, 1, 4001)
	w := (*c.workers.Load())[0]
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://worker/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := w.ScrapeTransport().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	if text, err := io.ReadAll(a.Body); err != nil || string(text) != "1 sees /metrics" {
		t.Errorf("got %s, %v", text, err)
	}
	if a, err := (admin.Worker{ID: 1}).ScrapeTransport().RoundTrip(r); err == nil {
		_ = a.Body.Close()
		t.Error("a worker without a socket has answered")
	}
}

func TestInfoOfASupervisorIsADocument(t *testing.T) {
	text, err := json.Marshal(admin.Info{Workers: []admin.Worker{{ID: 1, Path: "/secret"}}})
	if err != nil || strings.Contains(string(text), "secret") || !strings.Contains(string(text), `"workers":[{"id":1,`) {
		t.Errorf("got %s, %v", text, err)
	}
	text, err = json.Marshal(admin.Info{})
	if err != nil || strings.Contains(string(text), "worker") {
		t.Errorf("got %s, %v", text, err)
	}
}

// Half a restart would leave two generations of workers, and half a reload two
// configurations.
func TestRestartAndReloadDoNotEndWithTheirClient(t *testing.T) {
	c := newWorkers(t, admin.Worker{ID: 1, PID: 4001, State: "ready"})
	client := admin.Dial(c.path)
	if _, err := client.Restart(t.Context(), 1); err != nil || c.ends {
		t.Errorf("restart: %v; it ends with its client: %v", err, c.ends)
	}
	if _, err := client.Reload(t.Context()); err != nil || c.ends {
		t.Errorf("reload: %v; it ends with its client: %v", err, c.ends)
	}
}

// The level is valid then, and in force in the other workers. A wrong level stays the
// mistake of the request, whatever the workers do.
func TestLevelThatAWorkerDoesNotAnswerIsNotRefused(t *testing.T) {
	c := newWorkers(t)
	c.join(t, 1, 4001)
	c.died(t, 2)
	client := admin.Dial(c.path)
	for level, want := range map[string]struct {
		status int
		code   string
	}{
		"debug": {http.StatusBadGateway, "worker.unanswered"},
		"loud":  {http.StatusBadRequest, "request.invalid"},
	} {
		failed, ok := errors.AsType[*admin.Error](client.SetLevel(t.Context(), "", level))
		if !ok || failed.Status != want.status || failed.Code() != want.code || !strings.Contains(failed.Text, "worker 2, ") {
			t.Errorf("%s: got %#v", level, failed)
		}
	}
}

// unanswered is the error of a worker that is stopped.
type unanswered struct{ error }

func (unanswered) Code() string { return "worker.unanswered" }

// The configuration is valid then, and in force in the other workers.
func TestReloadThatAWorkerDoesNotAnswerIsNotRefused(t *testing.T) {
	c := newWorkers(t, admin.Worker{ID: 1, PID: 4001, State: "ready"})
	c.fails = errors.Join(unanswered{errors.New("worker 1 does not answer")})
	_, err := admin.Dial(c.path).Reload(t.Context())
	if failed, ok := errors.AsType[*admin.Error](err); !ok || failed.Status != http.StatusBadGateway || failed.Code() != "worker.unanswered" {
		t.Errorf("got %#v", err)
	}
}
