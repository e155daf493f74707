//go:build linux || darwin

package shell

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	limitdriver "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock"
)

// hostile is text of another process that a terminal would obey.
const hostile = "a\x1b[2J\u009b2J\u202eb"

func obeyed(s string) bool { return strings.ContainsAny(s, "\x1b\u009b\u202e") }

func TestResultThatCannotBeWrittenIsAnError(t *testing.T) {
	full, err := os.Open(os.DevNull) // refuses writes
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	for _, asJSON := range []bool{false, true} {
		p := Process{Name: "mega-lock", Stdout: full, JSON: asJSON}
		locks := Listing{Locks: []lock.State{{Key: "k", Waiters: []lock.Holder{{}}}}}
		for _, err := range []error{printList(p, locks), printLimits(p, LimitListing{})} {
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != "cli.output" || e.Exit != ExitUnavailable {
				t.Errorf("json %v: got %v", asJSON, err)
			}
		}
	}
	for _, line := range []string{"help", "--help", "help exec", "exec --help"} {
		var stderr strings.Builder
		status := Main(Process{Name: "mega-lock", Stdout: full, Stderr: &stderr}, strings.Fields(line))
		if status != ExitUnavailable || !strings.Contains(stderr.String(), "(cli.output)") {
			t.Errorf("%s: exit status %d: %s", line, status, &stderr)
		}
	}
}

func TestTextOfOthersDoesNotReachTheTerminal(t *testing.T) {
	locks := Listing{Locks: []lock.State{{Key: "k", Holders: []lock.Holding{{Holder: lock.Holder{Label: hostile}}}}}}
	limits := LimitListing{Limits: []limitdriver.State{{Key: "k", Paused: &limitdriver.Pause{Left: time.Second, Reason: hostile}}}}
	for _, asJSON := range []bool{false, true} {
		var out strings.Builder
		p := Process{Name: "mega-lock", Stdout: &out, Stderr: &out, JSON: asJSON}
		if err := printList(p, locks); err != nil {
			t.Fatal(err)
		}
		if err := printLimits(p, limits); err != nil {
			t.Fatal(err)
		}
		if obeyed(out.String()) {
			t.Errorf("json %v: %q", asJSON, out.String())
		}
		for d := json.NewDecoder(strings.NewReader(out.String())); asJSON && d.More(); {
			var document any
			if err := d.Decode(&document); err != nil {
				t.Fatal(err)
			}
		}
		out.Reset()
		p.warn("%s", hostile)
		show(p, "mega-lock help", &Error{Code: "lock.lost", Exit: ExitLost, Text: hostile, Actions: []string{hostile}})
		if obeyed(out.String()) || !strings.Contains(out.String(), `\u001b`) {
			t.Errorf("json %v: the error is %q", asJSON, out.String())
		}
	}
}
