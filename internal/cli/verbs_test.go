package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/failure"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a page with the one in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test -update writes it anew):\n%s", file, diff)
	}
}

func TestHelpOfEveryVerb(t *testing.T) {
	var all strings.Builder
	for _, line := range []string{
		"help", "help serve", "help boot", "help doctor", "help routes", "help config", "help config explain", "help config print",
		"help config reload", "help lock", "help lock ls", "help lock release", "help limit", "help limit ls", "help limit exec", "help limit pause", "help bus", "help bus tail", "help bus pub", "help bus req", "help worker", "help worker ls", "help worker restart", "help explain", "help completion", "help version",
	} {
		status, stdout, stderr := shop(t, strings.Fields(line)...)
		if status != failure.ExitOK || stderr != "" {
			t.Errorf("%s: exit status %d: %s", line, status, stderr)
		}
		all.WriteString("$ shop " + line + "\n" + stdout + "\n")
		args := strings.Fields(line)[1:]
		if _, dashed, _ := shop(t, append(args, "--help")...); dashed != stdout {
			t.Errorf("%s: with --help it is\n%s", line, dashed)
		}
		for row := range strings.Lines(stdout) {
			if len([]rune(row)) > 121 {
				t.Errorf("%s: the line is too long for a terminal: %q", line, row)
			}
		}
	}
	golden(t, "help.txt", all.String())
}

// Not every verb boots, or looks at the topic when it does.
func TestEveryVerbRefusesAnUnknownTopicOfTrace(t *testing.T) {
	for _, line := range []string{
		"boot --dry-run", "doctor", "routes", "config print", "config check", "config schema", "config explain lock.ttl",
		"lock ls", "limit ls", "bus topics", "worker ls", "explain", "completion bash", "version", "help",
	} {
		status, stdout, stderr := shop(t, append(strings.Fields(line), "--trace", "everything")...)
		if status != failure.ExitUsage || stdout != "" || !strings.Contains(stderr, "(boot.unknown_trace)") {
			t.Errorf("%s: exit status %d\n%s%s", line, status, stdout, stderr)
		}
	}
}

func TestCodesAreListedAndExplained(t *testing.T) {
	_, list, _ := shop(t, "explain")
	for _, c := range failure.Codes() {
		if !strings.Contains(list, "\n"+c.Name+" ") {
			t.Errorf("%s is not listed", c.Name)
		}
	}
	if status, page, _ := shop(t, "explain", "lock.lost"); status != failure.ExitOK || !strings.HasPrefix(page, "lock.lost: ") {
		t.Errorf("exit status %d: %s", status, page)
	}
	var one failure.Code
	if _, doc, _ := shop(t, "explain", "lock.lost", "--json"); json.Unmarshal([]byte(doc), &one) != nil || one.Name != "lock.lost" {
		t.Errorf("got %s", doc)
	}
	var all []failure.Code
	if _, doc, _ := shop(t, "explain", "--json"); json.Unmarshal([]byte(doc), &all) != nil || len(all) != len(failure.Codes()) {
		t.Errorf("got %s", doc)
	}
	if _, stdout, _ := shop(t, "__complete", "explain", "lock.los"); !strings.Contains(stdout, "lock.lost\t") {
		t.Errorf("completed by %s", stdout)
	}
}

func TestVersionDescribesTheBuild(t *testing.T) {
	status, page, _ := shop(t, "version")
	if status != failure.ExitOK || !strings.HasPrefix(page, "shop") || !strings.Contains(page, "go1.") {
		t.Errorf("exit status %d: %s", status, page)
	}
	var v struct{ Program, Module, Version, Mega, Go, Platform string }
	if status, flag, _ := shop(t, "--version"); status != failure.ExitOK || flag != page {
		t.Errorf("--version: exit status %d: %s, want %s", status, flag, page)
	}
	_, doc, _ := shop(t, "version", "--json")
	if _, flag, _ := shop(t, "--version", "--json"); flag != doc {
		t.Errorf("--version --json: %s, want %s", flag, doc)
	}
	if err := json.Unmarshal([]byte(doc), &v); err != nil || v.Program != "shop" || v.Version == "" || v.Mega == "" || v.Go == "" || v.Platform == "" {
		t.Errorf("got %+v, %v: %s", v, err, doc)
	}
}

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	for _, line := range []string{"completion bash", "completion zsh", "completion fish", "completion powershell", "help", "help serve", "serve --help"} {
		var stderr bytes.Buffer
		status := cli.Run(cli.Process{Args: append([]string{"shop"}, strings.Fields(line)...), Stdout: full{}, Stderr: &stderr})
		if status != failure.ExitUnavailable || !strings.Contains(stderr.String(), "(cli.output)") {
			t.Errorf("%s: exit status %d: %s", line, status, &stderr)
		}
	}
}

// full is a standard output on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestCompletionScriptsAreWritten(t *testing.T) {
	for shell, says := range map[string]string{"bash": "__start_shop", "zsh": "#compdef shop", "fish": "complete -c shop", "powershell": "Register-ArgumentCompleter"} {
		if status, script, stderr := shop(t, "completion", shell); status != failure.ExitOK || !strings.Contains(script, says) {
			t.Errorf("%s: exit status %d: %s%s", shell, status, script, stderr)
		}
	}
	_, script, _ := shop(t, "completion", "bash")
	cmd := exec.CommandContext(t.Context(), "bash", "-n")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("bash does not understand it: %v\n%s", err, out)
	}
	for line, want := range map[string]string{"__complete conf": "config\t", "__complete help lock s": "show\t", "__complete completion f": "fish\n"} {
		if _, stdout, _ := shop(t, strings.Fields(line)...); !strings.HasPrefix(stdout, want) {
			t.Errorf("%s: got %s", line, stdout)
		}
	}
}
