// Package mutants tests the suite of a contract: it changes the front at one
// place, and expects the case about that place to fail.
package mutants

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Mutant is a change of the front that breaks a rule.
type Mutant struct {
	Case     string // rule/claim of the case that has to fail
	File     string // in the folder above the tests
	Old, New string // Old must stand in the file exactly once
}

// Table lists mutants. Its rows have the fields of a Mutant, and no name, so that
// they can be written without the names of the fields.
type Table = []struct{ Case, File, Old, New string }

// Catch fails t for each mutant that its case does not notice. The cases are the
// subtests of TestFleet in the package of t, and of TestAskingFleet if it has one. The changed file replaces its
// original for one build of that package's tests, by go's -overlay; the tree is
// not touched.
//
// A build takes two seconds of a processor, so that only some mutants have their
// turn; the others are only compared with their files.
func Catch(t *testing.T, turns int, all Table) {
	t.Helper()
	front, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	builds := make(chan struct{}, 2) // at once
	for i, row := range all {
		m := Mutant(row)
		t.Run(m.Case, func(t *testing.T) {
			t.Parallel()
			m.File = filepath.Join(front, m.File)
			source := m.source(t)
			if !HasTurn(i, len(all), turns) {
				t.Log("no turn in this run")
				return
			}
			builds <- struct{}{}
			defer func() { <-builds }()
			out, err := m.run(t, m.build(t, source))
			if err == nil || !m.noticed(string(out)) {
				t.Errorf("in %s\n%s\nbecame\n%s\nand nothing was noticed: %v\n%s", m.File, m.Old, m.New, err, tail(out))
			}
		})
	}
}

// Expect fails t unless check returns a failure of the case name, as rule/claim. A
// failure before the case, such as a backend that a busy machine kept from
// answering in time, proves nothing: check runs again. It does so once after a success,
// since a busy machine may keep a mutant from doing its harm.
func Expect(t *testing.T, name string, check func() error) {
	t.Helper()
	rule, _, _ := strings.Cut(name, "/")
	for try, passed := 1, false; ; try++ {
		err := check()
		switch {
		case err == nil && !passed && try < 5:
			passed = true
		case err == nil, try == 5:
			t.Errorf("not noticed by %s: %.300v", name, err)
			return
		case strings.Contains(err.Error(), "\n\t"+rule+": "):
			t.Logf("noticed: %.300v", err)
			return
		}
		t.Logf("no failure of the case: %.300v", err)
	}
}

// HasTurn reports whether mutant i of n is one of those that have a turn: the same
// ones in each run, spread over the table. With enough turns it is each.
func HasTurn(i, n, turns int) bool { return turns >= n || i*turns%n < turns }

// source returns the changed file.
func (m Mutant) source(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(m.File)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.Old); n != 1 {
		t.Fatalf("%s has the text to be changed %d times, want once; bring the table up to date:\n%s", m.File, n, m.Old)
	}
	return strings.Replace(string(source), m.Old, m.New, 1)
}

// build builds the tests of the package over a front in which the file has
// another source.
func (m Mutant) build(t *testing.T, source string) (bin string) {
	t.Helper()
	dir := t.TempDir()
	changed := filepath.Join(dir, filepath.Base(m.File))
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {m.File: changed}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, changed, []byte(source))
	write(t, overlay, replace)
	bin = filepath.Join(dir, "mutated.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-ldflags", "-s -w", "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	return bin
}

// run runs the case of the mutant.
func (m Mutant) run(t *testing.T, bin string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, bin, "-test.run", m.pattern(), "-test.timeout", "30s")
	run.Env = append(os.Environ(), "MEGA_TEST_SCALE=1") // a mutant that fails now and then would pass in a few calls
	return run.CombinedOutput()
}

// suites matches the names of the tests that run all cases.
const suites = "Test(Asking)?Fleet"

// path returns the case as a part of a test's name.
func (m Mutant) path() string { return strings.ReplaceAll(m.Case, " ", "_") }

// noticed reports whether the case has failed, or hangs: a mutant may spin where
// fake time stands still.
func (m Mutant) noticed(out string) bool {
	failed := regexp.MustCompile("--- FAIL: " + suites + "/" + regexp.QuoteMeta(m.path()) + " ")
	return failed.MatchString(out) || strings.Contains(out, "panic: ") && strings.Contains(out, m.path())
}

// pattern returns the -test.run that selects only the case.
func (m Mutant) pattern() string {
	parts := strings.Split(m.path(), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return "^" + suites + "$/" + strings.Join(parts, "/")
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tail returns the end of a long output.
func tail(out []byte) []byte { return out[max(0, len(out)-2000):] }
