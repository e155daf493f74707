package arch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/internal/shell/shelltest"
	"github.com/megaframework/mega/limit/limittest"
	"github.com/megaframework/mega/lock/guard/guardtest"
	"github.com/megaframework/mega/lock/locktest"
)

// contractRule matches a rule of docs/contract.md: its id and its words.
var contractRule = regexp.MustCompile(`(?m)^- ([A-Z]\d+) (.+)$`)

func TestContractEqualsTheRulesOfTheSuites(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "contract.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented, tested [][2]string
	for _, m := range contractRule.FindAllSubmatch(text, -1) {
		documented = append(documented, [2]string{string(m[1]), string(m[2])})
	}
	for _, r := range locktest.Rules() {
		tested = append(tested, [2]string{r.ID, r.Sentence})
	}
	for _, r := range guardtest.Rules() {
		tested = append(tested, [2]string{r.ID, r.Sentence})
	}
	for _, r := range limittest.Rules() {
		tested = append(tested, [2]string{r.ID, r.Sentence})
	}
	for _, r := range bustest.Rules() {
		tested = append(tested, [2]string{r.ID, r.Sentence})
	}
	for _, r := range shelltest.Rules() {
		tested = append(tested, [2]string{r.ID, r.Sentence})
	}
	for i := range max(len(documented), len(tested)) {
		if i >= len(documented) || i >= len(tested) {
			t.Fatalf("docs/contract.md has %d rules, the suites have %d", len(documented), len(tested))
		}
		if !slices.Equal(documented[i][:], tested[i][:]) {
			t.Errorf("rule %d differs:\ndocs/contract.md: %s %s\nthe suites:       %s %s", i+1, documented[i][0], documented[i][1], tested[i][0], tested[i][1])
		}
	}
}
