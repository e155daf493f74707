package boot

import (
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/plan"
)

// A hello-world has no file and no server: its report is what a newcomer sees
// first.
func TestReportOfAHelloWorldHasAtMostTwelveLines(t *testing.T) {
	made, err := Plan(Process{Environ: []string{"MEGA_ENV=dev"}}, plan.App("hello"))
	if err != nil {
		t.Fatal(err)
	}
	r := made.Report()
	r.Apps = []plan.Served{{App: "hello", URL: "http://127.0.0.1:8080", Routes: 1}}
	r.Ops, r.Admin, r.Took = "http://127.0.0.1:9090", "/run/user/1000/mega/hello.1.sock", 1
	short, whole := r.Text(plan.Paint{}, false), r.Text(plan.Paint{}, true)
	if n := strings.Count(short, "\n"); n > 12 || !strings.Contains(short, "exclusion ends at this process") {
		t.Errorf("%d lines, want at most 12 with the warning:\n%s", n, short)
	}
	if strings.Contains(short, "no cache is configured") || !strings.Contains(whole, "no cache is configured") {
		t.Errorf("the other candidates belong to the verbose report alone:\n%s\n%s", short, whole)
	}
}
