//go:build linux || darwin

package shell

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/drivers/memory"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

// role makes the test binary another program: the small binary itself, or a
// command that it runs.
const role = "MEGA_TEST_SHELL"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		doNotPassIgnored()
		os.Exit(m.Run())
	}
	switch {
	case len(os.Args) > 2 && os.Args[1] == "work":
		os.Exit(work(os.Args[2:]))
	case len(os.Args) == 2 && os.Args[1] == "now":
		fmt.Println(time.Now().UnixNano())
		os.Exit(0)
	}
	os.Exit(Main(Process{Name: "mega-lock", Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}, os.Args[1:]))
}

// doNotPassIgnored makes programs start with the default effect of the signals that this
// process was started to ignore, such as by nohup or in the background of a script. The
// tests send these signals. This process still ignores them.
func doNotPassIgnored() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} { // Go ignores no other one
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s) // a caught signal has its default in a child
		}
	}
}

// work is a command that nobody else may run at the same time in its slot: it
// takes a flock, which ends with the process, and breaks if that is taken. It
// reports that it runs, and ends after a time, or at SIGINT; not at SIGTERM.
func work(args []string) int {
	dir, takes := args[0], args[1]
	name := filepath.Join(dir, os.Getenv("MEGA_RUN_KEY")+"-"+os.Getenv("MEGA_RUN_SLOT"))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		_ = os.WriteFile(filepath.Join(dir, "broken"), []byte(name+" runs twice: "+err.Error()), 0o600)
		return 99
	}
	stop := make(chan os.Signal, 8)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCONT, syscall.SIGUSR1)
	fmt.Printf("runs %d foreground %v\n", os.Getpid(), inForeground())
	d, err := time.ParseDuration(takes)
	if err != nil {
		return 98
	}
	for end := time.After(d); ; {
		select {
		case <-end:
			return 0
		case s := <-stop:
			fmt.Printf("signal %v foreground %v\n", s, inForeground())
			if s == syscall.SIGINT {
				return 130
			}
		}
	}
}

func inForeground() bool { return openTerminal().foreground() }

// place is a folder for sockets and files, and what scripts start in it.
type place struct {
	t   *testing.T
	dir string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	return &place{t, shortdir.New(t)}
}

func (p *place) environ() []string {
	return append(os.Environ(), role+"=program", "XDG_RUNTIME_DIR="+p.dir)
}

func (p *place) socket() string { return filepath.Join(p.dir, "mega", "cluster.sock") }

// script is a running program.
type script struct {
	*redistest.Process
	t   *testing.T
	out chan string // lines of its output; closed at its end
}

// start starts the program in a group of its own. Words in args are split at
// blanks.
func (p *place) start(args string, more ...string) *script {
	p.t.Helper()
	cmd := exec.Command(os.Args[0], append(strings.Fields(args), more...)...)
	cmd.Env = p.environ()
	return p.run(cmd)
}

func (p *place) run(cmd *exec.Cmd) *script {
	p.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	proc, err := redistest.StartProcess(cmd)
	_ = w.Close()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = proc.Kill() })
	return &script{Process: proc, t: p.t, out: listen(r)}
}

// listen returns the lines of r, and closes it at its end.
func listen(r *os.File) chan string {
	out := make(chan string, 1000)
	go func() {
		defer close(out)
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			out <- strings.TrimSuffix(lines.Text(), "\r")
		}
		_ = r.Close()
	}()
	return out
}

// longTime bounds a wait for what must happen.
const longTime = time.Minute

// expect waits for a line of the output that contains text.
func (s *script) expect(text string) string {
	s.t.Helper()
	var seen []string
	bound := time.After(longTime)
	for {
		select {
		case line, ok := <-s.out:
			if !ok {
				s.t.Fatalf("ended without %q:\n%s", text, strings.Join(seen, "\n"))
			}
			if strings.Contains(line, text) {
				return line
			}
			seen = append(seen, line)
		case <-bound:
			s.t.Fatalf("no %q after %v:\n%s", text, longTime, strings.Join(seen, "\n"))
		}
	}
}

// rest waits for the end, and returns the remaining output and the exit status.
func (s *script) rest() (string, int) {
	s.t.Helper()
	var b bytes.Buffer
	for line := range s.out {
		b.WriteString(line + "\n")
	}
	exit, ok := errors.AsType[*exec.ExitError](s.Wait())
	switch {
	case !ok:
		return b.String(), 0
	case exit.ExitCode() < 0:
		return b.String(), 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
	}
	return b.String(), exit.ExitCode()
}

// runs waits until the command runs, and returns its process.
func (s *script) runs() int {
	s.t.Helper()
	pid, err := strconv.Atoi(strings.Fields(s.expect("runs "))[1])
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// locks returns a client of the hub at the place's socket.
func (p *place) locks() *lock.Locker {
	p.t.Helper()
	n, err := cluster.Dial(p.t.Context(), cluster.Config{Socket: p.socket()})
	if err != nil {
		p.t.Fatal(err)
	}
	l, err := lock.New(n.Lock(), lock.Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), longTime)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			p.t.Error(err)
		}
		if err := n.Close(ctx); err != nil {
			p.t.Error(err)
		}
	})
	return l
}

// memoryLocks returns the locks of a memory of their own.
func memoryLocks(t *testing.T) *lock.Locker {
	t.Helper()
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// unused waits until key has neither holders nor waiters.
func (p *place) unused(l *lock.Locker, key string) {
	p.t.Helper()
	p.until("key "+key+" is unused", func() bool {
		s, err := l.Inspect(p.t.Context(), key)
		if errors.Is(err, lock.ErrUnavailable) { // the keeper got no processor for a second
			return false
		}
		if err != nil {
			p.t.Fatal(err)
		}
		return len(s.Holders) == 0 && len(s.Waiters) == 0
	})
}

func (p *place) until(what string, is func() bool) {
	p.t.Helper()
	for bound := time.Now().Add(longTime); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(bound) {
			p.t.Fatalf("not so after %v: %s", longTime, what)
		}
	}
}

// whole fails the test if two commands ran in one slot at the same time.
func (p *place) whole() {
	p.t.Helper()
	if text := p.broken(); text != "" {
		p.t.Error(text)
	}
}

// broken returns what a command has found that ran beside another one in its slot.
func (p *place) broken() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "broken"))
	if err != nil {
		return ""
	}
	return string(text)
}

func itoa(n int) string { return strconv.Itoa(n) }
