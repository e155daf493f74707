package boot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// decode gets a page of JSON.
func decode(t *testing.T, url string, v any) {
	t.Helper()
	status, body := get(t, url)
	if err := json.Unmarshal([]byte(body), v); status != 200 || err != nil {
		t.Fatalf("%s: %d %s, %v", url, status, body, err)
	}
}

func TestBootIsWatchedWhileItGoesOn(t *testing.T) {
	addr := redistest.FreeAddr(t)
	p, _ := process("MEGA_OPS_ADDR=" + addr)
	begun, leave, started := make(chan struct{}), make(chan struct{}), make(chan *boot.Running, 1)
	go func() {
		r, err := boot.Start(context.Background(), p, mega.App("main", mega.OnStart("warm up", func(context.Context) {
			close(begun)
			<-leave
		})))
		if err != nil {
			t.Error(err)
		}
		started <- r
	}()
	<-begun
	want := func(state string, statuses ...int) {
		t.Helper()
		for i, path := range []string{"/livez", "/startupz", "/readyz", "/ops/boot", "/metrics"} {
			if got, body := get(t, "http://"+addr+path); got != statuses[i] {
				t.Errorf("%s: %s answers %d %s, want %d", state, path, got, body, statuses[i])
			}
		}
	}
	want("starting", 200, 503, 503, 503, 200)
	close(leave)
	r := <-started
	want("started", 200, 200, 200, 200, 200)
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Error("it is still listened to")
	}
}

func TestProcessThatWaitsForItsServerIsAlive(t *testing.T) {
	ops, redis := redistest.FreeAddr(t), redistest.FreeAddr(t)
	p, stderr := process("MEGA_OPS_ADDR="+ops, "MEGA_CACHE_MAIN_URL=redis://"+redis, "MEGA_BOOT_WAIT_FOR=60s")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- boot.Main(ctx, p, mega.App("main", mega.Routes(hello))) }()
	for !strings.Contains(stderr.String(), "waiting for the server") {
		time.Sleep(time.Millisecond)
	}
	for path, want := range map[string]int{"/livez": 200, "/startupz": 503, "/readyz": 503} {
		if got, body := get(t, "http://"+ops+path); got != want {
			t.Errorf("%s answers %d %s, want %d", path, got, body, want)
		}
	}
	stop()
	if status := <-ended; status != failure.ExitOK {
		t.Errorf("it ended with %d:\n%s", status, stderr)
	}
}

func TestLivenessOutlastsReadiness(t *testing.T) {
	g := newGate()
	p, _ := process()
	r := start(t, p, g.app())
	conn := dial(t, r.Report().Apps[0].URL)
	ask(t, conn)
	<-g.begun
	stopped := stopping(t, r)
	for path, want := range map[string]int{"/livez": 200, "/startupz": 200, "/readyz": 503} {
		if got, body := get(t, r.Report().Ops+path); got != want {
			t.Errorf("%s answers %d %s, want %d", path, got, body, want)
		}
	}
	close(g.leave)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestFailedBootLeavesNoListenerBehind(t *testing.T) {
	addr := redistest.FreeAddr(t)
	p, _ := process("MEGA_OPS_ADDR=" + addr)
	_ = fail(t, p, mega.App("main", mega.OnStart("warm up", func(context.Context) error { return errors.New("cold") })))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the address is not free again: %v", err)
	}
	_ = l.Close()
}

