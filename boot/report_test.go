package boot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/internal/plan"
)

// fullReport has something in every field.
func fullReport() plan.Report {
	return plan.Report{
		Program: "shop", Version: "v1.4.2", Go: "go1.26.1", Env: "staging", PID: 4121, Took: 412 * time.Millisecond,
		Files: []string{"mega.config.yaml", "mega.config.staging.yaml"}, Keys: 41,
		Set: []plan.Setting{
			{Key: "cache.main.url", Value: "redis://***@cache:6379/0", Origin: "env MEGA_CACHE_MAIN_URL", Over: []string{"mega.config.staging.yaml:3", "mega.config.yaml:8"}},
			{Key: "lock.ttl", Value: "30s", Origin: "mega.config.yaml:4"},
		},
		Lock: plan.Decision{
			Component: "lock", Chosen: "redis", Scope: "fleet", Cache: "main", Server: "redis://***@cache:6379/0",
			Why: "a cache is configured", Key: "cache.main.url", Origin: "env MEGA_CACHE_MAIN_URL",
			Candidates: []plan.Candidate{
				{Name: "redis", Scope: "fleet", Outcome: plan.Chosen, Reason: "a cache is configured", Key: "cache.main.url", Origin: "env MEGA_CACHE_MAIN_URL"},
				{Name: "cluster", Scope: "node", Outcome: plan.Rejected, Reason: "this process is not a worker, and cluster.socket is not set", Key: "cluster.socket", Origin: "not set", Needs: "cluster.socket"},
				{Name: "memory", Scope: "process", Outcome: plan.Outdone, Reason: "redis has a wider scope", Key: "cache.main.url", Origin: "env MEGA_CACHE_MAIN_URL", Needs: "lock.driver: memory"},
			},
			Lacks:    []plan.Lack{{Rule: "L9", Why: "it polls"}},
			Warnings: []string{"there are 2 replicas: a failover may lose locks that were just granted"},
		},
		Bus: plan.Decision{
			Component: "bus", Chosen: "memory", Scope: "process", Why: "neither a cache nor a cluster is configured", Origin: "not set",
			Candidates: []plan.Candidate{
				{Name: "nats", Scope: "fleet", Outcome: plan.Rejected, Reason: "nats.url is not set", Key: "nats.url", Origin: "not set", Needs: "nats.url"},
				{Name: "cluster", Scope: "node", Outcome: plan.Rejected, Reason: "this process is not a worker, and cluster.socket is not set", Key: "cluster.socket", Origin: "not set", Needs: "cluster.socket"},
				{Name: "memory", Scope: "process", Outcome: plan.Chosen, Reason: "neither a cache nor a cluster is configured", Origin: "not set"},
			},
			Warnings: []string{"messages end at this process: another process does not receive them"},
			Wider:    []string{"nats.url: nats://localhost:4222  in mega.config.yaml"},
		},
		Limit: plan.Decision{
			Component: "limit", Chosen: "redis", Scope: "fleet", Cache: "main", Server: "redis://***@cache:6379/0", As: "lock",
			Why: "the locks use it", Key: "cache.main.url", Origin: "env MEGA_CACHE_MAIN_URL",
			Candidates: []plan.Candidate{
				{Name: "redis", Scope: "fleet", Outcome: plan.Chosen, Reason: "the locks use it", Key: "cache.main.url", Origin: "env MEGA_CACHE_MAIN_URL"},
				{Name: "cluster", Scope: "node", Outcome: plan.Rejected, Reason: "the locks use redis", Key: "cache.main.url", Origin: "env MEGA_CACHE_MAIN_URL", Needs: "limit.driver: cluster"},
				{Name: "memory", Scope: "process", Outcome: plan.Rejected, Reason: "the locks use redis", Key: "cache.main.url", Origin: "env MEGA_CACHE_MAIN_URL", Needs: "limit.driver: memory"},
			},
		},
		Apps: []plan.Served{
			{App: "web", URL: "http://127.0.0.1:8080", Host: "shop.example.org", Routes: 14, Locales: []string{"ko", "en"}},
			{App: "admin", URL: "http://127.0.0.1:8080/admin", Routes: 1},
		},
		LeftOut: []string{"ledger"},
		Ops:     "http://127.0.0.1:9090",
		Console: true,
		Admin:   "/run/user/1000/mega/shop.4121.sock",
		Phases: []plan.Phase{
			{Name: "lock", Took: 118 * time.Millisecond}, {Name: "provide shop.NewStore", Took: 1400 * time.Microsecond},
			{Name: "migrate", Took: 96 * time.Millisecond}, {Name: "warm up", Took: 97 * time.Millisecond}, {Name: "bus", Took: 20 * time.Microsecond},
		},
	}
}

