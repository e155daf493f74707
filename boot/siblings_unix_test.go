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

// A supervisor keeps the locks of its workers, and a command or another process in
// memory does not share them.
func TestLocksInMemoryBesideWorkersAreWarnedOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := with("XDG_RUNTIME_DIR="+dir, "TMPDIR="+dir)
	workers := program.and("MEGA_CLUSTER_WORKERS=2").start(t)
	workers.report(t)
	want := fmt.Sprintf("does not share the locks in the memory of this one, pid %d (cluster): they do not exclude each other", workers.cmd.Process.Pid)

	beside := program.start(t)
	report := beside.report(t)
	if !strings.Contains(fmt.Sprint(report.Lock.Warnings), want) {
		t.Errorf("a process in memory: %q", report.Lock.Warnings)
	}
	if got := beside.readiness(t, report.Ops); !strings.Contains(got, want) {
		t.Errorf("a process in memory is %s", got)
	}
	_ = beside.stop(t)

	command := program.and("MEGA_TEST_SHOP=with a command", "MEGA_CLUSTER_WORKERS=2", "MEGA_LOG_LEVEL=info")
	command.args = []string{"import", "products.csv"}
	cmd, stderr := command.command(t.Context(), t)
	_ = cmd.Run() // it returns an error
	if !strings.Contains(stderr.String(), want) {
		t.Errorf("the command is not warned of the supervisor:\n%s", stderr)
	}
}
