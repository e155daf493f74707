package boot_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/lock"
)

// long is far above what a shutdown takes that does not wait for its budget,
// and far below that budget.
const long = 15 * time.Second

// stop stops a program and fails the test if that took its budget.
func stop(t *testing.T, r *boot.Running) {
	t.Helper()
	began := time.Now()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > long {
		t.Errorf("it took %v", took)
	}
}

func TestStreamsEndFirst(t *testing.T) {
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			return c.SSE(func(s *megactx.Stream) error {
				if err := s.Send("hello", "world"); err != nil {
					return err
				}
				<-s.Done()
				return s.Err()
			})
		})
	})))
	var all sync.WaitGroup
	begun := make(chan struct{})
	for range 3 {
		all.Go(func() { follow(t, r.Report().Apps[0].URL, begun) })
		<-begun
	}
	stop(t, r)
	all.Wait()
	http.DefaultClient.CloseIdleConnections()
}

// follow reads a stream from its first event to its end.
func follow(t *testing.T, url string, begun chan<- struct{}) {
	t.Helper()
	w, err := http.Get(url)
	if err != nil {
		t.Error(err)
		close(begun)
		return
	}
	defer func() { _ = w.Body.Close() }()
	lines := bufio.NewReader(w.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "hello") {
		t.Errorf("%q, %v", line, err)
	}
	begun <- struct{}{}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Errorf("the stream did not end as it should: %v", err)
	}
}

// Whoever is inside a lock finishes there, and whoever queues for it is served
// after that: all of them were accepted.
func TestHoldersFinishAndWaitersAreServed(t *testing.T) {
	g := newGate()
	p, _ := process()
	inside := 0
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			g.begun <- struct{}{}
			return c.Lock.With("product:1", func(c *megactx.Ctx) error {
				<-g.leave
				inside++ // guarded by the lock, which is what the race detector sees
				return c.Text(200, "done")
			})
		})
	})))
	var conns []net.Conn
	for range 10 {
		conn := dial(t, r.Report().Apps[0].URL)
		ask(t, conn)
		conns = append(conns, conn)
		<-g.begun
	}
	stopped := stopping(t, r)
	close(g.leave)
	for i, conn := range conns {
		if code, err := status(conn); code != 200 || err != nil {
			t.Errorf("request %d was answered %d, %v", i, code, err)
		}
	}
	if err := <-stopped; err != nil || inside != len(conns) {
		t.Errorf("%d were inside, %v", inside, err)
	}
}

func TestTasksAreWaitedForWhileLocksWork(t *testing.T) {
	d := &diary{}
	leave := make(chan struct{})
	p, _ := process()
	r := start(t, p, mega.App("main",
		mega.OnStop("flush", d.note("OnStop")),
		mega.Run("pump", func(ctx context.Context) { <-ctx.Done(); d.add("Run ends"); close(leave) }),
		mega.Routes(func(r megactx.Router) {
			r.Get("/", func(c *megactx.Ctx) error {
				c.Go("bill", func(c *megactx.Ctx) error {
					<-leave
					return c.Lock.With("bill", func(*megactx.Ctx) error { d.add("task, under a lock"); return nil })
				})
				return nil
			})
		})))
	get(t, r.Report().Apps[0].URL)
	stop(t, r)
	if want := []string{"Run ends", "task, under a lock", "OnStop"}; !slices.Equal(d.lines(), want) {
		t.Errorf("got %q, want %q", d.lines(), want)
	}
}

func TestTaskThatDoesNotEndIsCutOffAndNamed(t *testing.T) {
	p, _ := process("MEGA_SHUTDOWN_TIMEOUT=200ms")
	ended := make(chan error, 1)
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			c.Go("bill", func(c *megactx.Ctx) error { <-c.Done(); ended <- context.Cause(c); return nil })
			return nil
		})
	})))
	get(t, r.Report().Apps[0].URL)
	if err := r.Stop(); err == nil || !strings.Contains(err.Error(), "bill (") {
		t.Errorf("got %v, want the task's name", err)
	}
	if cause := <-ended; !errors.Is(cause, megactx.ErrShuttingDown) {
		t.Errorf("the task ended because of %v", cause)
	}
}

