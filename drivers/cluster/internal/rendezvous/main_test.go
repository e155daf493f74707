//go:build linux || darwin

package rendezvous_test

import (
	"bufio"
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

	"go.uber.org/goleak"

	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

func TestMain(m *testing.M) {
	runChild()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/megaframework/mega/internal/testkit/redis.(*Process).run"))
}

// childEnv makes this test binary a process at the socket that it names, which
// does what childTask says.
const (
	childEnv  = "MEGA_TEST_SOCKET"
	childTask = "MEGA_TEST_TASK"
)

func runChild() {
	socket, isChild := os.LookupEnv(childEnv)
	if !isChild {
		return
	}
	if err := tasks[os.Getenv(childTask)](socket); err != nil {
		say("failed: " + err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

func say(line string) { _, _ = os.Stdout.WriteString(line + "\n") }

// tasks are what children do.
var tasks = map[string]func(socket string) error{
	// member joins, and stays.
	"member": func(socket string) error {
		p, err := rendezvous.Open(socket)
		if err != nil {
			return err
		}
		m, err := p.NewClient()
		if err != nil {
			return err
		}
		say(m.Name())
		return stay()
	},
	// hub takes the seat, covers something, listens, and stays.
	"hub": func(socket string) error {
		s, err := sit(socket)
		if err == nil {
			err = s.Cover(1_000, 2_000)
		}
		if err == nil {
			_, err = s.Listen()
		}
		if err != nil {
			return err
		}
		say("listening")
		return stay()
	},
	// rush takes the seat and listens as soon as it may, and does not stay.
	"rush": func(socket string) error {
		for {
			s, err := sit(socket)
			if errors.Is(err, rendezvous.ErrTaken) {
				continue
			}
			if err != nil {
				return err
			}
			say("sits")
			l, err := s.Listen()
			if err != nil {
				return err
			}
			say("listens")
			if err := errors.Join(l.Close(), s.Close()); err != nil {
				return err
			}
		}
	},
	// spawn has the flocks of a hub and a member, and starts a process that
	// outlives it.
	"spawn": func(socket string) error {
		p, err := rendezvous.Open(socket)
		if err != nil {
			return err
		}
		s, err := p.Take()
		if err != nil {
			return err
		}
		m, err := p.NewClient()
		if err != nil {
			return err
		}
		if _, err := s.Listen(); err != nil {
			return err
		}
		heir := exec.Command(os.Args[0])
		heir.Env = append(os.Environ(), childTask+"=linger")
		if err := heir.Start(); err != nil {
			return err
		}
		say(m.Name())
		return stay()
	},
	// cramped joins while nothing can be written, and says how many files that left.
	"cramped": func(socket string) error {
		signal.Ignore(syscall.SIGXFSZ) // or the signal would end this process
		p, err := rendezvous.Open(socket)
		if err == nil {
			err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{})
		}
		if err != nil {
			return err
		}
		for range 3 {
			if _, err := p.NewClient(); !errors.Is(err, syscall.EFBIG) {
				return fmt.Errorf("got %v, want %v", err, syscall.EFBIG)
			}
		}
		left, err := os.ReadDir(socket + ".clients")
		say(strconv.Itoa(len(left)))
		return err
	},
	// linger outlives its parent for a while.
	"linger": func(string) error {
		time.Sleep(time.Minute)
		return nil
	},
}

func sit(socket string) (*rendezvous.HubLock, error) {
	p, err := rendezvous.Open(socket)
	if err != nil {
		return nil, err
	}
	return p.Take()
}

func stay() error { select {} }

// child is another process, and the lines that it says.
type child struct {
	*redistest.Process
	t     *testing.T
	lines *bufio.Scanner
}

func spawn(t *testing.T, socket, task string) *child {
	t.Helper()
	out, in, err := os.Pipe()
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+socket, childTask+"="+task)
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	p, err := redistest.StartProcess(cmd)
	must(t, errors.Join(err, in.Close()))
	t.Cleanup(func() { _, _ = p.Kill(), out.Close() })
	return &child{p, t, bufio.NewScanner(out)}
}

// says waits for the next line.
func (c *child) says() string {
	c.t.Helper()
	if !c.lines.Scan() {
		c.t.Fatalf("the child ended: %v", c.lines.Err())
	}
	return c.lines.Text()
}

func open(t *testing.T, path string) *rendezvous.Socket {
	t.Helper()
	p, err := rendezvous.Open(path)
	must(t, err)
	return p
}

func place(t *testing.T) *rendezvous.Socket {
	t.Helper()
	return open(t, filepath.Join(shortdir.New(t), "s"))
}

// take takes the seat until the test has ended.
func take(t *testing.T, p *rendezvous.Socket) *rendezvous.HubLock {
	t.Helper()
	s, err := p.Take()
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func join(t *testing.T, p *rendezvous.Socket) *rendezvous.ClientFile {
	t.Helper()
	m, err := p.NewClient()
	must(t, err)
	t.Cleanup(func() { must(t, m.Leave(0)) })
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks an error's text.
func refused(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want an error with %q", err, says)
	}
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
