package plan_test

import (
	"strings"
	"testing"

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