// A connection that a handler has taken over has no answer to wait for: its
// context ends at once, and what it leaves open is closed in the end.
func TestConnectionsThatWereTakenOverEnd(t *testing.T) {
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			conn, _, err := http.NewResponseController(c.Writer()).Hijack()
			if err != nil {
				return err
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			<-c.Done()
			_, _ = io.WriteString(conn, "bye: "+context.Cause(c).Error())
			return conn.Close()
		})
	})))
	conn := dial(t, r.Report().Apps[0].URL)
	ask(t, conn)
	if code, err := status(conn); code != 101 || err != nil {
		t.Fatal(code, err)
	}
	stop(t, r)
	if rest, err := io.ReadAll(conn); err != nil || !strings.Contains(string(rest), "bye: mega: shutting down") {
		t.Errorf("got %q, %v", rest, err)
	}
}

func TestConnectionThatNobodyEndsIsCutOffAndNamed(t *testing.T) {
	p, _ := process("MEGA_SHUTDOWN_TIMEOUT=200ms")
	left := make(chan net.Conn, 1)
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			conn, _, err := http.NewResponseController(c.Writer()).Hijack()
			left <- conn // and who cares for it now?
			return err
		})
	})))
	conn := dial(t, r.Report().Apps[0].URL)
	ask(t, conn)
	<-left
	if err := r.Stop(); err == nil || !strings.Contains(err.Error(), "connection from "+conn.LocalAddr().String()) {
		t.Errorf("got %v, want the connection's address", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("it is open")
	}
}

// Whoever has begun to send a request is waited for, and named when it is too
// late.
func TestHalfARequestIsWaitedForAndNamed(t *testing.T) {
	for name, x := range map[string]struct{ sent, rest, named string }{
		"half a head": {"POST / HTTP/1.1\r\nHost: x\r\n", "Content-Length: 4\r\n\r\nbody", "connection from "},
		"half a body": {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo", "dy", "POST / ("},
	} {
		app := mega.App("main", mega.Routes(func(r megactx.Router) {
			r.Post("/", func(c *megactx.Ctx) error {
				body, err := io.ReadAll(c.Request().Body)
				return errors.Join(err, c.Text(200, string(body)))
			})
		}))
		t.Run(name+", then the rest", func(t *testing.T) {
			p, _ := process()
			r := start(t, p, app)
			conn := dial(t, r.Report().Apps[0].URL)
			write(t, conn, x.sent)
			settle(t, r)
			stopped := stopping(t, r)
			write(t, conn, x.rest)
			if code, err := status(conn); code != 200 || err != nil {
				t.Errorf("it was answered %d, %v", code, err)
			}
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		})
		t.Run(name+", and no more", func(t *testing.T) {
			p, _ := process("MEGA_SHUTDOWN_TIMEOUT=800ms")
			r := start(t, p, app)
			conn := dial(t, r.Report().Apps[0].URL)
			write(t, conn, x.sent)
			settle(t, r)
			if err := r.Stop(); err == nil || !strings.Contains(err.Error(), x.named) {
				t.Errorf("got %v, want %q", err, x.named)
			}
		})
	}
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// settle has the server read what was sent before: it answers what is asked
// afterwards on another connection.
func settle(t *testing.T, r *boot.Running) {
	t.Helper()
	for range 30 { // on a busy machine it may do so late
		get(t, r.Report().Apps[0].URL+"/nothing")
	}
}

func TestStuckHandlerIsNamedWithTheLocksThatItHolds(t *testing.T) {
	g := newGate()
	p, stderr := process("MEGA_SHUTDOWN_TIMEOUT=100ms")
	stuck := make(chan struct{})
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Post("/orders/{id}", func(c *megactx.Ctx) error {
			return c.Lock.With("order:"+c.Param("id"), func(*megactx.Ctx) error {
				g.begun <- struct{}{}
				<-stuck // heeds nothing
				return nil
			}, lock.NoRenew())
		})
	})))
	conn := dial(t, r.Report().Apps[0].URL)
	write(t, conn, "POST /orders/7 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	<-g.begun
	began := time.Now()
	err := r.Stop()
	if err == nil || !strings.Contains(err.Error(), "POST /orders/7 (") || !strings.Contains(err.Error(), "locks held: order:7") {
		t.Errorf("got %v, want the route and the lock\n%s", err, stderr)
	}
	if took := time.Since(began); took > long {
		t.Errorf("it took %v", took)
	}
	if again := r.Stop(); again == nil || again.Error() != err.Error() {
		t.Errorf("asked again, it says %v", again)
	}
	close(stuck)
}

