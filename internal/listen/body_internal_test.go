package listen

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
)

// oneConn is a listener with one connection.
type oneConn struct {
	net.Listener
	conns chan net.Conn
}

func (l oneConn) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (oneConn) Close() error   { return nil }
func (oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// serveOne serves one connection, of which it returns the client's side, until end. Its app
// has the routes of add.
func serveOne(t *testing.T, limits request.Limits, add func(*router.Router)) (there net.Conn, end func()) {
	t.Helper()
	host := &request.Host{App: request.App{Name: "main"}}
	if err := host.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
	routes := router.New(host)
	add(routes)
	s := NewServer("main", &Listener{}, routes.Handler(), slog.New(slog.DiscardHandler), host)
	here, there := net.Pipe()
	l := oneConn{conns: make(chan net.Conn, 1)}
	l.conns <- &conn{Conn: here, conns: s.conns}
	go func() { _ = s.http.Serve(l) }()
	return there, func() { close(l.conns); _ = s.http.Close() }
}

// net/http reads the rest of a body before it sends the head of an answer.
func TestClientThatDoesNotSendItsBodyIsAnsweredAfterTheTimeout(t *testing.T) {
	const timeout = 5 * time.Second
	for name, handler := range map[string]megactx.Handler{
		"short":  func(c *megactx.Ctx) error { return c.Text(200, "hello") },
		"long":   func(c *megactx.Ctx) error { return c.Text(200, strings.Repeat("hello", 10_000)) },
		"error":  func(*megactx.Ctx) error { return megactx.Error(418, "app.teapot", "no coffee") },
		"empty":  func(*megactx.Ctx) error { return nil },
		"stream": func(c *megactx.Ctx) error { return c.SSE(func(s *megactx.Stream) error { return s.Send("", "hello") }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				there, end := serveOne(t, request.Limits{Timeout: timeout}, func(routes *router.Router) {
					routes.Post("/", handler)
				})
				defer end()
				began := time.Now()
				_ = there.SetDeadline(began.Add(time.Hour))
				if _, err := io.WriteString(there, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				w, err := http.ReadResponse(bufio.NewReader(there), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, w.Body); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > timeout {
					t.Errorf("it took %v", took)
				}
				if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("the connection is open: %v", err)
				}
				if took := time.Since(began); took > timeout+time.Second {
					t.Errorf("it took %v to close the connection", took)
				}
			})
		})
	}
}

// net/http reads 256 KiB of a body that the handler has left, and detects a client that
// disconnects only after all of it. The heartbeat of the stream would, 15 s later.
func TestStreamEndsWithItsClientAfterALongBodyThatNobodyHasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		there, end := serveOne(t, request.Limits{}, func(routes *router.Router) {
			routes.Post("/", func(c *megactx.Ctx) error {
				defer close(over)
				return c.SSE(func(s *megactx.Stream) error { <-s.Done(); return s.Err() })
			})
		})
		defer end()
		const length = 512 << 10
		go func() {
			_, _ = fmt.Fprintf(there, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%*s", length, length, "")
		}()
		if _, err := http.ReadResponse(bufio.NewReader(there), nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		left := time.Now()
		_ = there.Close()
		<-over
		if took := time.Since(left); took > 0 {
			t.Errorf("the stream ended after %v", took)
		}
	})
}

// An upload that answers with its progress takes as long as the client needs.
func TestStreamMayReadItsRequestForLongerThanTheTimeout(t *testing.T) {
	for name, before := range map[string]int64{"from its start": 0, "from its second byte": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				there, end := serveOne(t, request.Limits{Timeout: time.Second}, func(routes *router.Router) {
					routes.Post("/", func(c *megactx.Ctx) error {
						if err := http.NewResponseController(c.Writer()).EnableFullDuplex(); err != nil {
							return err
						}
						if _, err := io.CopyN(io.Discard, c.Request().Body, before); err != nil {
							return err
						}
						return c.SSE(func(s *megactx.Stream) error {
							rest, err := io.ReadAll(c.Request().Body)
							return errors.Join(err, s.Send("", rest))
						})
					})
				})
				defer end()
				var client sync.WaitGroup
				defer client.Wait()
				client.Go(func() {
					_, _ = io.WriteString(there, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab")
					time.Sleep(time.Minute)
					_, _ = io.WriteString(there, "c")
				})
				w, err := http.ReadResponse(bufio.NewReader(there), nil)
				if err != nil {
					t.Fatal(err)
				}
				events, err := io.ReadAll(w.Body)
				if want := "data: " + "abc"[before:] + "\n"; err != nil || !strings.Contains(string(events), want) {
					t.Errorf("the events are %q (%v), want %q", events, err, want)
				}
			})
		})
	}
}

