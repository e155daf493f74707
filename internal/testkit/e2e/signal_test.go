//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
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

// child is a program in a process of its own.
type child struct {
	cmd    *exec.Cmd
	stderr io.Closer
	lines  chan string // of standard error, until its end

	mu   sync.Mutex // guards told
	told bytes.Buffer
}

func startChild(t *testing.T, name string, environ ...string) *child {
	t.Helper()
	return startProgram(t, os.Args[0], name, environ...)
}

// startProgram is startChild with the path of this executable, or of a copy.
func startProgram(t *testing.T, path, name string, environ ...string) *child {
	t.Helper()
	cmd := exec.Command(path)
	cmd.Env = append([]string{
		childProgram + "=" + name, "MEGA_ENV=production", "MEGA_LOG_FORMAT=json",
		"MEGA_APPS_MAIN_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0", "TMPDIR=" + shortdir.New(t),
	}, environ...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, stderr: stderr, lines: make(chan string)}
	late := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() })
	over := make(chan struct{})
	t.Cleanup(func() {
		late.Stop()
		_ = cmd.Process.Kill() // it has ended, unless the test failed
		close(over)
	})
	go c.read(stderr, over)
	return c
}

// read passes the lines of the child on to who wants them.
func (c *child) read(stderr io.Reader, over <-chan struct{}) {
	defer close(c.lines)
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		c.mu.Lock()
		c.told.WriteString(lines.Text() + "\n")
		c.mu.Unlock()
		select {
		case c.lines <- lines.Text():
		case <-over:
		}
	}
}

func (c *child) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told.String()
}

// until waits for a line with text in it.
func (c *child) until(t *testing.T, text string) string {
	t.Helper()
	for line := range c.lines {
		if strings.Contains(line, text) {
			return line
		}
	}
	t.Fatalf("the child did not say %q:\n%s", text, c)
	return ""
}

// address waits until the program serves.
func (c *child) address(t *testing.T) string {
	t.Helper()
	_, after, ok := strings.Cut(c.until(t, `"msg":"boot.report"`), `"url":"http://`)
	if !ok {
		t.Fatalf("no address:\n%s", c)
	}
	addr, _, _ := strings.Cut(after, `"`)
	return addr
}

func (c *child) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// end waits for the end and returns the exit status.
func (c *child) end(t *testing.T) int {
	t.Helper()
	for range c.lines { // read to the end before Wait closes the pipe
	}
	if _, exited := errors.AsType[*exec.ExitError](c.cmd.Wait()); exited {
		return c.cmd.ProcessState.ExitCode()
	}
	return 0
}

