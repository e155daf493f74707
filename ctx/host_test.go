package megactx_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	"github.com/megaframework/mega/lock"
)

// stage is an app under test and its log.
type stage struct {
	host   *request.Host
	router *router.Router
	log    *bytes.Buffer
}

func newStage(wraps ...func(megactx.Handler) megactx.Handler) *stage {
	s := &stage{log: &bytes.Buffer{}}
	s.host = &request.Host{App: request.App{Name: "web", Env: "test"}, Log: slog.New(slog.NewJSONHandler(s.log, nil))}
	s.router = router.New(s.host, wraps...)
	return s
}

// ask sends a request, whose headers are given as "Name: value".
func (s *stage) ask(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, content)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.router.Handler().ServeHTTP(w, r)
	return w
}

// request sends a request for / by a connection of its own, from which the test reads.
func (s *stage) request(t *testing.T) (*httptest.Server, net.Conn) {
	t.Helper()
	server := httptest.NewServer(s.router.Handler())
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	return server, conn
}

// last is the last line of the log.
func (s *stage) last(t *testing.T) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	line := map[string]any{}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil {
		t.Fatalf("log line %q: %v", lines[len(lines)-1], err)
	}
	return line
}

const wantJSON = "Accept: application/json"

func problemIn(t *testing.T, w *httptest.ResponseRecorder) megactx.Problem {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("the answer is %q: %s", got, w.Body)
	}
	var p megactx.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

var secret = lock.Holder{App: "billing", Host: "db-7", PID: 4711, Label: "nightly"}

func TestErrorsBecomeAnswers(t *testing.T) {
	busy := &lock.NotAcquiredError{Key: "x", Holders: []lock.Holding{{Holder: secret}}}
	lost := &lock.LostError{Key: "x", Cause: lock.Forced, By: secret, Reason: "stuck"}
	for _, x := range []struct {
		name   string
		err    error
		status int
		code   string
		retry  bool
	}{
		{"not acquired", busy, 409, "lock.not_acquired", true},
		{"not acquired within the context's time", &lock.NotAcquiredError{Holders: []lock.Holding{{Holder: secret}}, Err: context.DeadlineExceeded}, 409, "lock.not_acquired", true},
		{"not acquired, wrapped", fmt.Errorf("buy: %w", busy), 409, "lock.not_acquired", true},
		{"lost", lost, 409, "lock.lost", false},
		{"lost, and the work's own error", errors.Join(lost, megactx.Error(404, "x.y", "z")), 409, "lock.lost", false},
		{"unavailable", fmt.Errorf("%w: %w: dial %v", lock.ErrUnavailable, context.DeadlineExceeded, secret), 503, "lock.unavailable", true},
		{"closed", lock.ErrClosed, 503, "lock.closed", true},
		{"a stale fence", fmt.Errorf("save: %w", &lock.StaleError{Key: "k", Fence: 7, Slot: -1}), 409, "lock.stale", false},
		{"a guarded write without a lease", lock.ErrNoLease, 500, "lock.no_lease", false},
		{"deadlock", lock.ErrDeadlock, 500, "lock.deadlock", false},
		{"unsupported", lock.ErrUnsupported, 500, "lock.unsupported", false},
		{"pool size", fmt.Errorf("acquire: %w", lock.ErrPoolSize), 500, "lock.pool_size", false},
		{"not configured", megactx.ErrNotConfigured, 500, "mega.not_configured", false},
		{"a deadline", fmt.Errorf("query: %w", context.DeadlineExceeded), 504, "request.timeout", false},
		{"the app's own", megactx.Error(402, "card.declined", "No money."), 402, "card.declined", false},
		{"the app's own, wrapped", fmt.Errorf("pay: %w", megactx.Error(402, "card.declined", "No money.")), 402, "card.declined", false},
		{"anything else", errors.New("secret " + secret.String()), 500, "internal", false},
		{"a context that is not the request's", context.Canceled, 500, "internal", false},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newStage()
			s.router.Get("/", func(*megactx.Ctx) error { return x.err })
			w := s.ask("GET", "/", "", wantJSON)
			p := problemIn(t, w)
			if w.Code != x.status || p.Status != x.status || p.Code != x.code || p.Title != http.StatusText(x.status) || p.Type != "about:blank" {
				t.Errorf("got %d %+v, want %d %s", w.Code, p, x.status, x.code)
			}
			if (w.Header().Get("Retry-After") != "") != x.retry {
				t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
			}
			for _, name := range []string{"billing", "db-7", "4711", "nightly"} {
				if strings.Contains(w.Body.String(), name) {
					t.Errorf("the body names %q: %s", name, w.Body)
				}
			}
			if line := s.last(t); line["error"] != x.err.Error() || line["code"] != x.code || line["request"] != p.Request {
				t.Errorf("the log has %v", line)
			}
		})
	}
}

