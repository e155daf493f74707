//go:build linux || darwin

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

// watched is a program with workers, and its listener for operators.
type watched struct {
	*child
	ops string
}

func startWatched(t *testing.T, name, workers string, environ ...string) watched {
	t.Helper()
	dir := shortdir.New(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	c := startWorkers(t, name, workers, append([]string{"XDG_RUNTIME_DIR=" + dir, "DISKS=" + dir}, environ...)...)
	w := watched{c, ""}
	w.ops = c.await(t, "boot.report", 1)[0].Report.Ops
	c.follow()
	return w
}

// see gets a page, with the number of the worker whose it is. It may be called
// concurrently.
func (w watched) see(t *testing.T, path string) (status int, worker, body string) {
	t.Helper()
	a, err := http.Get(w.ops + path)
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Error(err)
	}
	return a.StatusCode, a.Header.Get("Mega-Worker"), string(text)
}

func (w watched) quits(t *testing.T) {
	t.Helper()
	w.signal(t, syscall.SIGTERM)
	if status := w.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, lastLines(w.String(), 20))
	}
}

// pids are those of the workers that are ready, by their numbers.
func (w watched) pids(t *testing.T) map[int]int {
	t.Helper()
	_, _, body := w.see(t, "/ops/workers")
	var workers []struct {
		ID, PID int
		State   string
	}
	if err := json.Unmarshal([]byte(body), &workers); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	all := map[int]int{}
	for _, x := range workers {
		if x.State == "ready" {
			all[x.ID] = x.PID
		}
	}
	return all
}

// looking gets pages all the time, until it is ended, and keeps what was not
// answered as it should be.
type looking struct {
	stop   atomic.Bool
	looks  atomic.Int64
	mu     sync.Mutex // guards failed
	failed []string
	over   sync.WaitGroup
}

func (w watched) look(paths ...string) *looking {
	l := &looking{}
	for _, path := range paths {
		l.over.Go(func() {
			for !l.stop.Load() {
				l.once(w.ops + path)
			}
		})
	}
	return l
}

func (l *looking) once(url string) {
	l.looks.Add(1)
	a, err := http.Get(url)
	if err == nil {
		body, _ := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if a.StatusCode != http.StatusOK {
			err = fmt.Errorf("%d %s", a.StatusCode, body)
		} else if series := twice(string(body)); series != "" && strings.HasSuffix(url, "/metrics") {
			err = fmt.Errorf("twice: %s", series)
		}
	}
	if err != nil {
		l.mu.Lock()
		l.failed = append(l.failed, fmt.Sprintf("%s: %v", url, err))
		l.mu.Unlock()
	}
}

func (l *looking) end(t *testing.T) {
	t.Helper()
	l.stop.Store(true)
	l.over.Wait()
	if n := len(l.failed); n > 0 || l.looks.Load() == 0 {
		t.Errorf("%d of %d looks failed, such as:\n%s", n, l.looks.Load(), strings.Join(l.failed[:min(n, 5)], "\n"))
	}
}

// While one worker after the other is replaced, there is always one that answers.
func TestProgramIsWatchedThroughRollingRestarts(t *testing.T) {
	w := startWatched(t, "watched", "2")
	before := w.inUse(t)
	l := w.look("/ops/locks", "/ops/bus", "/readyz", "/livez", "/startupz", "/ops/workers", "/metrics")
	generations := max(suite.Scaled(6), 3)
	for i := range generations {
		time.Sleep(20 * time.Millisecond) // the restart before is over a moment after it says so
		w.signal(t, syscall.SIGUSR2)
		w.eventually(t, "worker restart finished", i+1)
	}
	l.end(t)
	http.DefaultClient.CloseIdleConnections()
	for began := time.Now(); w.inUse(t) > before+2; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("the supervisor had %v descriptors and goroutines, and has %v", before, w.inUse(t))
		}
	}
	_, _, metrics := w.see(t, "/metrics")
	for _, line := range []string{
		fmt.Sprintf(`mega_worker_restarts_total{worker="2"} %d`, generations), `mega_workers{state="ready"} 2`,
		`mega_lock_active{worker="1"} 0`, `mega_lock_active{worker="2"} 0`, `http_server_active_requests{app="main",worker="1"} 0`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s in the metrics", line)
		}
	}
	w.quits(t)
}

// inUse is how many descriptors and goroutines the supervisor has.
func (w watched) inUse(t *testing.T) (n float64) {
	t.Helper()
	_, _, metrics := w.see(t, "/metrics")
	for line := range strings.Lines(metrics) {
		for _, series := range []string{"process_open_fds", "go_goroutines"} {
			if text, ok := strings.CutPrefix(line, series+`{worker="supervisor"} `); ok {
				v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
				if err != nil {
					t.Fatal(err)
				}
				n += v
			}
		}
	}
	return n
}

