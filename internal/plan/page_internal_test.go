package plan

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
	plain, coloured := r.Text(Paint{}, true), r.Text(Paint{Colours: true}, true)
	if stripped := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(coloured, ""); stripped != plain {
		t.Errorf("got\n%s\nwant\n%s", stripped, plain)
	}
	for _, want := range []string{"\x1b[1mlock\x1b[0m", "\x1b[33m! exclusion ends here\x1b[0m", "\x1b[2mredis"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("%q is not in %q", want, coloured)
		}
	}
}