func TestReportIsAPage(t *testing.T) {
	full := fullReport()
	var page bytes.Buffer
	if err := full.Print(&page); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.txt", page.String())
	record, err := json.MarshalIndent(&full, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", string(record)+"\n")
}

// The page and the record are made of one value. Each has all that is in it:
// what a field says is told in both places.
func TestReportIsTheSameAsARecord(t *testing.T) {
	full := fullReport()
	var page, log bytes.Buffer
	if err := full.Print(&page); err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewJSONHandler(&log, nil)).LogAttrs(context.Background(), slog.LevelInfo, "boot.report", slog.Any("report", &full))
	var record struct{ Report json.RawMessage }
	if err := json.Unmarshal(log.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	told := texts(t, record.Report)
	words := "env pid config keys of them set lock bus apps ops slowest ready in 412ms scope at no needs without over routes 1 route for left out wider scope or /livez /readyz /metrics /console admin socket 97ms 118ms 96ms · !"
	for word := range strings.FieldsSeq(page.String()) {
		word = strings.Trim(word, "():,")
		if !strings.Contains(told, word) && !strings.Contains(words, word) {
			t.Errorf("%q is on the page and not in the record:\n%s\n%s", word, &page, record.Report)
		}
	}
	// Phases are shown if they took long; what is faint on the page is not
	// told twice, as the origin of a candidate that the decision shares.
	for _, field := range leaves(reflect.ValueOf(full)) {
		if !strings.Contains(page.String(), field) && field != "lock" && field != "bus" && !strings.HasPrefix(field, "provide ") {
			t.Errorf("%q is in the record and not on the page:\n%s", field, &page)
		}
	}
}

// leaves are the texts of all fields, but for those that name an outcome, the
// scope of a candidate or a component: on the page these are places.
func leaves(v reflect.Value) (all []string) {
	switch v.Kind() {
	case reflect.Struct:
		for name, f := range v.Fields() {
			if name.Name == "Outcome" || name.Name == "Component" || name.Name == "Scope" && v.Type() == reflect.TypeFor[plan.Candidate]() || name.Name == "Cache" {
				continue
			}
			all = append(all, leaves(f)...)
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, leaves(v.Index(i))...)
		}
	case reflect.String:
		all = append(all, v.String())
	}
	return all
}

func TestColoursAreForTerminals(t *testing.T) {
	p, stderr := process("MEGA_LOG_FORMAT=text")
	start(t, p, mega.App("main", mega.Routes(hello)))
	if strings.Contains(stderr.String(), "\x1b[") {
		t.Errorf("colours in a file:\n%q", stderr)
	}
}

func TestWarningsAreRecordsOfTheirOwnWhereMachinesRead(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		p, stderr := process("MEGA_LOG_FORMAT=" + format)
		start(t, p, mega.App("main", mega.Routes(hello)))
		if alone := strings.Contains(stderr.String(), `"level":"WARN","msg":"lock: exclusion ends at this process`); alone != (format == "json") {
			t.Errorf("%s: the warning is a record: %v\n%s", format, alone, stderr)
		}
		if n := strings.Count(stderr.String(), "exclusion ends at this process"); n != map[string]int{"json": 2, "text": 1}[format] {
			t.Errorf("%s: the warning is told %d times:\n%s", format, n, stderr)
		}
	}
}
