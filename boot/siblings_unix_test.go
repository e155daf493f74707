//go:build linux || darwin

package boot_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// readiness is the answer of /readyz.
func (s *started) readiness(t *testing.T, ops string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ops+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%d %s: %v", answer.StatusCode, body, err)
	}
	return string(body)
}

func TestTwoProcessesWithLocksInMemoryAreWarnedOfEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := with("XDG_RUNTIME_DIR="+dir, "TMPDIR="+dir)
	const warning = "keeps its own locks in memory, pid "
	pid := func(s *started) string { return fmt.Sprint(warning, s.cmd.Process.Pid, ":") }

	first := program.start(t)
	report := first.report(t)
	other := program.and("MEGA_NAME=other").start(t)
	tested := program.and("MEGA_ENV=test").start(t)
	for name, warnings := range map[string][]string{
		"the first": report.Lock.Warnings, "another program": other.report(t).Lock.Warnings, "in env test": tested.report(t).Lock.Warnings,
	} {
		if strings.Contains(fmt.Sprint(warnings), warning) {
			t.Errorf("%s: %q", name, warnings)
		}
	}
	if got := first.readiness(t, report.Ops); strings.Contains(got, warning) {
		t.Errorf("alone, it is %s", got)
	}

	second := program.start(t)
	if got := second.report(t); !strings.Contains(fmt.Sprint(got.Lock.Warnings), pid(first)) {
		t.Errorf("at boot: %q", got.Lock.Warnings)
	}
	if got := first.readiness(t, report.Ops); !strings.Contains(got, pid(second)) {
		t.Errorf("the first is %s", got)
	}
	run := program
	run.args = []string{"doctor"}
	cmd, _ := run.command(t.Context(), t)
	var page bytes.Buffer
	cmd.Stdout = &page
	_ = cmd.Run() // its status depends on the machine
	for _, s := range []*started{first, second} {
		if !strings.Contains(page.String(), fmt.Sprint("pid ", s.cmd.Process.Pid)) {
			t.Errorf("doctor does not name %d:\n%s", s.cmd.Process.Pid, &page)
		}
	}

	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = second.wait(t)
	if got := first.readiness(t, report.Ops); strings.Contains(got, warning) {
		t.Errorf("after the end of the second: %s", got)
	}
}
