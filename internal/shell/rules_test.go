//go:build linux || darwin

package shell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/shell/shelltest"
)

func TestEveryRuleHasACase(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if _, comment, ok := strings.Cut(line, "{ // "); ok && strings.HasPrefix(line, "func Test") {
				tests.WriteString(" " + strings.NewReplacer(",", " ", "\n", " ").Replace(comment))
			}
		}
	}
	for _, r := range shelltest.Rules() {
		if !strings.Contains(tests.String(), " "+r.ID+" ") {
			t.Errorf("no test is marked as a case of %s", r.ID)
		}
	}
}
