package listen_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
)

// serve serves an app with these routes.
func serve(t *testing.T, routes func(megactx.Router)) *listen.Server {
	t.Helper()
	s := limited(t, 0, routes)
	t.Cleanup(func() { _ = s.Drain(ended()) })
	return s
}

// limited serves an app with these routes, and accepts n connections at a time; 0 for
// no limit. The caller drains the server, once.
func limited(t *testing.T, n int, routes func(megactx.Router)) *listen.Server {
	t.Helper()
	l, err := listen.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	host := &request.Host{App: request.App{Name: "main"}, Log: log}
	router := router.New(host)
	routes(router)
	s := listen.NewServer("main", l, router.Handler(), log, host)
	s.Limit(n, log)
	s.Serve(func(err error) { t.Error(err) })
	return s
}

// ended is a context without time left.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// budget is far above the time of a drain that does not use it up.
const budget = 30 * time.Second

// drain drains a server in less than its budget.
func drain(t *testing.T, s *listen.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	if err := s.Drain(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("drain: %v, %v", err, ctx.Err())
	}
}

// dial sends the head of a request on a new connection.
func dial(t *testing.T, s *listen.Server, head string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * budget))
	if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\n", head); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func TestDrainEndsAStreamInOrder(t *testing.T) {
	cause := make(chan error, 1)
	s := serve(t, func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			return c.SSE(func(s *megactx.Stream) error {
				if err := s.Send("hello", "world"); err != nil {
					return err
				}
				<-s.Done()
				cause <- context.Cause(s)
				return s.Err()
			})
		})
	})
	w, err := http.Get(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	if line, err := bufio.NewReader(w.Body).ReadString('\n'); err != nil || !strings.Contains(line, "hello") {
		t.Fatalf("%q, %v", line, err)
	}
	drain(t, s)
	if err := <-cause; !errors.Is(err, megactx.ErrShuttingDown) {
		t.Errorf("the stream's context ended because of %v", err)
	}
	if _, err := io.Copy(io.Discard, w.Body); err != nil {
		t.Errorf("the client sees no orderly end: %v", err)
	}
}

// A stream ends although its handler is blocked in Send.
func TestDrainEndsAStreamWhoseClientReadsNothing(t *testing.T) {
	blocked := make(chan struct{}, 1)
	s := serve(t, func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			return c.SSE(func(s *megactx.Stream) error {
				text := strings.Repeat("x", 1<<20)
				for {
					timer := time.AfterFunc(200*time.Millisecond, func() { blocked <- struct{}{} })
					err := s.Send("much", text)
					if !timer.Stop() || err != nil {
						return err
					}
				}
			})
		})
	})
	conn, _ := dial(t, s, "GET /")
	send(t, conn, "\r\n")
	<-blocked
	drain(t, s)
}

// The request of a stream may be in the listener's queue when the drain begins.
func TestStreamThatBeginsDuringADrainEndsAtOnce(t *testing.T) {
	begun, leave := make(chan struct{}), make(chan struct{})
	s := serve(t, func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			close(begun)
			<-leave
			return c.SSE(func(s *megactx.Stream) error { <-s.Done(); return s.Err() })
		})
	})
	conn, lines := dial(t, s, "GET /")
	send(t, conn, "\r\n")
	<-begun
	time.AfterFunc(300*time.Millisecond, func() { close(leave) })
	drain(t, s)
	w, err := http.ReadResponse(lines, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, w.Body); err != nil {
		t.Errorf("the client sees no orderly end: %v", err)
	}
	_ = w.Body.Close()
}

func hijack(c *megactx.Ctx) (net.Conn, error) {
	conn, _, err := http.NewResponseController(c.Writer()).Hijack()
	if err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	}
	return conn, err
}

func switched(t *testing.T, lines *bufio.Reader) {
	t.Helper()
	w, err := http.ReadResponse(lines, nil)
	if err != nil || w.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(w, err)
	}
}

func TestDrainEndsTheContextOfAHijackedConnection(t *testing.T) {
	s := serve(t, func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			conn, err := hijack(c)
			if err != nil {
				return err
			}
			<-c.Done()
			_, err = io.WriteString(conn, "bye: "+context.Cause(c).Error())
			return errors.Join(err, conn.Close())
		})
	})
	conn, lines := dial(t, s, "GET /")
	send(t, conn, "\r\n")
	switched(t, lines)
	drain(t, s)
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "bye: "+megactx.ErrShuttingDown.Error() {
		t.Errorf("got %q, %v", rest, err)
	}
}

// The handler has returned, and a goroutine of the program reads on.
func TestHijackedConnectionIsClosedWhenTheBudgetEnds(t *testing.T) {
	read := make(chan error, 1)
	s := serve(t, func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			conn, err := hijack(c)
			go func() { _, err := conn.Read(make([]byte, 1)); read <- err }()
			return err
		})
	})
	conn, lines := dial(t, s, "GET /")
	send(t, conn, "\r\n")
	switched(t, lines)
	err := s.Drain(ended())
	if err == nil || !strings.Contains(err.Error(), "connection from "+conn.LocalAddr().String()) {
		t.Errorf("got %v, want the connection's address", err)
	}
	if _, err := lines.ReadByte(); err == nil {
		t.Error("the connection is open")
	}
	if err := <-read; err == nil {
		t.Error("the program can read from it")
	}
}

