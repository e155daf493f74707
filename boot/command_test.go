package boot_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
)

// shelf is a value that notes its end.
type shelf struct{ closed *bool }

func (s *shelf) Close() { *s.closed = true }

func TestCommandRunsWithTheValuesOfTheProgramAndEnds(t *testing.T) {
	p, stderr := process("MEGA_CLUSTER_WORKERS=4", "MEGA_APPS_MAIN_ADDR=192.0.2.1:1") // of no machine
	p.Command, p.Words = "import", []string{"a.csv", "-v"}
	closed, heard := false, make(chan string, 1)
	unwanted := func(context.Context) error { t.Error("a hook runs"); return nil }
	status := boot.Main(t.Context(), p,
		mega.Provide(func() *shelf { return &shelf{&closed} }),
		mega.App("main",
			mega.Provide(func() *pages { t.Error("a value is made that the command does not take"); return nil }),
			mega.Routes(func(r megactx.Router, p *pages) { r.Get("/", p.home) }),
			mega.OnStart("start", unwanted), mega.OnPrimary("primary", unwanted), mega.Run("run", unwanted), mega.Ready("ready", unwanted),
			mega.Command("export", unwanted),
			mega.Command("import", func(s *shelf, words []string, c *megactx.Ctx) error {
				_, err := c.Bus.Subscribe("imported", func(_ *megactx.Ctx, m *bus.Msg) error { heard <- string(m.Data); return nil })
				if err != nil {
					return err
				}
				err = c.Lock.With("import", func(c *megactx.Ctx) error {
					if s.closed != &closed || closed {
						t.Error("the value is not the program's")
					}
					return c.Bus.Publish("imported", []byte(fmt.Sprint(c.App.Name, words)))
				})
				if got := <-heard; err == nil && got != "main[a.csv -v]" {
					t.Errorf("got %s", got)
				}
				return err
			})))
	if status != failure.ExitOK || !closed {
		t.Errorf("exit status %d, closed: %v\n%s", status, closed, stderr)
	}
	if log := stderr.String(); strings.Contains(log, "boot.report") {
		t.Errorf("it writes a boot report:\n%s", log)
	}
}

func TestCommandThatCallsGoexitEnds(t *testing.T) {
	p, stderr := process()
	p.Command = "import"
	ended := make(chan int, 1)
	go func() {
		ended <- boot.Main(t.Context(), p, mega.App("main", mega.Command("import", func(context.Context) error { runtime.Goexit(); return nil })))
	}()
	select {
	case status := <-ended:
		if status != failure.ExitCut || !strings.Contains(stderr.String(), "Goexit") {
			t.Errorf("exit status %d:\n%s", status, stderr)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("it does not end:\n%s", stderr)
	}
}

// coded is an error with an exit status.
type coded int

func (c coded) Error() string { return fmt.Sprint("code ", int(c)) }
func (c coded) ExitCode() int { return int(c) }

func TestCommandEndsWithTheStatusOfItsError(t *testing.T) {
	for name, x := range map[string]struct {
		fn   func(context.Context) error
		want int
	}{
		"an error":          {func(context.Context) error { return errors.New("no file") }, 1},
		"an error's status": {func(context.Context) error { return fmt.Errorf("import: %w", coded(3)) }, 3},
		"a panic":           {func(context.Context) error { panic("no file") }, 1},
	} {
		p, stderr := process()
		p.Command = "import"
		if status := boot.Main(t.Context(), p, mega.App("main"), mega.Command("import", x.fn)); status != x.want || !strings.Contains(stderr.String(), "boot.command_failed") {
			t.Errorf("%s: exit status %d, want %d\n%s", name, status, x.want, stderr)
		}
	}
}

func TestSignalEndsTheContextOfACommand(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	p, _ := process()
	p.Command = "import"
	status := boot.Main(ctx, p, mega.App("main"), mega.Command("import", func(ctx context.Context) error {
		signal()
		<-ctx.Done()
		return nil
	}))
	if status != failure.ExitOK {
		t.Errorf("exit status %d", status)
	}
}

func TestCommandNeedsANameOfItsOwn(t *testing.T) {
	fn := func(context.Context) error { return nil }
	for _, options := range [][]mega.Option{
		{mega.Command("serve", fn)}, {mega.Command("Import", fn)}, {mega.Command("", fn)}, {mega.Command("a", fn), mega.Command("a", fn)},
	} {
		p, _ := process()
		_, err := boot.Plan(p, append(options, mega.App("main"))...)
		if f, ok := errors.AsType[*failure.Failure](err); !ok || f.Code != "boot.command_name" && f.Code != "boot.wrong_shape" {
			t.Errorf("got %v", err)
		}
	}
}
