package guide_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const guaranteesPage = "14-guarantees.md"

var (
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	namedTest = regexp.MustCompile(`\bTest[A-Z]\w+`)
	namedRule = regexp.MustCompile(`\b[AEGLOPSW][1-9]\d?\b`)
)

// What the page refers to exists: the test that shows a guarantee, and the rule
// that promises it.
func TestGuaranteesOfThePageHaveTheirTestsAndRules(t *testing.T) {
	page, tests := read(t, guaranteesPage), testsOfTheRepository(t)
	named := namedTest.FindAllString(page, -1)
	if len(named) < 60 {
		t.Errorf("the page names %d tests", len(named))
	}
	for _, name := range named {
		if !tests[name] {
			t.Errorf("no test has the name %s", name)
		}
	}
	contract := read(t, "../contract.md")
	for _, rule := range namedRule.FindAllString(page, -1) {
		if !strings.Contains(contract, "\n- "+rule+" ") {
			t.Errorf("the contract has no rule %s", rule)
		}
	}
}

// testsOfTheRepository returns the names of all tests.
func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
			all[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
