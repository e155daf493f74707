//go:build linux || darwin

package cli_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/megaframework/mega/internal/failure"
)

// hostile is text that a terminal would obey, or show in another order.
const hostile = "\x1b[2J\x1b]0;owned\a\u009b31m\u202erm\u2066\rx\nINF fine\x7f"

// lying opens the socket of a process that answers each path with what is given.
func (s site) lying(t *testing.T, answers map[string]any) {
	t.Helper()
	folder := filepath.Join(strings.TrimPrefix(s.environ[0], "XDG_RUNTIME_DIR="), "mega")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(folder, "shop.7.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusConflict)
			answer = map[string]string{"code": "lock.invalid", "error": hostile}
		}
		if ready, ok := answer.(encoded); ok {
			_, _ = w.Write(ready)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// encoded is an answer in JSON. To encode a large one takes seconds, which are not
// the server's: its client waits for so long at most.
type encoded []byte

func TestTerminalDoesNotObeyOtherProcesses(t *testing.T) {
	holder := map[string]any{"app": hostile, "host": hostile, "pid": 7, "label": hostile, "request": hostile, "left": 1, "fence": 1}
	state := map[string]any{"key": "k" + hostile, "slots": 1, "holders": []any{holder}, "waiters": []any{holder}, "waiting": 1}
	s := newSite(t)
	s.lying(t, map[string]any{
		"/process":    map[string]any{"name": "shop" + hostile, "pid": 7, "driver": hostile, "scope": hostile, "bus": map[string]any{"driver": hostile, "scope": hostile}},
		"/locks":      map[string]any{"locks": []any{state}, "total": 1},
		"/lock":       state,
		"/bus/topics": []any{map[string]any{"pattern": hostile, "groups": []string{hostile}}},
		"/bus/tail":   map[string]any{"at": "2026-01-01T00:00:00Z", "subject": hostile, "data": hostile},
	})
	for _, line := range []string{
		"lock ls", "lock show k", "lock release k --reason r", "bus topics", "bus tail > --count 1", "bus pub a b", "bus req a b",
	} {
		for _, json := range []string{"", " --json"} {
			_, stdout, stderr := s.tool(t, line+json)
			if stdout+stderr == "" {
				t.Errorf("%s%s says nothing", line, json)
			}
			if i := strings.IndexFunc(stdout+stderr, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%s%s: the terminal is sent %q", line, json, stdout+stderr)
			}
			if strings.Contains(stdout+stderr, "\nINF fine") {
				t.Errorf("%s%s: a line is forged:\n%s", line, json, stdout+stderr)
			}
		}
	}
}

func TestHugeTextsOfAnotherProcessAreShown(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	var all []any
	for i := range 50 {
		all = append(all, map[string]any{"key": fmt.Sprint(huge, i), "slots": 1, "holders": []any{map[string]any{"label": huge}}})
	}
	s := newSite(t)
	ready, err := json.Marshal(map[string]any{"locks": all, "total": 50})
	if err != nil {
		t.Fatal(err)
	}
	s.lying(t, map[string]any{"/process": map[string]any{"name": "shop", "pid": 7}, "/locks": encoded(ready)})
	status, stdout, stderr := s.tool(t, "lock ls --json")
	if status == 0 || !strings.Contains(stderr, "longer than") || len(stdout) > 1<<10 {
		t.Errorf("an answer of 100 MiB: status %d, %d bytes, %.200s", status, len(stdout), stderr)
	}
}

// A process lists the first waiters of a key, and their total number.
func TestLimitsHaveTheNumberOfAllTheirWaiters(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	crowded := map[string]any{"key": "k", "waiting": 25, "waiters": []any{map[string]any{"pid": 1, "cost": 1}, map[string]any{"pid": 2, "cost": 1}}}
	s.lying(t, map[string]any{
		"/process": map[string]any{"name": "shop", "pid": 7},
		"/limits":  map[string]any{"limits": []any{crowded}, "total": 1},
		"/limit":   crowded,
	})
	for line, want := range map[string]string{
		"limit ls":            `k +- +- +- +- +25 +-`,
		"limit ls --json":     `"waiting": 25`,
		"limit show k":        `waits 2.*\n +and 23 more waiters`,
		"limit show k --json": `"waiting": 25`,
	} {
		status, stdout, stderr := verb(t, "caller", environ, strings.Fields(line)...)
		if status != failure.ExitOK || !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("%s: exit status %d: %s%s", line, status, stdout, stderr)
		}
	}
}
