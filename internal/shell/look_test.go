//go:build linux || darwin

package shell

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A hub that is stopped, for example by a debugger, answers nothing.
func TestListOfASilentHubEndsWithItsContext(t *testing.T) {
	p := newPlace(t)
	if err := os.MkdirAll(filepath.Dir(p.socket()), 0o700); err != nil {
		t.Fatal(err)
	}
	hub, err := net.Listen("unix", p.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hub.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		if c, err := hub.Accept(); err == nil {
			t.Cleanup(func() { _ = c.Close() })
			_, _ = c.Read(make([]byte, 1)) // the hello: the list waits for its answer
		}
	}()
	if _, err := List(ctx, Process{Name: "mega-lock"}, &Backend{Socket: p.socket()}, ""); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("the error of the list: %v", err)
	}
}

// A program that reads the result reads the error, too, as with `mega lock`.
func TestErrorIsJSONIfTheResultWouldBe(t *testing.T) {
	for args, code := range map[string]string{
		"exec k --json":                   "cli.missing_argument",
		"exec k --nope --json -- true":    "cli.unknown_flag",
		"exec k --wait 5 --json -- true":  "cli.wrong_flag",
		"ls --json a b":                   "cli.extra_argument",
		"limit k --json -- true":          "cli.missing_argument",
		"renew lease-aaaa --json --nope":  "cli.unknown_flag",
		"exce k --json -- true":           "cli.unknown_verb",
		"exec k --json -- no-such --json": "cli.invalid_argument",
	} {
		var out, errs strings.Builder
		status := Main(Process{Name: "mega-lock", Stdout: &out, Stderr: &errs}, strings.Fields(args))
		var e Error
		if err := json.Unmarshal([]byte(errs.String()), &e); err != nil || e.Code != code || e.Exit != status || e.Text == "" || out.Len() > 0 {
			t.Errorf("%s: exit status %d, %v: %s", args, status, err, &errs)
		}
	}
	var errs strings.Builder
	if status := Main(Process{Name: "mega-lock", Stderr: &errs}, []string{"exec", "k", "--nope", "--", "echo", "--json"}); status != ExitUsage || !strings.HasPrefix(errs.String(), "mega-lock: ") {
		t.Errorf("the flag of a command: exit status %d: %s", status, &errs)
	}
}
