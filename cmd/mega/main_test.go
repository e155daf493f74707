package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/failure"
)

// role makes the test binary the program mega.
const role = "MEGA_TEST_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		os.Args[0] = "mega"
		main()
	}
	goleak.VerifyTestMain(m)
}

// mega runs the program in this process.
func mega(args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(cli.Process{Args: append([]string{"mega"}, args...), Environ: os.Environ(), Stdout: &out, Stderr: &err})
	return status, out.String(), err.String()
}

func TestVerbsNeedNoApp(t *testing.T) {
	status, stdout, stderr := mega()
	if status != failure.ExitOK || stderr != "" {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	if status, stdout, _ := mega("--version"); status != failure.ExitOK || !strings.HasPrefix(stdout, "mega  ") {
		t.Errorf("--version: exit status %d: %s", status, stdout)
	}
	for _, verb := range []string{"completion", "dev", "explain", "lock", "mcp", "new", "version"} {
		if !strings.Contains(stdout, "\n  "+verb+"  ") {
			t.Errorf("%s is missing:\n%s", verb, stdout)
		}
	}
}

func TestWriteErrorsHaveACorrection(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "letter"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unwritable := filepath.Join(full, "letter", "shop")
	for _, x := range []struct {
		args   []string
		status int
		says   []string
	}{
		{[]string{"new"}, failure.ExitUsage, []string{"cli.missing_argument", "mega new shop"}},
		{[]string{"new", "a", "b"}, failure.ExitUsage, []string{"cli.extra_argument", `"b"`}},
		{[]string{"new", "Shop"}, failure.ExitUsage, []string{"new.name", "lower-case", "choose a word such as shop"}},
		{[]string{"new", "func"}, failure.ExitUsage, []string{"new.name", "keyword"}},
		{[]string{"new", "shop", "--dir", full}, failure.ExitUsage, []string{"new.not_empty", "letter", "--dir DIR"}},
		{[]string{"new", "shop", "--dir", unwritable}, failure.ExitUnavailable, []string{"new.failed", "letter"}},
		{[]string{"new", "shop", "--mega", full}, failure.ExitUsage, []string{"new.no_framework", "--mega DIR"}},
	} {
		status, stdout, stderr := mega(x.args...)
		if status != x.status || stdout != "" {
			t.Errorf("%q: exit status %d, want %d: %s%s", x.args, status, x.status, stdout, stderr)
		}
		for _, s := range x.says {
			if !strings.Contains(stderr, s) {
				t.Errorf("%q does not say %q:\n%s", x.args, s, stderr)
			}
		}
	}
}

func TestUntidiedApplicationMentionsGoModTidy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop")
	status, stdout, stderr := mega("new", "shop", "--no-tidy", "--link", "--dir", dir)
	if status != failure.ExitOK || !strings.Contains(stdout, "\n  go mod tidy  ") || !strings.Contains(stdout, "\n  handlers_test.go\n") {
		t.Errorf("exit status %d:\n%s%s", status, stdout, stderr)
	}
}
