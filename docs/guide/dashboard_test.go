package guide_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// What Prometheus and Grafana load of a program: docs/guide/deploy.

// panel is a panel of Grafana, as far as the tests read it.
type panel struct {
	ID      int
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr string }
}

// dashboard returns the panels of the dashboard.
func dashboard(t *testing.T) []panel {
	t.Helper()
	var board struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, "deploy/dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	return board.Panels
}

// queries returns what the dashboard asks, with values in place of Grafana's
// variables.
func queries(t *testing.T) (all []string) {
	t.Helper()
	value := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$job", "shop", "$instance", ".*", "$key_class", ".*")
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			all = append(all, value.Replace(target.Expr))
		}
	}
	if len(all) < 30 {
		t.Fatalf("the dashboard has %d queries", len(all))
	}
	return all
}

// promtool runs it, and fails the test unless it accepts the file.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		tool = "../../bin/promtool" // .ci/tools has put it there
	}
	if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

func TestPrometheusAcceptsTheAlerts(t *testing.T) {
	promtool(t, "check", "config", "deploy/prometheus.yaml") // it loads the alerts
	promtool(t, "test", "rules", "deploy/alerts_test.yaml")
}

// alerts returns the names of the alerts and their expressions.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r.Expr
		}
	}
	return all
}

func TestEachAlertFiresInATest(t *testing.T) {
	tests := read(t, "deploy/alerts_test.yaml")
	for name := range alerts(t) {
		if !strings.Contains(tests, `alertname="`+name+`"`) {
			t.Errorf("no test expects %s", name)
		}
		if !strings.Contains(read(t, operationsPage), "`"+name+"`") {
			t.Errorf("the page does not explain %s", name)
		}
	}
}

func TestPrometheusParsesEachQueryOfTheDashboard(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, q := range queries(t) {
		fmt.Fprintf(&rules, "      - {record: \"query:%d\", expr: %q}\n", i, q)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

func TestPanelsOfTheDashboardDoNotOverlap(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range dashboard(t) {
		id, g := fmt.Sprint("id ", p.ID), p.GridPos
		if seen[id] || g.X+g.W > 24 {
			t.Errorf("panel %q: %s, %+v", p.Title, id, g)
		}
		seen[id] = true
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				at := fmt.Sprint(x, ",", y)
				if seen[at] {
					t.Fatalf("panel %q covers another one at %s", p.Title, at)
				}
				seen[at] = true
			}
		}
	}
}

// metric matches the name of a series in a query.
var metric = regexp.MustCompile(`\b(?:mega|http_server|go|process)_\w+\b`)

// asked returns the series that the dashboard and the alerts use.
func asked(t *testing.T) []string {
	t.Helper()
	all := queries(t)
	for _, expr := range alerts(t) {
		all = append(all, expr)
	}
	names := metric.FindAllString(strings.Join(all, "\n"), -1)
	slices.Sort(names)
	return slices.Compact(names)
}
