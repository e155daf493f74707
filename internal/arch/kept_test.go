package arch_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/internal/arch"
	"github.com/megaframework/mega/internal/shell/shelltest"
	"github.com/megaframework/mega/limit/limittest"
	"github.com/megaframework/mega/lock/guard/guardtest"
	"github.com/megaframework/mega/lock/locktest"
)

func TestEachRuleIsNamedByTheCodeThatKeepsIt(t *testing.T) {
	var named []string
	for _, file := range files(t) {
		if !arch.KeepsRules(file) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := arch.RulesNamed(file, string(text))
		if err != nil {
			t.Error(err)
		}
		named = append(named, ids...)
	}
	for _, v := range arch.RulesKept(contractIDs(), named) {
		t.Error(v)
	}
}

func contractIDs() (ids []string) {
	for _, r := range locktest.Rules() {
		ids = append(ids, r.ID)
	}
	for _, r := range guardtest.Rules() {
		ids = append(ids, r.ID)
	}
	for _, r := range limittest.Rules() {
		ids = append(ids, r.ID)
	}
	for _, r := range bustest.Rules() {
		ids = append(ids, r.ID)
	}
	for _, r := range shelltest.Rules() {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestRulesAreFoundWhereCodeKeepsThem(t *testing.T) {
	for _, tt := range []struct {
		name, file, text string
		want             []string
	}{
		{"a comment at a line", "lock/a.go", "package lock\n\nvar a = 1 // L4\n", []string{"L4"}},
		{"two ids in one comment", "lock/a.go", "package lock\n\n// a keeps L4, L12.\nvar a = 1\n", []string{"L4", "L12"}},
		{"the package doc", "lock/doc.go", "// Package lock keeps L4.\npackage lock\n", nil},
		{"a string", "lock/a.go", "package lock\n\nvar a = \"L4\"\n", nil},
		{"an example in quotes", "lock/a.go", "package lock\n\nvar a = 1 // \"L4\"\n", nil},
		{"a longer word", "lock/a.go", "package lock\n\nvar a = 1 // XL4 or S3a\n", nil},
		{"Lua", "drivers/redis/a.lua", "local a = 'L4' -- L6\n", []string{"L6"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := arch.RulesNamed(tt.file, tt.text)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
	for file, want := range map[string]bool{
		"lock/queue.go": true, "bus/sub.go": true, "drivers/redis/acquire.lua": true, "boot/open.go": true, "internal/selection/wait.go": true, "internal/cli/cli.go": false,
		"lock/queue_test.go": false, "limit/wait.go": true, "internal/windows/log.go": true, "limit/limittest/run.go": false, "lock/locktest/run.go": false, "bus/bustest/run.go": false, "docs/contract.md": false, "bench/main.go": false,
	} {
		if got := arch.KeepsRules(file); got != want {
			t.Errorf("%s keeps rules: %v, want %v", file, got, want)
		}
	}
}

func TestRulesThatNothingKeepsAreFound(t *testing.T) {
	if got := arch.RulesKept([]string{"L1", "S1"}, []string{"S1", "L1", "S1"}); len(got) != 0 {
		t.Errorf("kept rules are refused: %q", got)
	}
	if got := arch.RulesKept([]string{"L1", "S1"}, []string{"L1"}); len(got) != 1 {
		t.Errorf("a rule that no code names: %q, want one sentence", got)
	}
	if got := arch.RulesKept([]string{"L1"}, []string{"L1", "L9"}); len(got) != 1 {
		t.Errorf("an id that is no rule: %q, want one sentence", got)
	}
}
