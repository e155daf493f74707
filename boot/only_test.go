package boot_test

import (
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/internal/failure"
)

func TestOnlySomeAppsRun(t *testing.T) {
	p, _ := process("MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	p.Only = []string{"admin"}
	r := start(t, p, mega.App("main", mega.Routes(hello)), mega.App("admin", mega.Routes(hello)))
	if apps := r.Report().Apps; len(apps) != 1 || apps[0].App != "admin" {
		t.Fatalf("it runs %v", apps)
	}
	if _, body := get(t, r.Report().Apps[0].URL); body != "hello from admin" {
		t.Errorf("got %q", body)
	}
}

func TestAppThatDoesNotExistCannotRunAlone(t *testing.T) {
	p, _ := process()
	p.Only = []string{"shop"}
	if f := fail(t, p, mega.App("main")); f.Code != "boot.unknown_app" || f.Exit != failure.ExitUsage {
		t.Errorf("got %+v", f)
	}
}

func TestInjectorIsSilentUnlessTraced(t *testing.T) {
	for _, topics := range [][]string{nil, {"fx"}} {
		p, stderr := process()
		p.Trace = topics
		start(t, p, mega.App("main", mega.Routes(hello)))
		if told := strings.Contains(stderr.String(), "trace=fx"); told != (topics != nil) {
			t.Errorf("traced %q: told is %v:\n%s", topics, told, stderr)
		}
	}
	p, _ := process()
	p.Trace = []string{"everything"}
	if f := fail(t, p, mega.App("main")); f.Code != "boot.unknown_trace" || f.Exit != failure.ExitUsage {
		t.Errorf("got %+v", f)
	}
}
