package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/plan"
)

func TestReportEscapesWhatATerminalObeys(t *testing.T) {
	r := plan.Report{Set: []plan.Setting{{Key: "nats.user", Value: "ann\nlock redis \x1b[31mred", Origin: "env MEGA_NATS_USER"}}}
	r.Bus.Warnings = []string{"server \x1b[2J is old"}
	text := r.Text(plan.Paint{}, true)
	if strings.Contains(text, "\x1b") || !strings.Contains(text, `ann\nlock redis \u001b[31mred`) || !strings.Contains(text, `server \u001b[2J is old`) {
		t.Errorf("got %q", text)
	}
}

// The address of the listener would be answered 404, as it is not the host of the app.
func TestReportHasAnAddressThatAnAppOfThisMachineAnswers(t *testing.T) {
	r := plan.Report{Apps: []plan.Served{
		{App: "admin", URL: "http://127.0.0.1:8082", Host: "localhost"},
		{App: "docs", URL: "http://127.0.0.1:8083/docs", Host: "docs.localhost"},
		{App: "shop", URL: "http://127.0.0.1:8080", Host: "shop.example.org"},
		{App: "jobs", Host: "localhost"},
	}}
	text := r.Text(plan.Paint{}, false)
	for _, want := range []string{"admin  http://localhost:8082", "docs   http://docs.localhost:8083/docs", "shop   http://127.0.0.1:8080", "jobs   no listener"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
}

func TestReportStatesWhereElectedFunctionsRun(t *testing.T) {
	for _, x := range []struct {
		scope   string
		workers int
		want    []string
	}{
		{"process", 0, []string{"in this process", "every 2s, in this process"}},
		{"process", 2, []string{"in each worker", "every 2s, once in each worker"}},
		{"node", 2, []string{"in one process of the node at a time", "every 2s, once in the node"}},
		{"fleet", 0, []string{"in one process of the fleet at a time", "every 2s, once in the fleet"}},
	} {
		scope, want := x.scope, x.want
		r := plan.Report{Workers: x.workers, Elected: []plan.Elected{
			{Name: "relay", Scope: scope, Lock: "mega:lead::shop:relay"}, {Name: "purge", Scope: scope, Lock: "mega:every::shop:purge", Every: 2 * time.Second},
		}}
		text := r.Text(plan.Paint{}, false)
		for i, name := range []string{"relay  ", "purge  "} {
			if !strings.Contains(text, name+want[i]+", under the lock") {
				t.Errorf("scope %s: the report has no %q:\n%s", scope, name+want[i], text)
			}
		}
	}
}