// Before it accepts nothing more, a program says for shutdown.delay that it is
// going: to whoever asks, and to clients that would use their connections again.
func TestDelayIsForOthersToNotice(t *testing.T) {
	const delay = 3 * time.Second // the test asks four times within it, on a busy machine too
	p, _ := process("MEGA_SHUTDOWN_DELAY=" + delay.String())
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	conn := dial(t, r.Report().Apps[0].URL)
	lines := bufio.NewReader(conn)
	answer := func() (status int, last bool) {
		ask(t, conn)
		w, err := http.ReadResponse(lines, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = w.Body.Close() }()
		_, _ = io.Copy(io.Discard, w.Body)
		return w.StatusCode, w.Close
	}
	if _, last := answer(); last {
		t.Error("the connection ends before the program does")
	}
	began := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	for {
		if status, _ := get(t, r.Report().Ops+"/readyz"); status == http.StatusServiceUnavailable {
			break
		}
	}
	if status, last := answer(); status != 200 || !last {
		t.Errorf("got %d, and the client is told to go elsewhere: %v", status, last)
	}
	if status, _ := get(t, r.Report().Apps[0].URL); status != 200 {
		t.Errorf("a new connection: %d", status)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("it took %v", took)
	}
}

// What asks for a connection while the queue is emptied is turned away as if
// nobody listened, not reset.
func TestNobodyIsLetInOnlyToBeReset(t *testing.T) {
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	addr := strings.TrimPrefix(r.Report().Apps[0].URL, "http://")
	lost := make(chan error, 8)
	over := make(chan struct{})
	for range cap(lost) {
		go func() {
			var err error
			for err == nil && !closed(over) {
				err = once(addr)
			}
			lost <- err
		}()
	}
	time.Sleep(50 * time.Millisecond)
	stop(t, r)
	close(over)
	for range cap(lost) {
		if err := <-lost; err != nil && !unheard(err) {
			t.Errorf("lost: %v", err)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// once asks on a connection of its own.
func once(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	w, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if w.StatusCode != 200 {
		return errors.New(w.Status)
	}
	return w.Body.Close()
}

// unheard says that nobody listened.
func unheard(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// The budget is for the whole end: a delay leaves at least half of it.
func TestDelayLeavesTimeForTheEnd(t *testing.T) {
	p, _ := process("MEGA_SHUTDOWN_DELAY=1h", "MEGA_SHUTDOWN_TIMEOUT=600ms")
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	stop(t, r)
}

func TestHandlerMayGoOnWhenItHasClosedItsConnection(t *testing.T) {
	over := make(chan error, 1)
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			conn, _, err := http.NewResponseController(c.Writer()).Hijack()
			if err != nil {
				return err
			}
			_ = conn.Close()
			over <- c.Lock.With("afterwards", func(*megactx.Ctx) error { return nil })
			return nil
		})
	})))
	conn := dial(t, r.Report().Apps[0].URL)
	ask(t, conn)
	if err := <-over; err != nil {
		t.Error(err)
	}
	stop(t, r)
}

func TestHeadsHaveABound(t *testing.T) {
	p, _ := process()
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	conn := dial(t, r.Report().Apps[0].URL)
	write(t, conn, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 100<<10)+"\r\n\r\n")
	if code, err := status(conn); code != http.StatusRequestHeaderFieldsTooLarge || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
}
