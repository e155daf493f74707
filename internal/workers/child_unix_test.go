//go:build linux || darwin

package workers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// childFolder, in the environment, makes the test's executable a worker that
// does what the files of that folder say.
const childFolder = "CHILD_TEST_FOLDER"

func TestMain(m *testing.M) {
	folder := os.Getenv(childFolder)
	switch {
	case len(os.Args) > 1 && os.Args[1] == "count-files":
		countFiles()
	case len(os.Args) > 1 && os.Args[1] == "reap":
		reapHere()
	case folder == "":
		goleak.VerifyTestMain(m)
	case os.Getenv(envLine) == "":
		superviseForEver(folder)
	default:
		work(folder)
	}
}

// work is the main function of a worker.
func work(folder string) {
	in, err := Inherit(os.Environ())
	if err != nil || in == nil {
		fmt.Fprintln(os.Stderr, "nothing inherited:", err)
		os.Exit(3)
	}
	is := func(what string) bool { _, err := os.Stat(filepath.Join(folder, what)); return err == nil }
	signals := make(chan os.Signal, 1)
	switch {
	case is("crash"), is("crash-gently") && once(folder):
		_ = os.WriteFile(filepath.Join(folder, "crashed"), nil, 0o600)
		os.Exit(7)
	case is("crash-2") && in.ID == 2:
		os.Exit(78)
	case is("stubborn"):
		signal.Ignore(syscall.SIGTERM)
	default:
		signal.Notify(signals, syscall.SIGTERM)
	}
	says := bufio.NewScanner(in.Line)
	if is("primary") {
		takeTurn(folder, in, says)
	}
	l, err := in.Listen("web")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, in)
	})}
	go func() { _ = s.Serve(l) }()
	if is("slow") {
		_ = os.WriteFile(filepath.Join(folder, "waits"), nil, 0o600)
	} else {
		fmt.Fprintf(in.Line, "ready\n")
	}
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in.Line)
		close(gone)
	}()
	select {
	case <-signals:
		_ = s.Shutdown(context.Background())
		if is("cut") {
			os.Exit(1)
		}
	case <-gone:
	}
	os.Exit(0)
}

// once is true four times in a row, and then false.
func once(folder string) bool {
	path := filepath.Join(folder, "crash-gently")
	text, _ := os.ReadFile(path)
	_ = os.WriteFile(path, append(text, 'x'), 0o600)
	return len(text)%5 < 4
}

// takeTurn does what workers do once, and dies of it the first time.
func takeTurn(folder string, in *Inherited, says *bufio.Scanner) {
	fmt.Fprintf(in.Line, "turn migrate\n")
	says.Scan()
	if says.Text() != "yes" {
		return
	}
	f, _ := os.OpenFile(filepath.Join(folder, "primary"), os.O_APPEND|os.O_WRONLY, 0)
	fmt.Fprintf(f, "begun in %d\n", in.Generation)
	text, _ := os.ReadFile(filepath.Join(folder, "primary"))
	if strings.Count(string(text), "\n") == 1 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	fmt.Fprintf(f, "done in %d\n", in.Generation)
	fmt.Fprintf(in.Line, "done migrate\n")
}

func answer(w io.Writer, r *http.Request, in *Inherited) {
	if r.URL.Path == "/files" {
		path, err := os.Executable()
		if err != nil {
			panic(err)
		}
		out, err := exec.Command(path, "count-files").CombinedOutput()
		fmt.Fprintf(w, "%s%v", out, err)
		return
	}
	fmt.Fprintf(w, "%d %d %d", in.ID, in.Generation, os.Getpid())
}

// countFiles tells which descriptors a child of a worker has, beside the first
// three: sockets would be those of the worker.
func countFiles() {
	sockets := 0
	for fd := firstFile; fd < 64; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			sockets++
		}
	}
	fmt.Fprint(os.Stdout, sockets, " ")
	os.Exit(0)
}

// testRunner is a supervisor under test.
type testRunner struct {
	*runner
	folder   string
	listener *Listener
	addr     string
	end      context.CancelFunc
	over     chan struct{}
	err      error // once it is over
}

// startRunner runs workers that do what the files with those names say.
func startRunner(t *testing.T, workers int, does ...string) *testRunner {
	t.Helper()
	folder := t.TempDir()
	for _, name := range does {
		write(t, folder, name)
	}
	s, addr, err := newTestRunner(folder, workers)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &testRunner{runner: s, folder: folder, listener: s.listeners[0], addr: addr, end: cancel, over: make(chan struct{})}
	go func() {
		defer close(c.over)
		c.err = s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-c.over
		_ = c.listener.Close()
	})
	return c
}

func write(t *testing.T, folder, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newTestRunner(folder string, workers int) (r *runner, addr string, err error) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	l, err := Listen("web", raw.(*net.TCPListener))
	if err != nil {
		return nil, "", err
	}
	var s *runner
	s = newRunner(Config{
		Workers: workers, Path: os.Args[0], Args: []string{"worker"},
		Environ: append(os.Environ(), childFolder+"="+folder, "GORACE=atexit_sleep_ms=0"), // a worker that ends does so at once
		Stderr:  os.Stderr,
		Grace:   2 * time.Second, Permanent: func(status int) bool { return status == 78 },
	}, func(p *Process, conn net.Conn) { serve(s, p, conn) })
	s.listeners = []*Listener{l}
	s.backoff = func(failures int) time.Duration {
		is := func(what string) bool { _, err := os.Stat(filepath.Join(folder, what)); return err == nil }
		if is("patient") && failures > maxDeaths || is("hesitant") {
			return time.Hour
		}
		return time.Millisecond
	}
	return s, raw.Addr().String(), nil
}

// serve is the supervisor's side of the lines that children write.
func serve(s *runner, p *Process, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	says := bufio.NewScanner(conn)
	for says.Scan() {
		what, name, _ := strings.Cut(says.Text(), " ")
		switch what {
		case "ready":
			p.Ready()
		case "done":
			s.turns.done(p, name)
		case "turn":
			if mine, err := s.turns.begin(context.Background(), p, name); err == nil && mine {
				fmt.Fprintln(conn, "yes")
			} else {
				fmt.Fprintln(conn, "no")
			}
		}
	}
}

// superviseForEver is a supervisor in a process of its own: it tells the pids
// of its workers.
func superviseForEver(folder string) {
	s, _, err := newTestRunner(folder, 2)
	if err != nil {
		os.Exit(3)
	}
	go func() { _ = s.Run(context.Background()) }()
	for {
		var pids []string
		for _, w := range s.Workers() {
			if w.State == Ready {
				pids = append(pids, strconv.Itoa(w.PID))
			}
		}
		if len(pids) == 2 {
			fmt.Fprintln(os.Stdout, strings.Join(pids, " "))
			select {}
		}
		time.Sleep(time.Millisecond)
	}
}