func TestInvalidKeyIsTheClientsMistake(t *testing.T) {
	s := newStage()
	s.host.Locker, _ = newLocker(t)
	s.router.Get("/{id}", func(c *megactx.Ctx) error {
		return c.Lock.With("product:"+c.Param("id"), func(*megactx.Ctx) error { return nil })
	})
	if p := problemIn(t, s.ask("GET", "/a%20b", "", wantJSON)); p.Status != 400 || p.Code != "lock.invalid_key" {
		t.Errorf("got %+v, want 400 lock.invalid_key", p)
	}
	if w := s.ask("GET", "/a%2Fb", "", wantJSON); w.Code != http.StatusNoContent {
		t.Errorf("an escaped slash: got %d %s", w.Code, w.Body)
	}
}

func TestHandlerThatWritesNothingAnswers204(t *testing.T) {
	s := newStage()
	s.router.Get("/handler", func(*megactx.Ctx) error { return nil })
	s.router.Get("/std", megactx.WrapHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	if w := s.ask("GET", "/handler", ""); w.Code != http.StatusNoContent || w.Header().Get("Content-Type") != "" {
		t.Errorf("a Handler: got %d", w.Code)
	}
	if w := s.ask("GET", "/std", ""); w.Code != http.StatusOK {
		t.Errorf("an http.Handler: got %d, want the 200 that silence means to net/http", w.Code)
	}
}

func TestErrorAfterTheAnswerHasBegunIsLoggedAlone(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(c *megactx.Ctx) error {
		return errors.Join(c.Text(http.StatusOK, "fine"), errors.New("but"))
	})
	if w := s.ask("GET", "/", ""); w.Code != http.StatusOK || w.Body.String() != "fine" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if line := s.last(t); line["error"] != "but" || line["status"] != 200.0 {
		t.Errorf("the log has %v", line)
	}
}

func TestPanicIsAnAnswerAndALogLine(t *testing.T) {
	s := newStage()
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/std" {
				panic("outside")
			}
			next.ServeHTTP(w, r)
		})
	})
	s.router.Get("/", func(*megactx.Ctx) error { panic("inside") })
	s.router.Get("/std", func(*megactx.Ctx) error { return nil })
	for target, value := range map[string]string{"/": "inside", "/std": "outside"} {
		p := problemIn(t, s.ask("GET", target, "", wantJSON))
		line := s.last(t)
		if p.Status != 500 || p.Code != "internal" || line["error"] != "panic: "+value || !strings.Contains(fmt.Sprint(line["stack"]), "host_test.go") {
			t.Errorf("%s: got %+v and %v", target, p, line)
		}
	}
}

func TestAbortedHandlerIsLeftToNetHTTP(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(*megactx.Ctx) error { panic(http.ErrAbortHandler) })
	defer func() {
		if got, _ := recover().(error); !errors.Is(got, http.ErrAbortHandler) {
			t.Errorf("the panic that came out is %v", got)
		}
	}()
	s.ask("GET", "/", "")
}

