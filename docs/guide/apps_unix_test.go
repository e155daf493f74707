//go:build linux || darwin

package guide_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pagetest "github.com/megaframework/mega/internal/testkit/page"
)

const multi = "../../sample/multi"

// executable is what go run runs in a sample's folder, where a program takes
// itself for what go run started.
func executable(t *testing.T, sample string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "go-build", "b001", "exe", filepath.Base(sample))
	if err := os.MkdirAll(filepath.Dir(exe), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-exec", "cp", ".", exe)
	cmd.Dir = sample
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", sample, err, out)
	}
	return exe
}

// typedIn does a line of a page in a sample's folder.
func typedIn(t *testing.T, dir, line string, environ ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = dir, append(clean(), environ...)
	out, err := cmd.CombinedOutput()
	if status, ok := errors.AsType[*exec.ExitError](err); ok { // go run says so
		return fmt.Sprintf("%s%v\n", out, status)
	}
	return string(out)
}

// clean is an environment in which nothing is configured.
func clean() []string {
	environ := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "MEGA_") })
	return append(environ, "NO_COLOR=1")
}

var pidOf = regexp.MustCompile(`"pid":\d+`)

func TestConsoleOfThePageOnApps(t *testing.T) {
	exe := executable(t, multi)
	page := read(t, appsPage)
	for _, block := range pagetest.Blocks(page, "console") {
		var now strings.Builder
		for _, x := range pagetest.Exchanges(block.Text) {
			got := typedIn(t, multi, strings.Replace(x.Typed, "go run .", exe, 1))
			if pagetest.Same(x.Answer, got) {
				got = x.Answer
			} else if !*update {
				t.Errorf("$ %s\nanswers\n%s\nthe page says\n%s", x.Typed, got, x.Answer)
			}
			fmt.Fprintf(&now, "$ %s\n%s", x.Typed, got)
		}
		page = strings.Replace(page, block.Text, now.String(), 1)
	}
	if *update {
		if err := os.WriteFile(appsPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
