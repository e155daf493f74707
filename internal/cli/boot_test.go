package cli_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/doctor"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
)

func TestBootIsRehearsed(t *testing.T) {
	b := newBench(t, yaml, "MEGA_APPS_WEB_ADDR=127.0.0.1:8085")
	status, stdout, stderr := b.run("boot --dry-run")
	if status != failure.ExitOK || stderr != "" {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	for _, want := range []string{"shop", "mega.config.yaml", "neither a cache nor a cluster is configured", "http://127.0.0.1:8085"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not told:\n%s", want, stdout)
		}
	}
	var report plan.Report
	if _, doc, _ := b.run("boot --dry-run --json"); json.Unmarshal([]byte(doc), &report) != nil || report.Lock.Chosen != "memory" || report.Program != "shop" {
		t.Errorf("got %s", doc)
	}
	b = newBench(t, "")
	if _, doc, _ := b.run("boot --dry-run --json"); !strings.Contains(doc, `"files"`) || strings.Contains(doc, "null") {
		t.Errorf("a list without elements is no list: %s", doc)
	}
}

// What would stop the boot has its exit status, and the decisions are there.
func TestRehearsalFailsAsTheBootWould(t *testing.T) {
	b := newBench(t, yaml)
	status, stdout, stderr := b.run("boot --dry-run --set lock.require=fleet")
	if status != failure.ExitConfig || !strings.Contains(stderr, "lock.scope_too_small") || !strings.Contains(stdout, "memory") {
		t.Errorf("exit status %d:\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr = b.run("boot --dry-run --json --set lock.require=fleet")
	var report plan.Report
	var f struct{ Code string }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || status != failure.ExitConfig || report.Lock.Chosen != "memory" {
		t.Errorf("exit status %d, %v: %s", status, err, stdout)
	}
	if err := json.Unmarshal([]byte(stderr), &f); err != nil || f.Code != "lock.scope_too_small" {
		t.Errorf("%v: %s", err, stderr)
	}
	if status, stdout, stderr := b.run("boot --dry-run --set lock.ttl=5"); status != failure.ExitConfig || stdout != "" || !strings.Contains(stderr, "config.no_unit") {
		t.Errorf("without a configuration: exit status %d:\n%s%s", status, stdout, stderr)
	}
	for line, says := range map[string]string{
		"boot": "shop serve", "boot --dryrun": "--dry-run", "boot now": `"now"`, "boot --dry-run --only wbe": "boot.unknown_app", "doctor now": `"now"`,
		"boot --dry-run --trace xf": "boot.unknown_trace",
	} {
		if status, _, stderr := b.run(line); status != failure.ExitUsage || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit status %d, want %q: %s", line, status, says, stderr)
		}
	}
}

func TestDoctorFindsTheCausesOfAFailedStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	well := newBench(t, yaml, "MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0")
	ill := newBench(t, yaml, "MEGA_APPS_WEB_ADDR="+taken.Addr().String(), "MEGA_OPS_ADDR=127.0.0.1:0")
	if status, stdout, stderr := well.run("doctor"); status != failure.ExitOK || !strings.Contains(stdout, "\nwarn  ") || strings.Contains(stdout, "\nfail") {
		t.Errorf("of one that is well: exit status %d\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr := ill.run("doctor")
	if status != failure.ExitCut || !strings.Contains(stdout, "\nfail  ") || !strings.Contains(stdout, taken.Addr().String()) || !strings.Contains(stdout, "-> ") {
		t.Errorf("of one whose address is taken: exit status %d\n%s%s", status, stdout, stderr)
	}
	var findings []doctor.Finding
	if status, doc, _ := ill.run("doctor --json"); json.Unmarshal([]byte(doc), &findings) != nil || status != failure.ExitCut || len(findings) < 3 {
		t.Errorf("exit status %d: %s", status, doc)
	}
}

func TestRoutesAreListedWithoutABoot(t *testing.T) {
	b := newBench(t, "apps:\n  web:\n    prefix: /shop\n")
	status, stdout, stderr := b.run("routes")
	if status != failure.ExitOK || !strings.Contains(squeezed(stdout), "\nweb  GET  /shop/") || stderr != "" {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	var routes []plan.Route
	if _, doc, _ := b.run("routes --json"); json.Unmarshal([]byte(doc), &routes) != nil || len(routes) != 1 || routes[0].App != "web" || routes[0].Method != "GET" {
		t.Errorf("got %s", doc)
	}
}

func TestFlagIsTheOriginOfItsKey(t *testing.T) {
	_, doc, stderr := newBench(t, yaml).run("boot --dry-run --json --set lock.ttl=20s --workers 4")
	for _, want := range []string{`"--workers"`, `"--set lock.ttl"`} {
		if !strings.Contains(doc, want) {
			t.Errorf("no %s in:\n%s%s", want, doc, stderr)
		}
	}
}