// twice returns a series that metrics have twice, which Prometheus does not
// take.
func twice(metrics string) string {
	seen := map[string]bool{}
	for line := range strings.Lines(metrics) {
		series := line[:max(strings.LastIndexByte(line, ' '), 0)]
		if !strings.HasPrefix(line, "#") && seen[series] {
			return series
		}
		seen[series] = true
	}
	return ""
}

// kill -9 leaves a socket that refuses connections: somebody else is asked.
func TestWorkerThatIsKilledKeepsNobodyFromLooking(t *testing.T) {
	w := startWatched(t, "watched", "2")
	l := w.look("/ops/locks", "/readyz")
	for i := range max(suite.Scaled(3), 2) {
		pids := w.pids(t)
		kill(t, pids[1])
		status, worker, body := w.see(t, "/ops/process?worker=1")
		var no struct {
			Code string
			PID  int
		}
		if err := json.Unmarshal([]byte(body), &no); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		switch {
		case status == http.StatusOK && worker == "1" && no.PID != pids[1]: // it was replaced by then
		case status == http.StatusBadGateway && no.Code == "worker.unanswered":
		case status == http.StatusServiceUnavailable && no.Code == "worker.not_ready":
		default:
			t.Errorf("the killed worker answers %d %s", status, body)
		}
		w.eventually(t, "worker ready", 2+i+1)
	}
	l.end(t)
	w.quits(t)
	left, err := filepath.Glob(filepath.Join(w.disks(), "mega", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// A worker that was stopped takes connections, and answers nothing.
func TestWorkerThatHangsIsLeftOutWithinABound(t *testing.T) {
	w := startWatched(t, "watched", "3")
	pids := w.pids(t)
	if err := redistest.Signal(pids[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for status := 200; status == 200; { // it does not stop at once
		status, _, _ = w.see(t, "/ops/process?worker=1")
	}
	var looking sync.WaitGroup
	for _, x := range []struct {
		path   string
		bound  time.Duration
		status int
		says   string
		not    string
	}{
		{"/metrics", 20 * time.Second, 200, `mega_worker_scrape_failures_total{worker="1"} 1`, `mega_lock_active{worker="1"}`},
		{"/readyz", 20 * time.Second, 200, `"status":"ok"`, "worker 1"},
		{"/readyz?verbose", 20 * time.Second, 200, `"worker 1: no answer within `, `"worker 1: disk"`},
		{"/ops/locks", 20 * time.Second, 200, `"locks"`, ""},
		{"/ops/locks?worker=1", 20 * time.Second, 502, fmt.Sprintf("worker 1, pid %d: no answer within 1s", pids[1]), ""},
		{"/ops/locks?worker=3", 20 * time.Second, 200, `"locks"`, ""},
	} {
		looking.Go(func() {
			began := time.Now()
			status, _, body := w.see(t, x.path)
			if took := time.Since(began); status != x.status || took > x.bound || !strings.Contains(body, x.says) || x.not != "" && strings.Contains(body, x.not) {
				t.Errorf("%s: after %v: %d %s", x.path, took, status, body[:min(len(body), 500)])
			}
		})
	}
	looking.Wait()
	if err := redistest.Signal(pids[1], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if status, worker, _ := w.see(t, "/ops/locks?worker=1"); status != 200 || worker != "1" {
		t.Errorf("once it goes on, it answers %d", status)
	}
	w.quits(t)
}

func TestProgramIsReadyAsLongAsOneWorkerIs(t *testing.T) {
	w := startWatched(t, "watched", "2")
	dir := w.disks()
	want := func(path string, status int, says ...string) {
		t.Helper()
		got, _, body := w.see(t, path)
		for _, s := range says {
			if !strings.Contains(body, s) {
				t.Errorf("%s: %q is not told: %s", path, s, body)
			}
		}
		if got != status {
			t.Errorf("%s answers %d %s, want %d", path, got, body, status)
		}
	}
	fill := func(worker string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, worker), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want("/readyz?verbose", 200, `"name":"worker 1: disk","status":"ok"`, `"name":"worker 2: disk","status":"ok"`)
	fill("1")
	want("/readyz", 200, `"status":"ok"`)
	want("/readyz?verbose", 200, `"worker 1: disk: no space left on device"`, `"name":"worker 2: disk","status":"ok"`)
	fill("2")
	want("/readyz", 503, `"status":"not ready"`, `"worker 1: disk":"no space left on device"`, `"worker 2: disk":"no space left on device"`)
	want("/livez", 200)
	want("/startupz", 200)
	w.quits(t)
}

// Where no folder can be used for sockets, as in a container that cannot be written
// to, the program serves and is ready all the same.
func TestWorkersWithoutSocketsServeAndSayWhatIsMissing(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	w := startWatched(t, "watched", "2", "XDG_RUNTIME_DIR="+nowhere, "TMPDIR="+nowhere)
	if status, _, body := w.see(t, "/readyz?verbose"); status != 200 || !strings.Contains(body, `"worker 2: disk"`) {
		t.Errorf("/readyz answers %d %s", status, body)
	}
	if status, _, body := w.see(t, "/ops/locks"); status != 502 || !strings.Contains(body, "the worker has no socket") {
		t.Errorf("/ops/locks answers %d %s", status, body)
	}
	if _, _, body := w.see(t, "/metrics"); !strings.Contains(body, `mega_worker_scrape_failures_total{worker="2"} 1`) || !strings.Contains(body, `mega_workers{state="ready"} 2`) {
		t.Errorf("/metrics answers %s", body)
	}
	w.quits(t)
	if n := len(w.records("no socket for the supervisor: this worker is left out of metrics, pages and verbs")); n != 2 {
		t.Errorf("%d workers have said so:\n%s", n, w)
	}
}

// disks is the folder that says whose disk is full.
func (w watched) disks() string {
	i := slices.IndexFunc(w.cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, "DISKS=") })
	return strings.TrimPrefix(w.cmd.Env[i], "DISKS=")
}

func TestProbesFollowTheSupervisorFromItsStartToItsEnd(t *testing.T) {
	addr := redistest.FreeAddr(t)
	c := startWorkers(t, "primary", "2", "MEGA_OPS_ADDR="+addr)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	c.until(t, "in primary")
	c.follow()
	w := watched{c, "http://" + addr}
	for path, want := range map[string]int{"/livez": 200, "/startupz": 503, "/readyz": 503, "/ops/locks": 503, "/ops/workers": 200} {
		if status, _, body := w.see(t, path); status != want {
			t.Errorf("%s answers %d %s, want %d", path, status, body, want)
		}
	}
	if _, _, body := w.see(t, "/metrics"); !strings.Contains(body, `mega_workers{state="starting"} 2`) {
		t.Errorf("two are starting, and it tells\n%s", body)
	}
	w.quits(t)

	w = startWatched(t, "watched", "2", "MEGA_SHUTDOWN_DELAY=3s")
	w.signal(t, syscall.SIGTERM)
	w.eventually(t, "stopping", 1)
	if status, _, body := w.see(t, "/readyz"); status != 503 || !strings.Contains(body, "stopping") {
		t.Errorf("/readyz answers %d %s", status, body)
	}
	if status, _, body := w.see(t, "/livez"); status != 200 {
		t.Errorf("/livez answers %d %s", status, body)
	}
	if status := w.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, w)
	}
	left, err := filepath.Glob(filepath.Join(w.disks(), "mega", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %q, %v", left, err)
	}
}

// The wait for the hub is a part of the start: the probes answer, as they do while a
// single process waits.
func TestProbesAnswerWhileTheSupervisorWaitsForTheHub(t *testing.T) {
	socket, addr := "MEGA_CLUSTER_SOCKET="+filepath.Join(shortdir.New(t), "s"), redistest.FreeAddr(t)
	hub := startChild(t, "settings", socket)
	hub.address(t)
	hub.follow()
	hub.signal(t, syscall.SIGSTOP)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)

	c := startChild(t, "settings", "MEGA_CLUSTER_WORKERS=2", socket, "MEGA_OPS_ADDR="+addr, "MEGA_BOOT_WAIT_FOR=60s")
	w := watched{c, "http://" + addr}
	impatient := http.Client{Timeout: time.Second}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		a, err := impatient.Get(w.ops + "/livez")
		if err == nil {
			_ = a.Body.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v:\n%s", err, c)
		}
	}
	impatient.CloseIdleConnections()
	for path, want := range map[string]int{"/livez": 200, "/startupz": 503, "/readyz": 503, "/ops/locks": 503, "/ops/workers": 200, "/metrics": 200} {
		if status, _, body := w.see(t, path); status != want {
			t.Errorf("%s answers %d %s, want %d", path, status, body, want)
		}
	}
	hub.signal(t, syscall.SIGCONT)
	c.await(t, "boot.report", 1)
	c.follow()
	if status, _, body := w.see(t, "/readyz"); status != 200 {
		t.Errorf("/readyz answers %d %s", status, body)
	}
	w.quits(t)
	hub.signal(t, syscall.SIGTERM)
	if status := hub.end(t); status != 0 {
		t.Errorf("exit status %d of the hub:\n%s", status, hub)
	}
}
