package boot

import (
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/plan"
)

// A hello-world has no file and no server: its report is what a newcomer sees
// first.
func TestReportOfAHelloWorldHasAtMostTwelveLines(t *testing.T) {
	program, err := plan.NewProgram([]Option{App("hello")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := newBooting(t.Context(), Process{Environ: []string{"MEGA_ENV=dev"}}, program)
	c, err := b.loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.decide(c); err != nil {
		t.Fatal(err)
	}
	b.report.Apps = []Served{{App: "hello", URL: "http://127.0.0.1:8080", Routes: 1}}
	b.report.Ops, b.report.Admin, b.report.Took = "http://127.0.0.1:9090", "/run/user/1000/mega/hello.1.sock", 1
	short, whole := b.report.Text(plan.Paint{}, false), b.report.Text(plan.Paint{}, true)
	if n := strings.Count(short, "\n"); n > 12 || !strings.Contains(short, "exclusion ends at this process") {
		t.Errorf("%d lines, want at most 12 with the warning:\n%s", n, short)
	}
	if strings.Contains(short, "no cache is configured") || !strings.Contains(whole, "no cache is configured") {
		t.Errorf("the other candidates belong to the verbose report alone:\n%s\n%s", short, whole)
	}
}