func TestClientThatWentAwayIsLoggedAs499(t *testing.T) {
	s := newStage()
	ctx, leave := context.WithCancel(t.Context())
	s.router.Get("/", func(c *megactx.Ctx) error {
		leave()
		<-c.Done()
		return fmt.Errorf("query: %w", c.Err())
	})
	w := httptest.NewRecorder()
	s.router.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if line := s.last(t); line["status"] != 499.0 || line["level"] != "INFO" {
		t.Errorf("the log has %v", line)
	}
	if w.Body.Len() != 0 {
		t.Errorf("nobody was answered %s", w.Body)
	}
}

// cutOff is the writer of a connection that its client has closed. As in net/http,
// a failed write ends the context of the request.
type cutOff struct {
	http.ResponseWriter
	end func()
}

// Unwrap has the methods of a response that can flush.
func (w *cutOff) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var errReset = errors.New("connection reset by peer")

func (w *cutOff) Write([]byte) (int, error) {
	w.end()
	return 0, errReset
}

// A handler that returns the error of its write has not failed. Other errors of
// the handler are its own.
func TestClientThatLeavesADownloadIsNoErrorOfTheHandler(t *testing.T) {
	s := newStage()
	download := func(c *megactx.Ctx) error {
		_, err := io.WriteString(c.Writer(), "part")
		return fmt.Errorf("send the file: %w", err)
	}
	s.router.Get("/download", download)
	s.router.Get("/copy", func(c *megactx.Ctx) error {
		_, err := io.Copy(c.Writer(), strings.NewReader("part"))
		return err
	})
	s.router.Get("/panic", func(c *megactx.Ctx) error { panic(download(c)) })
	s.router.Get("/other", func(c *megactx.Ctx) error {
		_ = download(c)
		return errors.New("the disk is full")
	})
	for target, want := range map[string]string{"/download": "request.cancelled", "/copy": "request.cancelled", "/panic": "internal", "/other": "internal"} {
		ctx, end := context.WithCancel(t.Context())
		func() {
			defer func() { _ = recover() }() // the connection is cut
			s.router.Handler().ServeHTTP(&cutOff{httptest.NewRecorder(), end}, httptest.NewRequest("GET", target, nil).WithContext(ctx))
		}()
		if line := s.last(t); line["code"] != want || (line["level"] == "INFO") != (want != "internal") {
			t.Errorf("%s: the log has %v", target, line)
		}
	}
}

func TestRequestCutOffByTheShutdownIsAnswered503(t *testing.T) {
	s := newStage()
	ctx, end := context.WithCancelCause(t.Context())
	s.router.Get("/", func(c *megactx.Ctx) error {
		end(megactx.ErrShuttingDown)
		<-c.Done()
		return c.Err()
	})
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	r.Header.Set("Accept", "application/json")
	s.router.Handler().ServeHTTP(w, r)
	if p := problemIn(t, w); p.Status != 503 || p.Code != "mega.shutting_down" || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %+v", p)
	}
}

func TestForgottenLeaseIsReleasedAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		locker, told := newLocker(t)
		s.host.Locker = locker
		var after *megactx.Ctx
		s.router.Get("/", func(c *megactx.Ctx) error {
			after = c
			_, err := c.Lock.Acquire("x")
			return err
		})
		if w := s.ask("GET", "/", ""); w.Code != http.StatusNoContent {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		if !errors.Is(context.Cause(after), megactx.ErrHandlerReturned) {
			t.Errorf("the request's context ended because of %v", context.Cause(after))
		}
		time.Sleep(10 * time.Second) // fake time: at the latest a TTL later
		synctest.Wait()
		all := told.forgotten()
		if len(all) != 1 || !strings.Contains(all[0].Site, "host_test.go") {
			t.Errorf("forgotten: %+v, want one, acquired in host_test.go", all)
		}
		if n := locker.Stats().Active; n != 0 {
			t.Errorf("%d leases are held", n)
		}
	})
}