func TestProcessIsSeenFromOutside(t *testing.T) {
	p, _ := process("MEGA_LOCK_TTL=3s")
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/orders/{id}", func(c *megactx.Ctx) error {
			return c.Lock.With("order:"+c.Param("id"), func(c *megactx.Ctx) error { return c.Text(200, "ok") })
		})
	}), mega.Run("hold", func(l *lock.Locker, ctx context.Context) error {
		return l.With(ctx, "held:1", func(ctx context.Context) error { <-ctx.Done(); return nil }, lock.Label("by a test"))
	})))
	ops, app := r.Report().Ops, r.Report().Apps[0].URL
	if status, body := get(t, app+"/orders/7"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	_, _ = get(t, app+"/nothing")

	var report plan.Report
	if decode(t, ops+"/ops/boot", &report); report.Lock.Chosen != "memory" || report.Ops != ops || report.Took == 0 {
		t.Errorf("the report is %+v", report)
	}
	var settings []plan.Setting
	decode(t, ops+"/ops/config", &settings)
	if !slices.ContainsFunc(settings, func(s plan.Setting) bool {
		return s.Key == "lock.ttl" && s.Value == "3s" && s.Origin == "env MEGA_LOCK_TTL"
	}) {
		t.Errorf("the configuration is %+v", settings)
	}
	var routes []plan.Route
	decode(t, ops+"/ops/routes", &routes)
	if !slices.ContainsFunc(routes, func(r plan.Route) bool { return r.App == "main" && r.Method == "GET" && r.Pattern == "/orders/{id}" }) {
		t.Errorf("the routes are %+v", routes)
	}
	var locks struct{ Locks []lock.State }
	for len(locks.Locks) == 0 { // until the background has come to it
		decode(t, ops+"/ops/locks?prefix=held:", &locks)
	}
	if locks.Locks[0].Key != "held:1" || locks.Locks[0].Holders[0].Label != "by a test" {
		t.Errorf("the locks are %+v", locks)
	}
	_, metrics := get(t, ops+"/metrics")
	for _, line := range []string{
		`http_server_request_duration_seconds_count{app="main",method="GET",route="/orders/{id}",status="2xx"} 1`,
		`status="4xx"} 1`,
		`http_server_active_requests{app="main"} 0`,
		`mega_lock_acquired_total{key_class="order:*"} 1`, `mega_lock_held_seconds_count{key_class="order:*"} 1`,
		`mega_lock_active 1`, `mega_lock_scope{driver="memory"} 0`,
		`mega_build_info{`, `program="shop"`, "go_goroutines ", "process_start_time_seconds ",
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("no %q in the metrics", line)
		}
	}
	var ready struct{ Degraded []string }
	decode(t, ops+"/readyz?verbose", &ready)
	if !slices.ContainsFunc(ready.Degraded, func(s string) bool { return strings.HasPrefix(s, "locks end at this process") }) {
		t.Errorf("what is degraded is told as %q", ready.Degraded)
	}
	for _, path := range []string{"/", "/ops/build", "/ops/process", "/ops/stats", "/ops/bus", "/ops/lock?key=held:1"} {
		if status, body := get(t, ops+path); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

func TestAppsCountWhatIsTheirOwn(t *testing.T) {
	count := mega.Module(
		mega.Provide(func(r prometheus.Registerer) prometheus.Counter {
			c := prometheus.NewCounter(prometheus.CounterOpts{Name: "shop_sales_total", Help: "Pieces sold."})
			r.MustRegister(c)
			return c
		}),
		mega.OnStart("sell", func(c prometheus.Counter, _ context.Context) { c.Inc() }),
	)
	p, _ := process("MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	r := start(t, p, mega.App("main", count), mega.App("admin", count))
	_, text := get(t, r.Report().Ops+"/metrics")
	for _, line := range []string{`shop_sales_total{app="main"} 1`, `shop_sales_total{app="admin"} 1`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

func TestNothingIsChangedFromOutside(t *testing.T) {
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	conn := dial(t, r.Report().Ops)
	if _, err := fmt.Fprintf(conn, "POST /ops/lock/release HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if code, err := status(conn); code != 405 || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
}

func TestStrangersPagesAreRefusedOnALoopbackAddress(t *testing.T) {
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	conn := dial(t, r.Report().Ops)
	if _, err := fmt.Fprintf(conn, "GET /ops/config HTTP/1.1\r\nHost: evil.example\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if code, err := status(conn); code != 403 || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
}

func TestChecksThatHangDoNotHoldUpTheEnd(t *testing.T) {
	p, _ := process("MEGA_SHUTDOWN_TIMEOUT=5s")
	let := make(chan struct{})
	r := start(t, p, mega.App("main", mega.Routes(hello), mega.Ready("disk", func(context.Context) error { <-let; return nil }, mega.Budget(10*time.Millisecond))))
	if status, body := get(t, r.Report().Ops+"/readyz"); status != 503 || !strings.Contains(body, "no result after") {
		t.Errorf("got %d %s", status, body)
	}
	err := r.Stop()
	if err == nil || !strings.Contains(err.Error(), `"disk"`) {
		t.Errorf("stop: %v, want the name of the check that is left behind", err)
	}
	close(let)
}

const opsToken = "0123456789abcdef-token"

func TestOpsBeyondLoopbackNeedATokenForPrivatePages(t *testing.T) {
	for _, x := range []struct {
		name, addr, env, token, sent string
		private                      int
	}{
		{"loopback", "127.0.0.1:0", "dev", "", "", 200},
		{"loopback, a token that is not sent", "127.0.0.1:0", "dev", opsToken, "", 401},
		{"loopback, with the token", "127.0.0.1:0", "dev", opsToken, "Bearer " + opsToken, 200},
		{"everywhere, no token", "0.0.0.0:0", "dev", "", "", 403},
		{"everywhere, in production", ":0", "production", "", "", 403},
		{"everywhere, no token is set and none is sent", ":0", "dev", "", "Bearer ", 403},
		{"everywhere, no token is set and one is sent", ":0", "dev", "", "Bearer " + opsToken, 403},
		{"everywhere, none is sent", ":0", "dev", opsToken, "", 401},
		{"everywhere, an empty one", ":0", "dev", opsToken, "Bearer ", 401},
		{"everywhere, its beginning", ":0", "dev", opsToken, "Bearer " + opsToken[:16], 401},
		{"everywhere, another scheme", ":0", "dev", opsToken, "Basic " + opsToken, 401},
		{"everywhere, no scheme", ":0", "dev", opsToken, opsToken, 401},
		{"everywhere, the token", ":0", "dev", opsToken, "bearer  " + opsToken, 200},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, stderr := process("MEGA_OPS_ADDR="+x.addr, "MEGA_OPS_TOKEN="+x.token, "MEGA_ENV="+x.env)
			r := start(t, p, mega.App("main", mega.Routes(hello)))
			asks := func(path, host string) int {
				t.Helper()
				conn := dial(t, r.Report().Ops)
				defer func() { _ = conn.Close() }()
				head := ""
				if x.sent != "" {
					head = "Authorization: " + x.sent + "\r\n"
				}
				if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, host, head); err != nil {
					t.Fatal(err)
				}
				code, err := status(conn)
				if err != nil {
					t.Fatal(err)
				}
				return code
			}
			for _, path := range []string{"/livez", "/readyz?verbose", "/startupz", "/metrics", "/"} {
				if code := asks(path, "localhost"); code != 200 {
					t.Errorf("%s: got %d", path, code)
				}
			}
			private := []string{"/ops/config", "/ops/locks", "/ops/build", "/ops/config?x=/livez"}
			if x.env == "dev" {
				private = append(private, "/debug/pprof/cmdline")
			}
			for _, path := range private {
				if code := asks(path, "localhost"); code != x.private {
					t.Errorf("%s: got %d, want %d", path, code, x.private)
				}
			}
			for _, path := range []string{"/livez/../ops/config", "/%6fps/config", "//ops/config", "/ops/../ops/config", "/./ops/config", "http://localhost/ops/../ops/config"} {
				if code := asks(path, "localhost"); code == 200 && x.private != 200 {
					t.Errorf("%s: it is served", path)
				}
			}
			if strings.HasPrefix(x.addr, "127.") {
				if code := asks("/livez", "evil.example"); code != 403 {
					t.Errorf("by a foreign name: got %d", code)
				}
			}
			if strings.Contains(stderr.String(), opsToken) {
				t.Error("the token is in the log")
			}
		})
	}
}

func TestWeakOpsTokenIsRefused(t *testing.T) {
	for _, token := range []string{"short", "with a space in it", "tüüüüüüüüüüüüüüüken"} {
		p, _ := process("MEGA_OPS_TOKEN=" + token)
		if f := fail(t, p, mega.App("main", mega.Routes(hello))); f.Code != "config.invalid" || strings.Contains(f.Error(), token) {
			t.Errorf("%s: %v", token, f)
		}
	}
}