// Connections that wait for a request are not in the error for requests that
// were cut off.
func TestOnlyConnectionsInUseAreCutOff(t *testing.T) {
	s := serve(t, func(r megactx.Router) { r.Get("/", func(c *megactx.Ctx) error { return c.Text(200, "hello") }) })
	idle, lines := dial(t, s, "GET /")
	send(t, idle, "\r\n")
	if w, err := http.ReadResponse(lines, nil); err != nil || w.StatusCode != 200 {
		t.Fatal(w, err)
	}
	half, _ := dial(t, s, "GET /")
	other, otherLines := dial(t, s, "GET /") // its response shows that the half request has arrived
	send(t, other, "\r\n")
	if w, err := http.ReadResponse(otherLines, nil); err != nil || w.StatusCode != 200 {
		t.Fatal(w, err)
	}
	err := s.Drain(ended())
	if err == nil || !strings.Contains(err.Error(), "cut off 1 in flight: connection from "+half.LocalAddr().String()) {
		t.Errorf("got %v, want the connection with half a request alone", err)
	}
	for _, conn := range []net.Conn{idle, half, other} {
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Errorf("%v is open", conn.LocalAddr())
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// The end of the connection is the end of an HTTP/1.0 answer. nginx asks an app in this
// version unless its configuration has another one.
func TestPartOfAnAnswerIsIncompleteInHTTP10(t *testing.T) {
	broken := errors.New("broken")
	part := func(c *megactx.Ctx, err error) error {
		_, _ = io.WriteString(c.Writer(), "data: part\n\n")
		return cmp.Or(http.NewResponseController(c.Writer()).Flush(), err)
	}
	stream := func(c *megactx.Ctx, err error) error {
		return c.SSE(func(s *megactx.Stream) error { return cmp.Or(s.Send("", "part"), err) })
	}
	leave := make(chan struct{})
	s := limited(t, 0, func(r megactx.Router) {
		r.Get("/error", func(c *megactx.Ctx) error { return part(c, broken) })
		r.Get("/panic", func(c *megactx.Ctx) error { panic(part(c, broken)) })
		r.Get("/goexit", func(c *megactx.Ctx) error { defer runtime.Goexit(); return part(c, nil) })
		r.Get("/stream", func(c *megactx.Ctx) error { return stream(c, broken) })
		r.Get("/cut", func(c *megactx.Ctx) error { defer func() { <-leave }(); return part(c, nil) })
		r.Get("/whole", func(c *megactx.Ctx) error { return part(c, nil) })
		r.Get("/wholestream", func(c *megactx.Ctx) error { return stream(c, nil) })
		r.Get("/hijacked", func(c *megactx.Ctx) error {
			conn, err := hijack(c)
			if err != nil {
				return err
			}
			_, err = io.WriteString(conn, "data: part\n\n")
			return errors.Join(err, conn.Close())
		})
	})
	defer close(leave)
	for _, path := range []string{"/error", "/panic", "/goexit", "/stream", "/whole", "/wholestream", "/hijacked", "/cut"} {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * budget))
		send(t, conn, "GET "+path+" HTTP/1.0\r\n\r\n")
		lines := bufio.NewReader(conn)
		for line := ""; err == nil && line != "data: part\n"; {
			line, err = lines.ReadString('\n')
		}
		if err != nil {
			t.Fatal(path, err)
		}
		if path == "/cut" {
			_ = s.Drain(ended())
		}
		whole := strings.HasPrefix(path, "/whole") || path == "/hijacked"
		if _, err := io.Copy(io.Discard, lines); isTimeout(err) || (err == nil) != whole {
			t.Errorf("%s ended with %v", path, err)
		}
		_ = conn.Close()
	}
}

// nginx asks for the close of each connection unless its configuration keeps them alive.
// It takes a reset while it sends for a failure of the app.
func TestRefusalOfABodyIsReadBeforeTheClose(t *testing.T) {
	s := serve(t, func(r megactx.Router) {
		r.Post("/", func(*megactx.Ctx) error { return megactx.Error(429, "app.no", "not now") })
		r.Post("/part", func(c *megactx.Ctx) error {
			_, _ = c.Request().Body.Read(make([]byte, 1)) // answers Expect with 100
			return megactx.Error(429, "app.no", "not now")
		})
	})
	const length = 50_000
	for head, sent := range map[string]int{
		"/ HTTP/1.0": length,
		"/ HTTP/1.1\r\nHost: x\r\nConnection: close":                             length,
		"/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue":     0,
		"/part HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue": length,
	} {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * budget))
		if _, err := fmt.Fprintf(conn, "POST %s\r\nContent-Length: %d\r\n\r\n%s", head, length, strings.Repeat("x", sent)); err != nil {
			t.Errorf("%s: send: %v", head, err)
		}
		all, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(all), "app.no") {
			t.Errorf("%s: got %q, %v", head, all, err)
		}
		_ = conn.Close()
	}
}

// A handler often closes the body that it has read. Nothing is left that could reset the
// connection, so its close does not wait for half a second.
func TestABodyThatWasReadDelaysNoClose(t *testing.T) {
	fastest := time.Duration(1<<63 - 1)
	for range 5 { // a busy machine delays some of them
		s := limited(t, 0, func(r megactx.Router) {
			r.Post("/", func(c *megactx.Ctx) error {
				_, err := io.Copy(io.Discard, c.Request().Body)
				return errors.Join(err, c.Request().Body.Close())
			})
		})
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		send(t, conn, "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello")
		if _, err := io.ReadAll(conn); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		if err := s.Drain(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		fastest = min(fastest, time.Since(began))
	}
	if fastest > 400*time.Millisecond {
		t.Errorf("the connection closed after %v", fastest)
	}
}