func TestOtherSitesCannotPost(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error { return nil })
	s.router.Get("/", func(c *megactx.Ctx) error { return nil })
	for _, x := range []struct {
		method string
		header string
		status int
	}{
		{"POST", "Sec-Fetch-Site: cross-site", 403},
		{"POST", "Sec-Fetch-Site: same-site", 403},
		{"POST", "Origin: https://evil.example", 403},
		{"POST", "Sec-Fetch-Site: same-origin", 204},
		{"POST", "Origin: http://example.com", 204},
		{"POST", "X-No: browser", 204},
		{"GET", "Sec-Fetch-Site: cross-site", 204},
	} {
		if w := s.ask(x.method, "http://example.com/", "", x.header); w.Code != x.status {
			t.Errorf("%s with %s: got %d, want %d", x.method, x.header, w.Code, x.status)
		}
	}
}

func TestRequestsHaveIDs(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(c *megactx.Ctx) error {
		c.Log.Info("inside")
		return nil
	})
	if w := s.ask("GET", "/", "", "X-Request-Id: abc-1"); w.Header().Get("X-Request-Id") != "abc-1" {
		t.Errorf("a proxy's id became %q", w.Header().Get("X-Request-Id"))
	}
	if inside, _, _ := strings.Cut(s.log.String(), "\n"); !strings.Contains(inside, `"request":"abc-1"`) || !strings.Contains(inside, `"route":"/"`) {
		t.Errorf("the handler's log has neither id nor route: %s", inside)
	}
	for _, bad := range []string{"", "a b", strings.Repeat("x", 65), "<script>"} {
		w := s.ask("GET", "/", "", "X-Request-Id: "+bad)
		if id := w.Header().Get("X-Request-Id"); id == bad || len(id) < 16 {
			t.Errorf("%q became %q", bad, id)
		}
	}
}

// The id in the log is the one of the answer.
func TestAnswerOfAProxyHasOneRequestID(t *testing.T) {
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Request-Id", "behind") }))
	defer behind.Close()
	to, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := newStage()
	s.router.Get("/", megactx.WrapHandler(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}))
	if ids := s.ask("GET", "/", "", "X-Request-Id: front").Header()["X-Request-Id"]; len(ids) != 1 || ids[0] != "front" {
		t.Errorf("got %q", ids)
	}
}

func TestRetryAfterFollowsTheTimeThatIsLeft(t *testing.T) {
	for _, x := range []struct {
		left []time.Duration
		want string
	}{
		{nil, "1"}, {[]time.Duration{300 * time.Millisecond}, "1"}, {[]time.Duration{9 * time.Second, 4100 * time.Millisecond}, "5"},
		{[]time.Duration{24 * time.Hour}, "60"},
	} {
		busy := &lock.NotAcquiredError{Key: "x", Full: x.left == nil}
		for _, left := range x.left {
			busy.Holders = append(busy.Holders, lock.Holding{Left: left})
		}
		s := newStage()
		s.router.Get("/", func(*megactx.Ctx) error { return fmt.Errorf("buy: %w", busy) })
		w := s.ask("GET", "/", "", wantJSON)
		if got := w.Header().Get("Retry-After"); got != x.want {
			t.Errorf("leases with %v left: Retry-After is %q, want %s", x.left, got, x.want)
		}
		if p := problemIn(t, w); p.Status != 409 || p.Code != busy.Code() {
			t.Errorf("got %+v, want the code %s", p, busy.Code())
		}
	}
}

func TestHoldersAreKnownByTheirRequest(t *testing.T) {
	s := newStage()
	s.host.Locker, _ = newLocker(t)
	s.router.Get("/", func(c *megactx.Ctx) error {
		return c.Lock.With("x", func(c *megactx.Ctx) error {
			state, err := c.Lock.Inspect("x")
			if err != nil || len(state.Holders) != 1 || state.Holders[0].Request != "abc-1" || state.Holders[0].App != "web" {
				t.Errorf("got %+v, %v", state, err)
			}
			return nil
		})
	})
	s.ask("GET", "/", "", "X-Request-Id: abc-1")
}

