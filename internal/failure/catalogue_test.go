package failure_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/failure"
)

// exits are the names of the exit statuses in the sources.
var exits = map[string]int{
	"ExitUsage": failure.ExitUsage, "ExitUnavailable": failure.ExitUnavailable, "ExitInternal": failure.ExitInternal,
	"ExitOverrun": failure.ExitOverrun, "ExitConfig": failure.ExitConfig, "ExitCut": failure.ExitCut,
}

// notCodes are words of the sources that look like a code and are none.
var notCodes = []string{
	"boot.report",                               // a record
	"mega.config", "app.config", "cluster.sock", // files
	"mega.probe",                               // the key of a probe
	"mega.app", "mega.request", "lock.acquire", // spans and their attributes
	"lock.call", // a context
}

func TestEveryCodeInTheSourcesIsInTheCatalogueAndNoOther(t *testing.T) {
	areas := map[string]bool{}
	listed := map[string]failure.Code{}
	for _, c := range failure.Codes() {
		if _, twice := listed[c.Name]; twice {
			t.Errorf("%s is listed twice", c.Name)
		}
		listed[c.Name] = c
		area, _, _ := strings.Cut(c.Name, ".")
		areas[area] = true
	}
	keys := keysOf(reflect.TypeFor[config.Config](), "")
	used := map[string]string{}
	for _, file := range sources(t) {
		for text, at := range words(file) {
			area, _, _ := strings.Cut(text, ".")
			if areas[area] && !keys[text] && !slices.Contains(notCodes, text) {
				used[text] = at
			}
		}
	}
	for code, at := range used {
		if _, ok := listed[code]; !ok {
			t.Errorf("%s: %q is not in the catalogue (internal/failure/catalogue.yaml); if it is no code, name it in notCodes", at, code)
		}
	}
	for code := range listed {
		if used[code] == "" {
			t.Errorf("%s is in the catalogue, but nothing has that code", code)
		}
	}
}

func TestEveryFailureHasTheExitStatusOfItsCode(t *testing.T) {
	seen := 0
	listed := map[string]failure.Code{}
	for _, c := range failure.Codes() {
		listed[c.Name] = c
	}
	for _, file := range sources(t) {
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			code, exit := fieldOf(lit, "Code"), fieldOf(lit, "Exit")
			c, known := listed[strings.Trim(code, `"`)]
			if exit == "" || !known || !isName(lit.Type, "Failure") {
				return true
			}
			seen++
			if want, known := exits[exit]; !known || c.Exit != want {
				t.Errorf("%s: %s ends with %s, in the catalogue with %d", file.at(lit.Pos()), code, exit, c.Exit)
			}
			return true
		})
	}
	if seen < 10 {
		t.Errorf("the test sees %d failures only", seen)
	}
}

func TestEveryEntryOfTheCatalogueIsComplete(t *testing.T) {
	for _, c := range failure.Codes() {
		if c.Title == "" || len(c.Means) < 20 {
			t.Errorf("%s does not say what it means: %+v", c.Name, c)
		}
		if len(c.Do) == 0 {
			t.Errorf("%s does not say what to do", c.Name)
		}
	}
}

func TestCodesAreExplained(t *testing.T) {
	c, err := failure.Explain("lock.driver_unavailable")
	if err != nil || c.Exit != failure.ExitUnavailable {
		t.Fatalf("got %+v, %v", c, err)
	}
	if upper, err := failure.Explain(" LOCK.DRIVER_UNAVAILABLE"); err != nil || upper.Name != c.Name {
		t.Errorf("in upper case: %+v, %v", upper, err)
	}
	var page strings.Builder
	if err := c.Print(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"lock.driver_unavailable: Cannot use the lock server", "exit status 69", "Usual causes\n  • ", "What to do\n  • ", "boot.wait_for"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not told:\n%s", want, &page)
		}
	}
	for line := range strings.Lines(page.String()) {
		if len([]rune(line)) > 82 {
			t.Errorf("the line is too long for a terminal: %q", line)
		}
	}
}

// Codes of verbs and of mega's own tools end no boot.
func TestExitStatusOfAVerbIsExplainedWithoutABoot(t *testing.T) {
	for _, code := range []string{"cli.no_process", "dev.failed", "boot.command_failed"} {
		c, err := failure.Explain(code)
		if err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		if err := c.Print(&page); err != nil {
			t.Fatal(err)
		}
		if _, status, _ := strings.Cut(page.String(), "\n"); !strings.HasPrefix(status, "It ends the program with exit status ") {
			t.Errorf("%s is explained as\n%s", code, &page)
		}
	}
}

func TestUnknownCodeIsAnsweredWithSimilarCodes(t *testing.T) {
	for code, want := range map[string]string{
		"driver_unavailable": "lock.driver_unavailable", "lock.unreachable": "lock.unavailable", "lock": "lock.no_cache", "nothing.at_all": "there is no code",
	} {
		if _, err := failure.Explain(code); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", code, err, want)
		}
	}
}

// source is a file of the module, tests aside.
type source struct {
	set    *token.FileSet
	syntax *ast.File
}

func (s source) at(pos token.Pos) string { return s.set.Position(pos).String() }

func sources(t *testing.T) (files []source) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "../.." && (outside(path) || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		files = append(files, source{set, syntax})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// outside reports whether a folder is a module of its own.
func outside(path string) bool {
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

var codeRule = regexp.MustCompile(`^[a-z]+(\.[a-z_]+)?$`)

// words returns the string literals of a file that may be codes, with their
// places.
func words(s source) map[string]string {
	found := map[string]string{}
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if err == nil && n.Kind == token.STRING && codeRule.MatchString(text) && (strings.Contains(text, ".") || text == "internal") {
				found[text] = s.at(n.Pos())
			}
		}
		return true
	})
	return found
}

// fieldOf is how a composite literal sets a field.
func fieldOf(lit *ast.CompositeLit, name string) string {
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok || !isName(kv.Key, name) {
			continue
		}
		switch v := kv.Value.(type) {
		case *ast.BasicLit:
			return v.Value
		case *ast.Ident:
			return v.Name
		case *ast.SelectorExpr:
			return v.Sel.Name
		}
	}
	return ""
}

func isName(e ast.Expr, name string) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == name
	case *ast.SelectorExpr:
		return e.Sel.Name == name
	}
	return false
}

// keysOf are the keys of the configuration, which look like codes.
func keysOf(typ reflect.Type, under string) map[string]bool {
	keys := map[string]bool{}
	for f := range typ.Fields() {
		name, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		keys[under+name] = true
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == typ.PkgPath() {
			for key := range keysOf(f.Type, under+name+".") {
				keys[key] = true
			}
		}
	}
	return keys
}