func TestSignalInAnyPhaseOfTheBootEndsIt(t *testing.T) {
	for phase, environ := range map[string][]string{
		"server":      {"MEGA_CACHE_MAIN_URL=redis://127.0.0.1:1", "MEGA_BOOT_WAIT_FOR=60s"},
		"constructor": nil, "primary": nil, "start": nil, "run": nil,
	} {
		t.Run(phase, func(t *testing.T) {
			c := startChild(t, phase, environ...)
			if phase == "server" {
				c.until(t, "waiting for the server")
			} else {
				c.until(t, "in "+phase)
			}
			began := time.Now()
			c.signal(t, syscall.SIGTERM)
			if status := c.end(t); status != 0 || strings.Contains(c.String(), "it went on") {
				t.Errorf("exit status %d:\n%s", status, c)
			}
			if phase != "server" && !strings.Contains(c.String(), "out of "+phase) {
				t.Errorf("what had begun was not ended:\n%s", c)
			}
			if took := time.Since(began); took > 25*time.Second { // below shutdown.timeout
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestHangupReadsTheConfigurationAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mega.config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {level: info}\n")
	c := startChild(t, "settings", "MEGA_CONFIG="+file)
	addr := c.address(t)
	ask := func() {
		t.Helper()
		w, err := http.Get("http://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Body.Close()
		c.until(t, `"msg":"request"`)
	}
	defer http.DefaultClient.CloseIdleConnections()
	ask()
	if strings.Contains(c.String(), "a detail") {
		t.Errorf("the level is not in force:\n%s", c)
	}
	write("log: {level: debug}\nlock: {ttl: 20s}\n")
	c.signal(t, syscall.SIGHUP)
	c.until(t, `restart to apply it","key":"lock.ttl"`)
	c.until(t, `configuration changed","key":"log.level"`)
	ask()
	if !strings.Contains(c.String(), "a detail") {
		t.Errorf("the new level is not in force:\n%s", c)
	}
	write("log: {level: loud}\n")
	c.signal(t, syscall.SIGHUP)
	c.until(t, "configuration reload refused")
	ask()
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

func TestHangupInDevIsTheEnd(t *testing.T) {
	c := startChild(t, "settings", "MEGA_ENV=dev", "MEGA_LOG_FORMAT=json")
	c.address(t)
	c.signal(t, syscall.SIGHUP)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// Ctrl-C also ends the reader of a log in a pipeline, and so does a terminal that
// closes.
func TestShutdownOutlivesTheReaderOfItsLog(t *testing.T) {
	for _, workers := range []string{"1", "2"} {
		for env, signal := range map[string]syscall.Signal{"production": syscall.SIGINT, "dev": syscall.SIGHUP} {
			t.Run(workers+" processes, "+signal.String(), func(t *testing.T) {
				c := startWorkers(t, "settings", workers, "MEGA_ENV="+env)
				c.address(t)
				if err := c.stderr.Close(); err != nil {
					t.Fatal(err)
				}
				c.signal(t, signal)
				if status := c.end(t); status != 0 {
					t.Errorf("%v", c.cmd.ProcessState)
				}
			})
		}
	}
}

// A script without job control starts its background processes with SIGINT ignored. The
// program follows the signal from when it has begun to run: what the kernel has
// discarded before is lost.
func TestInterruptIsFollowedAlsoWhereItWasIgnoredAtTheStart(t *testing.T) {
	for _, workers := range []string{"1", "3"} {
		signal.Ignore(syscall.SIGINT) // the child inherits it
		c := startWorkers(t, "settings", workers)
		signal.Reset(syscall.SIGINT)
		c.address(t)
		c.signal(t, syscall.SIGINT)
		if status := c.end(t); status != 0 || !strings.Contains(c.String(), `"msg":"stopped"`) {
			t.Errorf("%s processes: exit status %d:\n%s", workers, status, c)
		}
	}
}

// Outside of env dev a program goes on when its terminal closes, and so do the
// workers that are started later.
func TestNewWorkersOutliveTheReaderOfTheLog(t *testing.T) {
	c := startWorkers(t, "settings", "2", "MEGA_LOG_LEVEL=info")
	report, ready := c.await(t, "boot.report", 1)[0], c.records("worker ready")
	w, url := watched{c, report.Report.Ops}, report.Report.Apps[0].URL
	defer http.DefaultClient.CloseIdleConnections()
	if err := c.stderr.Close(); err != nil {
		t.Fatal(err)
	}
	c.signal(t, syscall.SIGHUP)
	until := func(what string, so func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never: %s", what)
			}
		}
	}
	for _, worker := range []string{"1", "2"} {
		until("a reload of worker "+worker, func() bool {
			_, _, page := w.see(t, "/ops/boot?worker="+worker)
			return strings.Contains(page, `"reload":`)
		})
	}
	for _, r := range ready {
		kill(t, r.PID)
	}
	replaced := func() bool {
		_, _, page := w.see(t, "/ops/workers")
		return strings.Count(page, `"state":"ready"`) == 2 && strings.Count(page, `"restarts":1,`) == 2
	}
	until("two new workers", replaced)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 20 { // each is a line of the log
		a, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
	}
	if !replaced() {
		t.Error("a worker has died")
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("%v", c.cmd.ProcessState)
	}
}

// As behind a pager, or a collector that hangs. The shutdown may wait for it, and
// the second signal may not.
func TestSecondSignalOutlivesAReaderThatHasStopped(t *testing.T) {
	for _, workers := range []string{"1", "2"} {
		t.Run(workers+" processes", func(t *testing.T) {
			c := startWorkers(t, "settings", workers, "MEGA_LOG_LEVEL=info")
			url := "http://" + c.address(t) + "/?" + strings.Repeat("a", 4<<10) // in the log
			client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			for { // until the pipe is full
				w, err := client.Get(url)
				if err != nil {
					break
				}
				_ = w.Body.Close()
			}
			c.signal(t, syscall.SIGTERM)
			late := time.AfterFunc(25*time.Second, func() { _ = c.cmd.Process.Kill() })
			defer late.Stop()
			ended := make(chan struct{})
			var state *os.ProcessState
			var err error
			go func() {
				defer close(ended)
				state, err = c.cmd.Process.Wait()
			}()
			// Two signals that come together are one request, and a loaded machine
			// delivers them together, so the second one is sent until it counts.
			again := time.NewTicker(300 * time.Millisecond)
			defer again.Stop()
			for waiting := true; waiting; {
				select {
				case <-again.C:
					_ = c.cmd.Process.Signal(syscall.SIGTERM)
				case <-ended:
					waiting = false
				}
			}
			if err != nil || state.ExitCode() != 128+int(syscall.SIGTERM) {
				t.Errorf("it ended with %v, %v", state, err)
			}
		})
	}
}

// The promise of the shutdown, kept under load in a process of its own: whatever
// was accepted is answered, what was answered was done, no lock is left, and the
// end comes by itself.
func TestNothingIsLostToAShutdownUnderLoad(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	answered := 0
	for round := range max(suite.Scaled(25), 5) {
		c := startChild(t, "shop", "MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_LOG_LEVEL=info")
		l := startLoad(c.address(t))
		go func() {
			for range c.lines { // it writes a line for each request
			}
		}()
		time.Sleep(time.Duration(50+rand.IntN(150)) * time.Millisecond)
		began := time.Now()
		c.signal(t, syscall.SIGTERM)
		status := c.end(t)
		took := time.Since(began)
		l.end()
		answered += int(l.answered.Load())
		if status != 0 || took > 25*time.Second { // below shutdown.timeout
			t.Fatalf("round %d: exit status %d after %v:\n%s", round, status, took, lastLines(c.String(), 20))
		}
		if err := l.lost(); err != nil {
			t.Errorf("round %d: %d answered, %d raced with the end of an idle connection; lost: %v", round, l.answered.Load(), l.raced.Load(), err)
		}
		sold, err := server.Do("GET", "sold")
		if err != nil || fmt.Sprint(sold) != strconv.Itoa(answered) {
			t.Errorf("round %d: %v sold, %d answered, %v", round, sold, answered, err)
		}
		for id := range products {
			key := fmt.Sprintf("mega:{product:%d}", id)
			for _, left := range [][]any{{"EXISTS", key}, {"ZCARD", key + ":queue"}, {"HLEN", key + ":tickets"}} {
				if n, err := server.Do(left...); err != nil || fmt.Sprint(n) != "0" {
					t.Errorf("round %d: %q: %v, %v", round, left, n, err)
				}
			}
		}
	}
	if answered == 0 {
		t.Error("there was no load")
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// products are so few that their locks are always contended.
const products = 4

// load is clients that buy for as long as they are let in.
type load struct {
	addr            string
	think           time.Duration // at most so long between an answer and the next request
	clients         sync.WaitGroup
	over            atomic.Bool
	answered, raced atomic.Int64
	refused         atomic.Int64 // until the load was told to end

	mu   sync.Mutex // guards errs
	errs []error
}

func startLoad(addr string) *load {
	l := &load{addr: addr}
	for range 6 {
		l.clients.Go(func() { l.buy(1) })
	}
	for range 6 {
		l.clients.Go(func() { l.buy(50) })
	}
	return l
}

// serves waits until a client has been answered.
func (l *load) serves(t *testing.T) {
	t.Helper()
	for began := time.Now(); l.answered.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatal("no client has been answered")
		}
	}
}

// end ends the clients: all of them have been turned away.
func (l *load) end() {
	l.over.Store(true)
	l.clients.Wait()
}

func (l *load) lost() error { return errors.Join(l.errs...) }

// buy asks so often on each connection, until nobody listens.
func (l *load) buy(each int) {
	for !l.over.Load() {
		began := time.Now()
		conn, err := net.DialTimeout("tcp", l.addr, 10*time.Second)
		if err != nil {
			l.refused.Add(1)
			return // it was promised nothing
		}
		err = l.on(conn, began, each)
		_ = conn.Close()
		if err != nil {
			l.mu.Lock()
			l.errs = append(l.errs, err)
			l.mu.Unlock()
		}
	}
}

// silence is the time for which a server that shuts down keeps a connection open
// whose client has sent nothing since the connection was made or since the last
// answer.
const silence = 500 * time.Millisecond

// on sends requests on one connection. A request that is sent within silence of
// the previous one is promised an answer; a later one may cross the close of an
// idle connection, as on any server.
func (l *load) on(conn net.Conn, began time.Time, times int) error {
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	answers := bufio.NewReader(conn)
	previous := began
	for i := range times {
		if i > 0 && l.think > 0 {
			time.Sleep(rand.N(l.think))
		}
		if err := ask(conn); err != nil {
			return l.late(previous, time.Now(), i, err)
		}
		sent := time.Now()
		last, begun, err := answer(answers)
		switch {
		case err != nil && !begun:
			return l.late(previous, sent, i, err)
		case err != nil:
			return fmt.Errorf("request %d of its connection: %w", i, err)
		}
		l.answered.Add(1)
		if last {
			return nil
		}
		previous = sent
	}
	return nil
}

// late counts a request that was sent too late to be promised an answer, and
// returns the error of any other one.
func (l *load) late(previous, sent time.Time, i int, err error) error {
	if sent.Sub(previous) > silence {
		l.raced.Add(1)
		return nil
	}
	return fmt.Errorf("request %d of its connection, %v after the previous one: %w", i, sent.Sub(previous), err)
}

func ask(conn net.Conn) error {
	_, err := fmt.Fprintf(conn, "POST /sell/%d HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n", rand.IntN(products))
	return err
}

// answer reads an answer, and reports whether it is the last one of its
// connection, and whether one has begun at all.
func answer(answers *bufio.Reader) (last, begun bool, err error) {
	if _, err := answers.Peek(1); err != nil {
		return false, false, err
	}
	w, err := http.ReadResponse(answers, nil)
	if err != nil {
		return false, true, err
	}
	defer func() { _ = w.Body.Close() }()
	if _, err := io.Copy(io.Discard, w.Body); err != nil || w.StatusCode != http.StatusOK {
		return false, true, fmt.Errorf("%s, %w", w.Status, err)
	}
	return w.Close, true, nil
}
