package boot_test

import (
	"context"
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