func TestRequestsInFlightAreListed(t *testing.T) {
	s := newStage()
	s.router.Get("/slow", func(*megactx.Ctx) error {
		if active := s.host.Active(); len(active) != 1 || !strings.HasPrefix(active[0], "GET /slow (") {
			t.Errorf("in flight: %q", active)
		}
		return nil
	})
	s.ask("GET", "/slow", "")
	if active := s.host.Active(); len(active) != 0 {
		t.Errorf("afterwards: %q", active)
	}
}

func TestEveryRequestIsCountedOnce(t *testing.T) {
	s := newStage()
	var told []request.Finished
	s.host.Served = func(r request.Finished) {
		if n := s.host.InFlight(); n != 0 {
			t.Errorf("%d requests are in flight when the last is told", n)
		}
		r.Took = 0
		told = append(told, r)
	}
	s.router.Get("/a/{id}", func(c *megactx.Ctx) error { return c.Text(201, "abc") })
	s.router.Post("/fail", func(*megactx.Ctx) error { panic("x") })
	s.router.Get("/cut", func(*megactx.Ctx) error { panic(http.ErrAbortHandler) })
	s.router.Get("/half", func(c *megactx.Ctx) error { _ = c.Text(200, "half"); panic(http.ErrAbortHandler) })
	for _, ask := range []string{"GET /a/7", "HEAD /a/7", "POST /fail", "GET /none", "GET /cut", "GET /half"} {
		func() {
			defer func() { _ = recover() }()
			method, target, _ := strings.Cut(ask, " ")
			s.ask(method, target, "", wantJSON)
		}()
	}
	want := []request.Finished{
		{App: "web", Route: "/a/{id}", Method: "GET", Status: 201, Bytes: 3},
		{App: "web", Route: "/a/{id}", Method: "HEAD", Status: 201},
		{App: "web", Route: "/fail", Method: "POST", Status: 500},
		{App: "web", Method: "GET", Status: 404},
		{App: "web", Route: "/cut", Method: "GET"},
		{App: "web", Route: "/half", Method: "GET", Status: 200, Bytes: 4},
	}
	for i := range told {
		if told[i].Status >= 400 && told[i].Bytes > 50 {
			told[i].Bytes = 0 // of a problem
		}
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	if line := s.last(t); line["route"] != "/half" || line["code"] != "request.aborted" || line["status"] != 200.0 {
		t.Errorf("the log of an aborted request has %v", line)
	}
}

// The value of a panic is no answer, and a client that has left is no excuse for it.
func TestPanicWithAnErrorIsInternal(t *testing.T) {
	for _, value := range []error{megactx.Error(404, "x.y", "detail"), lock.ErrUnavailable, context.DeadlineExceeded, &http.MaxBytesError{Limit: 1}} {
		s := newStage()
		s.router.Get("/", func(*megactx.Ctx) error { panic(fmt.Errorf("wrapped: %w", value)) })
		if p := problemIn(t, s.ask("GET", "/", "", wantJSON)); p.Status != 500 || p.Code != "internal" || strings.Contains(p.Detail, "detail") {
			t.Errorf("%v: got %+v", value, p)
		}
	}
}

func TestOnlyTheFirstAnswerCounts(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(c *megactx.Ctx) error {
		if err := c.Text(200, "first"); err != nil {
			t.Error(err)
		}
		for name, err := range map[string]error{
			"Text": c.Text(500, "second"), "JSON": c.JSON(500, 2), "Redirect": c.Redirect(302, "/"),
			"SSE": c.SSE(func(*megactx.Stream) error { return nil }),
		} {
			if !errors.Is(err, megactx.ErrAnswered) {
				t.Errorf("%s: got %v, want %v", name, err, megactx.ErrAnswered)
			}
		}
		return nil
	})
	if w := s.ask("GET", "/", ""); w.Code != 200 || w.Body.String() != "first" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestMountedAppsAddTheirPrefix(t *testing.T) {
	s := newStage()
	s.host.App.Prefix = "/admin"
	s.router.Get("/go", func(c *megactx.Ctx) error { return c.Redirect(303, c.Query("to")) })
	for to, want := range map[string]string{
		"/orders?x=1": "/admin/orders?x=1", "/": "/admin/", "//cdn.example/x": "//cdn.example/x", "https://x.example/": "https://x.example/",
		"next": "next", "?page=2": "?page=2", "/값 ": "/admin/%EA%B0%92%20", "/%0d%0aX: y": "/admin/%0d%0aX:%20y",
	} {
		w := s.ask("GET", "/go?to="+url.QueryEscape(to), "")
		if got := w.Header().Get("Location"); got != want || w.Code != 303 {
			t.Errorf("%q: got %d to %q, want %q", to, w.Code, got, want)
		}
	}
}

func TestTheConnectionCanBeTakenOver(t *testing.T) {
	s := newStage()
	over := make(chan struct{})
	s.host.Served = func(request.Finished) { close(over) }
	if err := s.host.SetLimits(request.Limits{Timeout: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	s.router.Get("/", func(c *megactx.Ctx) error {
		conn, rw, err := http.NewResponseController(c.Writer()).Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		select {
		case <-c.Done():
			t.Errorf("its time ends: %v", context.Cause(c))
		case <-time.After(40 * time.Millisecond):
		}
		if at, ok := c.Deadline(); ok {
			t.Errorf("it has the deadline %v", at)
		}
		_, err = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\nhello")
		return errors.Join(err, rw.Flush())
	})
	_, conn := s.request(t)
	if text, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(text), "hello") {
		t.Errorf("got %q, %v", text, err)
	}
	<-over
	if line := s.last(t); line["status"] != 101.0 || line["error"] != nil {
		t.Errorf("the log has %v", line)
	}
}

// Many handlers of net/http look for this method.
func TestHandlerMayFlush(t *testing.T) {
	s := newStage()
	received := make(chan struct{})
	s.router.Get("/", megactx.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "a")
		w.(http.Flusher).Flush()
		<-received
	})))
	_, conn := s.request(t)
	defer close(received)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_, err = io.ReadFull(answer.Body, make([]byte, 1))
	}
	if err != nil {
		t.Errorf("the part before the flush does not arrive: %v", err)
	}
}

