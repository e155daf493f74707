package plan_test

import (
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/plan"
)

func TestLinkOfAnAppHasItsHost(t *testing.T) {
	const url = "http://127.0.0.1:8082/docs"
	for host, want := range map[string]string{
		"":              url,
		"localhost":     "http://localhost:8082/docs",
		"*.example.org": url,
	} {
		if got := (plan.Served{URL: url, Host: host}).Link(); got != want {
			t.Errorf("%q: got %s, want %s", host, got, want)
		}
	}
}

// Limits that follow the locks have no section but for their own warnings.
func TestReportShowsTheWarningsAboutLimitsThatFollowTheLocks(t *testing.T) {
	r := plan.Report{Limit: plan.Decision{Component: "limit", Chosen: "redis", As: "lock"}}
	if text := r.Text(plan.Paint{}, false); strings.Contains(text, "limit") {
		t.Errorf("got %s", text)
	}
	r.Limit.Warnings = []string{"a restart forgets the windows"}
	if text := r.Text(plan.Paint{}, false); !strings.Contains(text, "\nlimit   ! a restart forgets the windows\n") {
		t.Errorf("got %s", text)
	}
}