// net/http reads what the handler has left of the request before it ends the connection.
func TestFullDuplexThatLeavesItsRequestEndsTheConnection(t *testing.T) {
	aborted := errors.New("the upload is of no use")
	for name, c := range map[string]struct {
		read    int64
		timeout time.Duration
		answer  func(*megactx.Ctx) error
	}{
		"stream":                  {0, time.Second, func(c *megactx.Ctx) error { return c.SSE(func(*megactx.Stream) error { return aborted }) }},
		"stream, a part was read": {1, time.Second, func(c *megactx.Ctx) error { return c.SSE(func(*megactx.Stream) error { return aborted }) }},
		"stream without an error": {1, time.Second, func(c *megactx.Ctx) error { return c.SSE(func(*megactx.Stream) error { return nil }) }},
		"text":                    {0, time.Second, func(c *megactx.Ctx) error { return c.Text(200, "hello") }},
		"text, a part was read":   {1, time.Second, func(c *megactx.Ctx) error { return c.Text(200, "hello") }},
		"text without a timeout":  {1, 0, func(c *megactx.Ctx) error { return c.Text(200, "hello") }},
		"error":                   {1, time.Second, func(*megactx.Ctx) error { return aborted }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				there, end := serveOne(t, request.Limits{Timeout: c.timeout}, func(routes *router.Router) {
					routes.Post("/", func(ctx *megactx.Ctx) error {
						if err := http.NewResponseController(ctx.Writer()).EnableFullDuplex(); err != nil {
							return err
						}
						if _, err := io.CopyN(io.Discard, ctx.Request().Body, c.read); err != nil {
							return err
						}
						return c.answer(ctx)
					})
					routes.Get("/in", func(*megactx.Ctx) error {
						t.Error("the rest of a request is served as a request")
						return nil
					})
				})
				defer end()
				const rest = "GET /in HTTP/1.1\r\nHost: x\r\n\r\n"
				var client sync.WaitGroup
				defer client.Wait()
				client.Go(func() {
					_, _ = fmt.Fprintf(there, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\na", 1+len(rest))
					time.Sleep(5 * time.Second)
					_, _ = io.WriteString(there, rest)
				})
				began := time.Now()
				_ = there.SetReadDeadline(began.Add(time.Hour))
				if _, err := io.Copy(io.Discard, there); err != nil || time.Since(began) > 2*time.Second {
					t.Errorf("the connection ended after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

// A close at once would be a reset for the bytes that the client still sends, which
// overtakes the answer.
func TestConnectionIsNotClosedAtOnceUnderALongBodyThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there, end := serveOne(t, request.Limits{}, func(routes *router.Router) {
			routes.Post("/", func(*megactx.Ctx) error { return megactx.Error(418, "app.teapot", "no coffee") })
		})
		defer end()
		const length = 512 << 10
		var client sync.WaitGroup
		defer client.Wait()
		client.Go(func() {
			_, _ = fmt.Fprintf(there, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%*s", length, length, "")
		})
		answer := bufio.NewReader(there)
		w, err := http.ReadResponse(answer, nil)
		if err != nil || w.StatusCode != 418 {
			t.Fatal(w, err)
		}
		answered := time.Now()
		if _, err := io.Copy(io.Discard, answer); err != nil {
			t.Error(err)
		}
		if time.Since(answered) == 0 {
			t.Error("the connection is closed at once")
		}
	})
}