// An app's middleware may stand in front of the writer, as one that compresses.
type upper struct{ http.ResponseWriter }

func (u upper) Write(b []byte) (int, error) { return u.ResponseWriter.Write(bytes.ToUpper(b)) }

func TestMiddlewareMayReplaceTheWriter(t *testing.T) {
	s := newStage()
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(upper{w}, r)
			fmt.Fprint(w, "!") // after the handler, which is over by now
		})
	})
	var late *megactx.Ctx
	s.router.Get("/", func(c *megactx.Ctx) error { late = c; return c.Text(200, "hello") })
	s.router.Get("/copy", func(c *megactx.Ctx) error {
		_, err := io.Copy(c.Writer(), strings.NewReader("hello"))
		return err
	})
	for target, want := range map[string]string{"/": "HELLO!", "/copy": "HELLO!"} {
		if w := s.ask("GET", target, ""); w.Body.String() != want {
			t.Errorf("%s: got %s, want %s", target, w.Body, want)
		}
	}
	for name, err := range map[string]error{"Text": late.Text(200, "late"), "SSE": late.SSE(func(*megactx.Stream) error { return nil })} {
		if !errors.Is(err, megactx.ErrHandlerReturned) {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}

func TestFilesAreSentAsTheyAre(t *testing.T) {
	s := newStage()
	file := filepath.Join(t.TempDir(), "big")
	content := bytes.Repeat([]byte("0123456789"), 10_000)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s.router.Get("/", megactx.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })))
	server := httptest.NewServer(s.router.Handler())
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(text, content) {
		t.Errorf("%d bytes of %d arrived, %v", len(text), len(content), err)
	}
	server.Close()
	if line := s.last(t); line["bytes"] != 100_000.0 {
		t.Errorf("the log has %v", line)
	}
}

