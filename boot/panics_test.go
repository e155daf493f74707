package boot_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
)

// The functions of the program whose names a stack has to contain.
func panicsInEvery(context.Context) { panic("broken") }
func panicsInLead(context.Context)  { panic("broken") }
func panicsInStop(context.Context)  { panic("broken") }
func panicsInRun()                  { panic("broken") }

func panicsInCommand(context.Context) error { panic("broken") }

func TestPanelOfACommandHasTheStackOfItsPanic(t *testing.T) {
	t.Parallel()
	p, stderr := process()
	p.Command = "import"
	status := boot.Main(t.Context(), p, mega.App("main"), mega.Command("import", panicsInCommand))
	if status != 1 || !strings.Contains(stderr.String(), "    stack ") {
		t.Errorf("status %d, and no stack in\n%s", status, stderr)
	}
}

func TestLogHasTheStackOfAPanicInTheBackground(t *testing.T) {
	t.Parallel()
	p, stderr := process()
	logged := func(name string) bool { return strings.Contains(stderr.String(), "boot_test."+name) }
	others, ended := make(chan struct{}), make(chan int, 1)
	go func() {
		ended <- boot.Main(t.Context(), p, mega.App("main", mega.Routes(hello),
			mega.Every("report", time.Hour, panicsInEvery),
			mega.Lead("outbox", panicsInLead),
			mega.OnStop("flush", panicsInStop),
			mega.Run("import", func(ctx context.Context) { // its panic ends the program
				select {
				case <-others:
					panicsInRun()
				case <-ctx.Done():
				}
			}),
		))
	}()
	until(t, "Every and Lead have panicked", func() bool { return logged("panicsInEvery") && logged("panicsInLead") })
	close(others)
	if status := <-ended; status == 0 {
		t.Error("a program whose Run panics ends with status 0")
	}
	for _, name := range []string{"panicsInEvery", "panicsInLead", "panicsInRun", "panicsInStop"} {
		if !logged(name) {
			t.Errorf("no stack with %s in\n%s", name, stderr)
		}
	}
}

// A task whose context has ended may still have work to finish, and it can fail at it.
func TestFailureOfATaskAtTheShutdownIsLogged(t *testing.T) {
	t.Parallel()
	p, stderr := process()
	r := start(t, p, mega.App("main",
		mega.Run("import", func(ctx context.Context) { <-ctx.Done(); panicsInRun() }),
		mega.Run("upload", func(ctx context.Context) error { <-ctx.Done(); return errors.New("2 files are left") }),
		mega.Run("poll", func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("poll: %w", ctx.Err()) }),
	))
	if err := r.Stop(); err != nil {
		t.Errorf("the program stops with %v", err)
	}
	for _, line := range []string{`"run":"import"`, "boot_test.panicsInRun", `"run":"upload","error":"2 files are left"`} {
		if !strings.Contains(stderr.String(), line) {
			t.Errorf("no %s in\n%s", line, stderr)
		}
	}
	if strings.Contains(stderr.String(), `"run":"poll"`) {
		t.Errorf("the end of its context is a failure:\n%s", stderr)
	}
}
