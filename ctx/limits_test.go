package megactx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
)

// limited is a stage with limits.
func limited(t *testing.T, l request.Limits) *stage {
	t.Helper()
	s := newStage()
	if err := s.host.SetLimits(l); err != nil {
		t.Fatal(err)
	}
	return s
}

// chunked hides how much there is to read.
type chunked struct{ io.Reader }

func TestBodiesAreBoundedHoweverTheyAreReadAndSent(t *testing.T) {
	s := limited(t, request.Limits{Body: 16})
	s.router.Post("/bind", func(c *megactx.Ctx) error {
		var v struct{ Name string }
		return errors.Join(c.Bind(&v))
	})
	s.router.Post("/raw", func(c *megactx.Ctx) error {
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		return c.Text(200, string(body))
	})
	s.router.Post("/std", megactx.WrapHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var tooLarge *http.MaxBytesError
		if _, err := io.Copy(io.Discard, r.Body); !errors.As(err, &tooLarge) || tooLarge.Limit != 16 {
			t.Errorf("a plain handler reads too much: %v", err)
		}
	})))
	for _, x := range []struct {
		target, body string
		chunked      bool
		status       int
	}{
		{"/raw", strings.Repeat("x", 16), false, 200},
		{"/raw", strings.Repeat("x", 16), true, 200},
		{"/raw", strings.Repeat("x", 17), false, 413},
		{"/raw", strings.Repeat("x", 17), true, 413},
		{"/raw", strings.Repeat("x", 1<<20), true, 413},
		{"/bind", `{"name":"x"}`, true, 204},
		{"/bind", `{"name":"` + strings.Repeat("x", 17) + `"}`, false, 413},
		{"/bind", `{"name":"` + strings.Repeat("x", 17) + `"}`, true, 413},
		{"/std", strings.Repeat("x", 17), true, 200},
	} {
		var body io.Reader = strings.NewReader(x.body)
		if x.chunked {
			body = chunked{body}
		}
		r := httptest.NewRequest("POST", x.target, body)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.router.Handler().ServeHTTP(w, r)
		if w.Code != x.status || w.Code == 413 && !strings.Contains(w.Body.String(), `"request.too_large"`) {
			t.Errorf("%s with %d bytes, chunked %v: got %d %s, want %d", x.target, len(x.body), x.chunked, w.Code, w.Body, x.status)
		}
	}
}

// A client that does not send its whole body is the cause of the error that the
// handler returns. Other errors of the handler are its own.
func TestBodyThatIsCutOffIsTheClientsError(t *testing.T) {
	s := limited(t, request.Limits{})
	s.router.Post("/read", func(c *megactx.Ctx) error {
		_, err := io.ReadAll(c.Request().Body)
		return fmt.Errorf("read the upload: %w", err)
	})
	s.router.Post("/panic", func(c *megactx.Ctx) error {
		_, err := io.ReadAll(c.Request().Body)
		panic(err)
	})
	s.router.Post("/other", func(c *megactx.Ctx) error {
		_, _ = io.ReadAll(c.Request().Body)
		return errors.New("the disk is full")
	})
	for target, want := range map[string]int{"/read": 400, "/panic": 500, "/other": 500} {
		r := httptest.NewRequest("POST", target, io.MultiReader(strings.NewReader("12345"), iotest.ErrReader(io.ErrUnexpectedEOF)))
		w := httptest.NewRecorder()
		s.router.Handler().ServeHTTP(w, r)
		if w.Code != want || want == 400 && !strings.Contains(w.Body.String(), "request.bad_body") {
			t.Errorf("%s: got %d %s, want %d", target, w.Code, w.Body, want)
		}
	}
}