func TestPartialAnswerIsNotACompleteOne(t *testing.T) {
	for name, x := range map[string]struct {
		do    func(c *megactx.Ctx) error
		whole bool
	}{
		"an error in the middle": {func(c *megactx.Ctx) error { fmt.Fprint(c.Writer(), "a,b\n"); return errors.New("x") }, false},
		"a panic in the middle":  {func(c *megactx.Ctx) error { fmt.Fprint(c.Writer(), "a,b\n"); panic("x") }, false},
		"nothing after the head": {func(c *megactx.Ctx) error { c.Writer().WriteHeader(200); return errors.New("x") }, false},
		"an error afterwards":    {func(c *megactx.Ctx) error { return errors.Join(c.Text(200, "a,b\n"), errors.New("x")) }, true},
		"a panic afterwards":     {func(c *megactx.Ctx) error { _ = c.Text(200, "a,b\n"); panic("x") }, true},
		"as long as announced": {func(c *megactx.Ctx) error {
			c.Writer().Header().Set("Content-Length", "4")
			fmt.Fprint(c.Writer(), "a,b\n")
			return errors.New("x")
		}, true},
		"an error after a redirect": {func(c *megactx.Ctx) error { return errors.Join(c.Redirect(300, "/a"), errors.New("x")) }, true},
		"an answer without a body":  {func(c *megactx.Ctx) error { c.Writer().WriteHeader(204); return errors.New("x") }, true},
		"a part after an answer without a length": {func(c *megactx.Ctx) error {
			_ = c.Redirect(300, "/a")
			fmt.Fprint(c.Writer(), "a,b\n")
			panic("x")
		}, false},
		"a stream with an error": {func(c *megactx.Ctx) error { return c.SSE(func(*megactx.Stream) error { return errors.New("x") }) }, false},
		"a stream with a panic":  {func(c *megactx.Ctx) error { return c.SSE(func(*megactx.Stream) error { panic("x") }) }, false},
		"an event before a panic": {func(c *megactx.Ctx) error {
			return c.SSE(func(s *megactx.Stream) error { _ = s.Send("", "a"); panic("x") })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			s.router.Get("/", x.do)
			over := make(chan struct{})
			s.host.Served = func(request.Finished) { close(over) }
			server := httptest.NewServer(s.router.Handler())
			defer server.Close()
			answer, err := server.Client().Get(server.URL)
			if err == nil {
				_, err = io.ReadAll(answer.Body)
				answer.Body.Close()
			}
			if (err == nil) != x.whole {
				t.Errorf("the client got %v", err)
			}
			<-over
			if line := s.last(t); !strings.HasSuffix(str(line["error"]), "x") || line["level"] != "ERROR" || line["route"] != "/" {
				t.Errorf("the log has %v", line)
			}
		})
	}
}

func TestAMiddlewareThatPanicsAfterAPartCutsTheConnection(t *testing.T) {
	s := newStage()
	s.router.UseStd(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a"); panic("x") })
	})
	s.router.Get("/", func(*megactx.Ctx) error { return nil })
	defer func() {
		if got, _ := recover().(error); !errors.Is(got, http.ErrAbortHandler) {
			t.Errorf("the panic that came out is %v", got)
		}
		if line := s.last(t); line["error"] != "panic: x" {
			t.Errorf("the log has %v", line)
		}
	}()
	s.ask("GET", "/", "")
}

func TestACopyThatDoesNotEndDoesNotHoldUpTheHandler(t *testing.T) {
	s := newStage()
	source, feed := io.Pipe()
	copied := make(chan error, 1)
	begun := make(chan struct{})
	s.router.Get("/", func(c *megactx.Ctx) error {
		go func() {
			close(begun)
			_, err := io.Copy(c.Writer(), source)
			copied <- err
		}()
		<-begun
		time.Sleep(20 * time.Millisecond) // until the copy waits for its source, as a rule
		return nil
	})
	s.ask("GET", "/", "")
	if _, err := feed.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if err := <-copied; !errors.Is(err, megactx.ErrHandlerReturned) {
		t.Errorf("the copy ended with %v", err)
	}
}
