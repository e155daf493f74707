package cli_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/limit"
)

// program, in the environment, makes the test's executable a program of that
// kind.
const program = "CLI_TEST_PROGRAM"

// folder, in the environment, is where that program's configuration is.
const folder = "CLI_TEST_FOLDER"

func TestMain(m *testing.M) {
	switch kind := os.Getenv(program); kind {
	case "":
	case "tool":
		os.Exit(cli.RunTool(cli.Process{Args: os.Args, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}, cli.Tool{}))
	default:
		os.Exit(cli.Run(cli.Process{
			Args: os.Args, Stdout: os.Stdout, Stderr: os.Stderr, Stdin: os.Stdin, Dir: os.Getenv(folder),
			Environ: append([]string{"MEGA_APPS_MAIN_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_LOG_FORMAT=json"}, os.Environ()...),
		}, programs[kind]))
	}
	// A child ignores a hangup that its parent ignores, as under nohup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	goleak.VerifyTestMain(m)
}

var programs = map[string]mega.Option{
	"polite": mega.App("main", mega.Routes(func(megactx.Router) {})),
	"stubborn": mega.App("main", mega.OnStop("never", func(context.Context) error {
		select {} // what a second signal is for
	})),
	"booting": mega.App("main", mega.OnStart("wait", func(ctx context.Context) error {
		_, _ = io.WriteString(os.Stderr, "booting\n")
		<-ctx.Done()
		return ctx.Err()
	})),
	"deciding": mega.App("main",
		mega.Provide(func() *string { path := "/decided"; return &path }),
		mega.Routes(func(r megactx.Router, path *string) { r.Get(*path, func(*megactx.Ctx) error { return nil }) })),
	"talker": mega.App("main",
		mega.Subscribe(bus.Topic[any]("product.sold"), func(c *megactx.Ctx, m *bus.Msg) error {
			_, _ = fmt.Fprintf(os.Stderr, "heard %s\n", m.Data)
			return nil
		}),
		mega.Respond("stock.*", func(_ *megactx.Ctx, m *bus.Msg) (any, error) {
			if m.Subject == "stock.lost" {
				return nil, &bus.RemoteError{Reason: "stock.unknown", Message: "no such product"}
			}
			return map[string]int{"left": 3}, nil
		})),
	"caller": mega.App("main", mega.Run("call", func(c *megactx.Ctx) error {
		partner := limit.Limit{Rates: []limit.Rate{limit.PerHour(2), limit.PerDay(100)}}
		for c.Err() == nil {
			p, err := c.Limit.Wait("partner:acme", partner)
			if err != nil {
				_, _ = fmt.Fprintln(os.Stderr, "refused:", err)
				continue
			}
			_, _ = fmt.Fprintln(os.Stderr, "called at", p.At())
		}
		return nil
	})),
	"holder": mega.App("main", mega.Run("hold", func(c *megactx.Ctx) error {
		return c.Lock.With("product:lamp", func(c *megactx.Ctx) error {
			_, _ = io.WriteString(os.Stderr, "holding\n")
			<-c.Done()
			_, _ = fmt.Fprintln(os.Stderr, "let go:", context.Cause(c))
			select {} // it lives on without the lock, until its process ends
		})
	})),
}

// child is a program in a process of its own.
type child struct {
	cmd    *exec.Cmd
	stderr *bufio.Reader
}

func startChild(t *testing.T, kind string, environ ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), program+"="+kind, "GORACE=atexit_sleep_ms=0"), environ...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		stop.Stop()
		_ = cmd.Process.Kill() // it has ended, unless the test failed
	})
	return &child{cmd, bufio.NewReader(stderr)}
}

// until reads what the child writes up to a line that has s in it.
func (c *child) until(t *testing.T, s string) string {
	t.Helper()
	for {
		line, err := c.stderr.ReadString('\n')
		if strings.Contains(line, s) {
			return line
		}
		if err != nil {
			t.Fatalf("the child did not say %q: %v", s, err)
		}
	}
}

func (c *child) signal(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

// end returns the rest of what the child wrote, and its exit status.
func (c *child) end(t *testing.T) (string, int) {
	t.Helper()
	rest, err := io.ReadAll(c.stderr)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(rest), c.cmd.ProcessState.ExitCode()
}

func TestSignalEndsTheProgramPolitely(t *testing.T) {
	c := startChild(t, "polite")
	c.until(t, "boot.report")
	c.signal(t)
	c.signal(t) // at the same time: still one request
	if rest, status := c.end(t); status != failure.ExitOK || !strings.Contains(rest, `"stopped"`) {
		t.Errorf("exit status %d:\n%s", status, rest)
	}
}

func TestSignalDuringTheBootIsNotLost(t *testing.T) {
	c := startChild(t, "booting")
	c.until(t, "booting")
	c.signal(t)
	if rest, status := c.end(t); status != failure.ExitOK {
		t.Errorf("exit status %d:\n%s", status, rest)
	}
}

func TestSecondSignalEndsAtOnceAndShowsTheStacks(t *testing.T) {
	c := startChild(t, "stubborn")
	c.until(t, "boot.report")
	c.signal(t)
	c.until(t, "stopping")
	time.Sleep(300 * time.Millisecond) // signals that arrive together are one
	c.signal(t)
	if rest, status := c.end(t); status != 130 || !strings.Contains(rest, "cli_test.go") {
		t.Errorf("exit status %d:\n%s", status, rest)
	}
}