// The end of the shutdown's budget closes the connection below a handler that reads.
func TestBodyThatTheShutdownCutsOffIsNotTheClientsError(t *testing.T) {
	s := limited(t, request.Limits{})
	s.router.Post("/read", func(c *megactx.Ctx) error {
		_, err := io.ReadAll(c.Request().Body)
		return err
	})
	s.router.Post("/bind", func(c *megactx.Ctx) error { return c.Bind(&struct{}{}) })
	for _, target := range []string{"/read", "/bind"} {
		ctx, end := context.WithCancelCause(t.Context())
		rest := readFunc(func([]byte) (int, error) {
			end(megactx.ErrShuttingDown)
			return 0, net.ErrClosed
		})
		r := httptest.NewRequest("POST", target, io.MultiReader(strings.NewReader("{"), rest)).WithContext(ctx)
		r.Header.Set("Content-Type", "application/json")
		s.router.Handler().ServeHTTP(httptest.NewRecorder(), r)
		if line := s.last(t); line["status"] != 503.0 || line["code"] != "mega.shutting_down" {
			t.Errorf("%s: the log has %v", target, line)
		}
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

func TestBodyAnnouncedAsTooLargeIsNotRead(t *testing.T) {
	s := limited(t, request.Limits{Body: 16})
	s.router.Post("/", func(c *megactx.Ctx) error {
		_, err := io.ReadAll(c.Request().Body)
		return err
	})
	body := strings.NewReader(strings.Repeat("x", 17))
	w := httptest.NewRecorder()
	s.router.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/", body))
	if w.Code != 413 || body.Len() != 17 {
		t.Errorf("got %d, and %d bytes are left of 17", w.Code, body.Len())
	}
}

func TestLimitsChangeForTheNextRequest(t *testing.T) {
	s := limited(t, request.Limits{Body: 4})
	s.router.Post("/", func(c *megactx.Ctx) error {
		_, err := io.ReadAll(c.Request().Body)
		return err
	})
	for _, x := range []struct {
		body   int64
		status int
	}{{4, 413}, {8, 204}, {-1, 204}, {0, 204}} {
		if err := s.host.SetLimits(request.Limits{Body: x.body}); err != nil {
			t.Fatal(err)
		}
		if w := s.ask("POST", "/", "12345"); w.Code != x.status {
			t.Errorf("with %d bytes: got %d, want %d", x.body, w.Code, x.status)
		}
	}
}

func TestLimitsThatCannotBeAreRefused(t *testing.T) {
	s := limited(t, request.Limits{Body: 4})
	for _, l := range []request.Limits{{Timeout: -1}, {Origins: []string{"shop.example"}}, {Origins: []string{"https://a.example/path"}}} {
		if err := s.host.SetLimits(l); err == nil {
			t.Errorf("%+v was taken", l)
		}
	}
	s.router.Post("/", func(c *megactx.Ctx) error {
		_, err := io.ReadAll(c.Request().Body)
		return err
	})
	if w := s.ask("POST", "/", "12345"); w.Code != 413 {
		t.Errorf("the limits of before are gone: got %d", w.Code)
	}
}

func TestTrustedSitesMayPost(t *testing.T) {
	s := limited(t, request.Limits{Origins: []string{"https://shop.example"}})
	s.router.Post("/", func(*megactx.Ctx) error { return nil })
	for origin, status := range map[string]int{"https://shop.example": 204, "https://evil.example": 403, "http://shop.example": 403} {
		if w := s.ask("POST", "/", "", "Origin: "+origin, "Sec-Fetch-Site: cross-site"); w.Code != status {
			t.Errorf("%s: got %d, want %d", origin, w.Code, status)
		}
	}
}

func TestARequestThatTakesTooLongIs504(t *testing.T) {
	for _, x := range []struct {
		name string
		do   func(c *megactx.Ctx) error
	}{
		{"its context's error", func(c *megactx.Ctx) error { <-c.Done(); return c.Err() }},
		{"the error of a descendant", func(c *megactx.Ctx) error {
			d, cancel := c.WithTimeout(time.Hour)
			defer cancel()
			<-d.Done()
			return fmt.Errorf("query: %w", d.Err())
		}},
		{"an error that says nothing of time", func(c *megactx.Ctx) error { <-c.Done(); return errors.New("canceled by user") }},
		{"a handler that does not look", func(*megactx.Ctx) error { time.Sleep(time.Minute); return errors.New("late") }},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := limited(t, request.Limits{Timeout: 2 * time.Second})
				s.router.Get("/", func(c *megactx.Ctx) error {
					if d, ok := c.Deadline(); !ok || time.Until(d) != 2*time.Second {
						t.Errorf("its deadline is in %v, %v", time.Until(d), ok)
					}
					err := x.do(c)
					if !errors.Is(c.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(c), context.DeadlineExceeded) {
						t.Errorf("its context ended with %v because of %v", c.Err(), context.Cause(c))
					}
					return err
				})
				if p := problemIn(t, s.ask("GET", "/", "", wantJSON)); p.Status != 504 || p.Code != "request.timeout" {
					t.Errorf("got %+v", p)
				}
			})
		})
	}
}

func TestALateAnswerIsStillTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, request.Limits{Timeout: time.Second})
		s.router.Get("/", func(c *megactx.Ctx) error {
			time.Sleep(time.Minute)
			return c.Text(200, "done")
		})
		if w := s.ask("GET", "/", ""); w.Code != 200 || w.Body.String() != "done" {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	})
}

func TestAPanicAfterTheTimeIsStillAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, request.Limits{Timeout: time.Second})
		s.router.Get("/", func(c *megactx.Ctx) error { <-c.Done(); panic("x") })
		if w := s.ask("GET", "/", ""); w.Code != 500 {
			t.Errorf("got %d", w.Code)
		}
	})
}

func TestAClientThatStopsSendingIsNotWaitedForLonger(t *testing.T) {
	s := limited(t, request.Limits{Timeout: 50 * time.Millisecond})
	s.router.Post("/raw", func(c *megactx.Ctx) error {
		_, err := io.ReadAll(c.Request().Body)
		return err
	})
	s.router.Post("/bind", func(c *megactx.Ctx) error { return c.Bind(&struct{}{}) })
	server := httptest.NewServer(s.router.Handler())
	defer server.Close()
	for _, path := range []string{"/raw", "/bind"} {
		sending, send := io.Pipe()
		go func() { _, _ = send.Write([]byte(`{"name":`)) }() // and no more
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+path, sending)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		_ = send.Close()
		if answer.StatusCode != 504 || !strings.Contains(string(text), "request.timeout") {
			t.Errorf("%s: got %d %s", path, answer.StatusCode, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// writing is a writer whose client sends its whole request before it receives anything.
type writing struct {
	http.ResponseWriter
	begun, received chan struct{}
}

func (*writing) EnableFullDuplex() error         { return nil }
func (*writing) SetReadDeadline(time.Time) error { return nil }

func (w *writing) Write(b []byte) (int, error) {
	close(w.begun)
	<-w.received
	return w.ResponseWriter.Write(b)
}

func TestAReadInFullDuplexDoesNotWaitForAWrite(t *testing.T) {
	s := limited(t, request.Limits{Timeout: time.Minute})
	w := &writing{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	received := sync.OnceFunc(func() { close(w.received) })
	s.router.Post("/", func(c *megactx.Ctx) error {
		if err := http.NewResponseController(c.Writer()).EnableFullDuplex(); err != nil {
			return err
		}
		var both sync.WaitGroup
		both.Go(func() { _, _ = c.Writer().Write([]byte("x")) })
		<-w.begun
		late := time.AfterFunc(10*time.Second, func() { t.Error("the read waits for the write"); received() })
		defer late.Stop()
		_, err := c.Request().Body.Read(make([]byte, 1))
		received()
		both.Wait()
		return err
	})
	s.router.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader("ab")))
	if line := s.last(t); line["status"] != 200.0 {
		t.Errorf("the log has %v", line)
	}
}
