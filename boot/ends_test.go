package boot_test

import (
	"context"
	"errors"
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

// returning is a Run that returns at once.
func returning(context.Context) error { return nil }

func TestProgramOfRunsEndsWhenTheyHaveReturned(t *testing.T) {
	gate := make(chan struct{})
	p, stderr := process()
	ended := make(chan int, 1)
	go func() {
		ended <- boot.Main(t.Context(), p, mega.App("main",
			mega.Run("first", returning),
			mega.Run("second", func(context.Context) error { <-gate; return nil })))
	}()
	if !comes(stderr, "boot.report") {
		t.Fatalf("it does not start:\n%s", stderr)
	}
	select {
	case status := <-ended:
		t.Fatalf("it ended with %d before its second Run:\n%s", status, stderr)
	default:
	}
	close(gate)
	if status := <-ended; status != failure.ExitOK {
		t.Errorf("exit status %d, want 0:\n%s", status, stderr)
	}
}

func TestProgramOfRunsReportsAFailedShutdown(t *testing.T) {
	p, stderr := process()
	logOut := func(context.Context) error { return errors.New("no line") }
	status := boot.Main(t.Context(), p, mega.App("main", mega.Run("import", returning), mega.OnStop("log out", logOut)))
	if status != failure.ExitCut || !strings.Contains(stderr.String(), "no line") {
		t.Errorf("exit status %d, want %d:\n%s", status, failure.ExitCut, stderr)
	}
}

func TestProgramOfRunsEndsWithTheErrorOfOne(t *testing.T) {
	p, _ := process()
	failing := func(context.Context) error { return errors.New("no file") }
	if status := boot.Main(t.Context(), p, mega.App("main", mega.Run("import", failing))); status != failure.ExitInternal {
		t.Errorf("exit status %d, want %d", status, failure.ExitInternal)
	}
}

func TestProgramOfRunsEndsIfOneCallsGoexit(t *testing.T) {
	p, stderr := process()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	leaving := func(context.Context) error { runtime.Goexit(); return nil }
	if status := boot.Main(ctx, p, mega.App("main", mega.Run("import", leaving))); status != failure.ExitInternal || !strings.Contains(stderr.String(), "Goexit") {
		t.Errorf("exit status %d, want %d:\n%s", status, failure.ExitInternal, stderr)
	}
}

func TestProgramThatWaitsForWorkStays(t *testing.T) {
	routes := mega.Routes(func(r megactx.Router) { r.Get("/", func(*megactx.Ctx) error { return nil }) })
	for name, option := range map[string]mega.Option{
		"routes":         routes,
		"a subscription": mega.Subscribe(bus.Topic[string]("x"), func(*megactx.Ctx, string) error { return nil }),
		"a responder":    mega.Respond("x", func(*megactx.Ctx, string) (string, error) { return "", nil }),
		"an interval":    mega.Every("x", time.Hour, returning),
	} {
		p, _ := process()
		made, err := boot.Plan(p, mega.App("main", option, mega.Run("first", returning)))
		if err != nil {
			t.Fatal(err)
		}
		if made.Program.Ends() {
			t.Errorf("a program with %s ends", name)
		}
	}
	p, _ := process()
	made, err := boot.Plan(p, mega.App("main"))
	if err != nil || made.Program.Ends() {
		t.Errorf("a program without a Run ends: %v", err)
	}
}

func TestAppWithoutRoutesOpensNoListener(t *testing.T) {
	p, _ := process()
	p.Environ = []string{"MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_APPS_JOBS_ADDR=192.0.2.1:1"} // of no machine
	page := mega.Routes(func(r megactx.Router) { r.Get("/", func(*megactx.Ctx) error { return nil }) })
	r := start(t, p, mega.App("web", page), mega.App("jobs", mega.Run("work", func(ctx context.Context) error { <-ctx.Done(); return nil })))
	apps := r.Report().Apps
	if len(apps) != 2 {
		t.Fatalf("got %+v", apps)
	}
	for _, a := range apps {
		if listens := strings.HasPrefix(a.URL, "http://127.0.0.1:"); listens != (a.App == "web") {
			t.Errorf("got %+v", a)
		}
	}
	text := r.Report()
	var b strings.Builder
	if err := text.Print(&b); err != nil || !strings.Contains(b.String(), "no listener") {
		t.Errorf("%v\n%s", err, &b)
	}
}
