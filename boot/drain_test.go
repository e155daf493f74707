package boot_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/testkit/output"
)

// gate is an app whose only handler says that it has begun and waits to be let
// go, or to be told to end.
type gate struct{ begun, leave chan struct{} }

func newGate() *gate {
	return &gate{begun: make(chan struct{}, 100), leave: make(chan struct{})}
}

func (g *gate) app() mega.Option {
	return mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			g.begun <- struct{}{}
			select {
			case <-g.leave:
				return c.Text(200, "done")
			case <-c.Done():
				return c.Err()
			}
		})
	}))
}

// dial sends a request and returns the connection with the answer to come.
func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	addr := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

func ask(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

func status(conn net.Conn) (int, error) {
	w, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return w.StatusCode, w.Body.Close()
}

// stopping stops a program in the background and waits until it accepts
// nothing any more.
func stopping(t *testing.T, r *boot.Running) <-chan error {
	t.Helper()
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	addr := strings.TrimPrefix(r.Report().Apps[0].URL, "http://")
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return stopped
		}
		_ = conn.Close()
		if time.Since(began) > 10*time.Second {
			t.Fatal("it goes on accepting")
		}
	}
}

func TestRequestsInFlightAreFinished(t *testing.T) {
	g := newGate()
	p, _ := process()
	r := start(t, p, g.app())
	conn := dial(t, r.Report().Apps[0].URL)
	ask(t, conn)
	<-g.begun
	stopped := stopping(t, r)
	select {
	case err := <-stopped:
		t.Fatalf("it stopped over a request: %v", err)
	default:
	}
	close(g.leave)
	if code, err := status(conn); code != 200 || err != nil {
		t.Errorf("the request was answered %d, %v", code, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestRequestsThatTakeTooLongAreCutOffAndNamed(t *testing.T) {
	g := newGate()
	p, stderr := process("MEGA_SHUTDOWN_TIMEOUT=100ms")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	url := make(chan string, 1)
	go func() { ended <- boot.Main(ctx, p, g.app(), mega.OnStart("x", func(context.Context) {})) }()
	go func() { url <- served(stderr) }()
	conn := dial(t, <-url)
	ask(t, conn)
	<-g.begun
	stop()
	if code, err := status(conn); code != 503 || err != nil {
		t.Errorf("the request was answered %d, %v, want 503", code, err)
	}
	if code := <-ended; code != failure.ExitCut || !strings.Contains(stderr.String(), "main: cut off 1 in flight: GET / (") {
		t.Errorf("exit status %d, want %d and the request's name:\n%s", code, failure.ExitCut, stderr)
	}
}

// served waits for the report and returns where the app is.
func served(stderr *output.Buffer) string {
	for {
		if _, after, ok := strings.Cut(stderr.String(), `"app":"main","url":"`); ok {
			url, _, _ := strings.Cut(after, `"`)
			return url
		}
		time.Sleep(time.Millisecond)
	}
}

// A connection that was accepted, or that waits in the listener's queue, has
// been promised an answer. http.Server.Shutdown alone resets it.
func TestNoConnectionIsLostToTheShutdown(t *testing.T) {
	for range 5 {
		p, _ := process()
		r := start(t, p, mega.App("main", mega.Routes(hello)))
		const many = 50
		conns := make([]net.Conn, many)
		for i := range conns {
			conns[i] = dial(t, r.Report().Apps[0].URL)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- r.Stop() }()
		errs := make([]error, many)
		var all sync.WaitGroup
		for i, conn := range conns {
			all.Go(func() {
				_, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				code, err2 := status(conn)
				if err != nil || err2 != nil || code != 200 {
					errs[i] = fmt.Errorf("connection %d: %d, %w", i, code, errors.Join(err, err2))
				}
			})
		}
		all.Wait()
		if err := errors.Join(errors.Join(errs...), <-stopped); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIdleConnectionsDoNotHoldUpTheEnd(t *testing.T) {
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	idle, silent := dial(t, r.Report().Apps[0].URL), dial(t, r.Report().Apps[0].URL)
	ask(t, idle)
	if code, err := status(idle); code != 200 || err != nil {
		t.Fatal(code, err)
	}
	began := time.Now()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second { // far below shutdown.timeout, far above what it takes
		t.Errorf("it took %v", took)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the connection that said nothing is open")
	}
}

// A pipelined request comes out of a buffer, on a connection whose state is idle
// for net/http.
func TestPipelinedRequestInFlightIsFinished(t *testing.T) {
	g := newGate()
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(hello), mega.Routes(func(r megactx.Router) {
		r.Get("/gate", func(c *megactx.Ctx) error {
			g.begun <- struct{}{}
			<-g.leave
			return c.Text(200, "done")
		})
	})))
	conn := dial(t, r.Report().Apps[0].URL)
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /gate HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-g.begun
	stopped := stopping(t, r)
	time.Sleep(time.Second) // longer than an idle connection is kept open
	close(g.leave)
	answers := bufio.NewReader(conn)
	for i := range 2 {
		w, err := http.ReadResponse(answers, nil)
		if err != nil || w.StatusCode != 200 {
			t.Fatalf("answer %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, w.Body)
		_ = w.Body.Close()
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Of pipelined requests, those are done that are answered, and no other: their
// client sends the rest again.
func TestPipelinedRequestsAreDoneIfTheyAreAnswered(t *testing.T) {
	const many = 20
	var done atomic.Int32
	begun := make(chan struct{}, many)
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			begun <- struct{}{}
			time.Sleep(20 * time.Millisecond)
			done.Add(1)
			return c.Text(200, "done")
		})
	})))
	conn := dial(t, r.Report().Apps[0].URL)
	if _, err := fmt.Fprint(conn, strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", many)); err != nil {
		t.Fatal(err)
	}
	<-begun
	<-begun
	stop(t, r)
	time.Sleep(50 * time.Millisecond) // for a client that reads late
	answered, last := int32(0), false
	for answers := bufio.NewReader(conn); ; answered++ {
		w, err := http.ReadResponse(answers, nil)
		if err != nil {
			break
		}
		if _, err := io.Copy(io.Discard, w.Body); err != nil {
			t.Error(err)
		}
		_ = w.Body.Close()
		last = w.Close
	}
	if answered != done.Load() || answered < 2 || answered == many || !last {
		t.Errorf("%d answered, %d done; the last one says so: %v", answered, done.Load(), last)
	}
}

func TestKeptAliveHTTP10ConnectionEndsWithAnAnswer(t *testing.T) {
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	conn := dial(t, r.Report().Apps[0].URL)
	answers := bufio.NewReader(conn)
	ask10 := func() *http.Response {
		t.Helper()
		if _, err := fmt.Fprint(conn, "GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		w, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, w.Body)
		_ = w.Body.Close()
		return w
	}
	if w := ask10(); w.StatusCode != 200 || w.Header.Get("Connection") != "keep-alive" {
		t.Fatalf("%s, %q", w.Status, w.Header)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	for w := ask10(); w.Header.Get("Connection") == "keep-alive"; w = ask10() { // until the end has begun
	}
	if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection goes on: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A client that has sent the beginning of a request, and sends no more, does not
// hold up the end until its budget is over.
func TestIncompleteRequestsDoNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	after, first := dial(t, r.Report().Apps[0].URL), dial(t, r.Report().Apps[0].URL)
	ask(t, after)
	if code, err := status(after); code != 200 || err != nil {
		t.Fatal(code, err)
	}
	for _, conn := range []net.Conn{after, first} {
		if _, err := fmt.Fprint(conn, "G"); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, r)
}
