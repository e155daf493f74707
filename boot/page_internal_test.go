package boot

import (
	"regexp"
	"strings"
	"testing"
)

func TestColoursChangeNothingButTheColour(t *testing.T) {
	r := Report{
		Program: "shop", Env: "dev", Ops: "http://127.0.0.1:9090", Took: 1,
		Lock: Decision{
			Chosen: "memory", Scope: "process", Why: "why", Warnings: []string{"exclusion ends here"},
			Candidates: []Candidate{{Name: "redis", Outcome: Rejected, Reason: "none", Needs: "one"}},
		},
	}
	plain, coloured := r.page(paint{}, true), r.page(paint{colours: true}, true)
	if stripped := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(coloured, ""); stripped != plain {
		t.Errorf("got\n%s\nwant\n%s", stripped, plain)
	}
	for _, want := range []string{"\x1b[1mlock\x1b[0m", "\x1b[33m! exclusion ends here\x1b[0m", "\x1b[2mredis"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("%q is not in %q", want, coloured)
		}
	}
}

// A hello-world has no file and no server: its report is what a newcomer sees
// first.
func TestReportOfAHelloWorldHasAtMostTwelveLines(t *testing.T) {
	program, err := newProgram([]Option{App("hello")})
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
	short, whole := b.report.page(paint{}, false), b.report.page(paint{}, true)
	if n := strings.Count(short, "\n"); n > 12 || !strings.Contains(short, "exclusion ends at this process") {
		t.Errorf("%d lines, want at most 12 with the warning:\n%s", n, short)
	}
	if strings.Contains(short, "no cache is configured") || !strings.Contains(whole, "no cache is configured") {
		t.Errorf("the other candidates belong to the verbose report alone:\n%s\n%s", short, whole)
	}
}
