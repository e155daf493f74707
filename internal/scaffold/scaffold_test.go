package scaffold_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/scaffold"
)

const root = "../.."

func app(t *testing.T, dir string) scaffold.App {
	t.Helper()
	framework, err := scaffold.WorkingCopy(root)
	if err != nil {
		t.Fatal(err)
	}
	framework.Linked = true // a copy would be compiled again
	return scaffold.App{Name: "shop", Dir: dir, Framework: framework, Bare: true}
}

// entries are the names in dir.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestWrittenFiles(t *testing.T) {
	want := []string{
		".dockerignore", ".github/workflows/ci.yml", ".gitignore", "Dockerfile", "Makefile", "README.md", "go.mod", "go.sum", "handlers.go",
		"handlers_test.go", "main.go", "mega.config.yaml", "public/style.css", "store.go", "views/error.html", "views/home.html", "views/shared/layout.html",
	}
	dir := filepath.Join(t.TempDir(), "new", "shop")
	got, err := scaffold.Write(t.Context(), app(t, dir))
	if err != nil || got.Dir != dir || !slices.Equal(got.Files, want) {
		t.Fatalf("got %+v, %v\nwant %s %q", got, err, dir, want)
	}
	for _, file := range got.Files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || len(text) == 0 || strings.Contains(string(text), "[[") {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
	}
	if names := entries(t, filepath.Dir(dir)); !slices.Equal(names, []string{"shop"}) {
		t.Errorf("beside it there is %q", names)
	}
}

// A browser asks for /favicon.ico otherwise: the first line of the log would be a 404.
func TestPagesNameAnIcon(t *testing.T) {
	got, err := scaffold.Write(t.Context(), app(t, filepath.Join(t.TempDir(), "shop")))
	if err != nil {
		t.Fatal(err)
	}
	layout, err := os.ReadFile(filepath.Join(got.Dir, "views", "shared", "layout.html"))
	if err != nil || !strings.Contains(string(layout), `<link rel="icon"`) {
		t.Errorf("%v\n%s", err, layout)
	}
}

// A working copy has what was built in it and written into it, and may be named
// by a link.
func TestOnlyTheSourcesOfAWorkingCopyAreCopied(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module " + scaffold.Module + "\n", "go.sum": "x", "lock/lease.go": "package lock", "bin/mega": "ELF",
		"shop/go.mod": "module shop\n", "shop/main.go": "package main", "shop/mega/go.mod": "module " + scaffold.Module + "\n",
	} {
		file = filepath.Join(dir, filepath.FromSlash(file))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, link} {
		a := app(t, filepath.Join(t.TempDir(), "shop"))
		var err error
		if a.Framework, err = scaffold.WorkingCopy(at); err != nil {
			t.Fatal(err)
		}
		w, err := scaffold.Write(t.Context(), a)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := entries(t, filepath.Join(w.Dir, "mega")); !slices.Equal(got, []string{"go.mod", "go.sum", "lock"}) {
			t.Errorf("%s: copied %q", at, got)
		}
	}
}

// A copy has what the packages are built from, and nothing of this machine.
func TestApplicationContainsTheSourcesOfMega(t *testing.T) {
	a := app(t, filepath.Join(t.TempDir(), "shop"))
	a.Framework.Linked = false
	w, err := scaffold.Write(t.Context(), a)
	if err != nil || slices.ContainsFunc(w.Files, func(file string) bool { return strings.HasPrefix(file, "mega/") }) {
		t.Fatalf("got %+v, %v", w, err)
	}
	have := func(name string) bool {
		_, err := os.Stat(filepath.Join(w.Dir, filepath.FromSlash(name)))
		return err == nil
	}
	for _, name := range []string{"mega/go.mod", "mega/go.sum", "mega/LICENSE", "mega/mega.go", "mega/lock/lease.go", "mega/internal/request/problem.html", "mega/internal/failure/catalogue.yaml"} {
		if !have(name) {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range []string{"mega/.git", "mega/sample", "mega/docs", "mega/bench", "mega/mega_test.go", "mega/boot/testdata", "mega/go.work", "mega/Makefile"} {
		if have(name) {
			t.Errorf("%s was copied", name)
		}
	}
	for _, name := range []string{"go.mod", "README.md", "Makefile", "Dockerfile"} {
		text, err := os.ReadFile(filepath.Join(w.Dir, name))
		if err != nil || strings.Contains(string(text), a.Framework.Dir) {
			t.Errorf("%s names a folder of this machine, or %v:\n%s", name, err, text)
		}
	}
	text, err := os.ReadFile(filepath.Join(w.Dir, "README.md"))
	if err != nil || !strings.Contains(string(text), "go mod edit -dropreplace "+scaffold.Module) {
		t.Errorf("the README does not say how to use a version: %v\n%s", err, text)
	}
}

// `make run` and `make lint` leave programs of tens of megabytes in bin.
func TestBuiltProgramsAreNotCopied(t *testing.T) {
	framework := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "mega.go", "bin/crud"} {
		file := filepath.Join(framework, filepath.FromSlash(name))
		text, _ := os.ReadFile(filepath.Join(root, name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	a := scaffold.App{Name: "shop", Dir: filepath.Join(t.TempDir(), "shop"), Framework: scaffold.Framework{Dir: framework}, Bare: true}
	if _, err := scaffold.Write(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if names := entries(t, filepath.Join(a.Dir, "mega")); !slices.Equal(names, []string{"go.mod", "go.sum", "mega.go"}) {
		t.Errorf("copied %q", names)
	}
}

func TestEmptyFolderIsFilledAndStays(t *testing.T) {
	dir := t.TempDir()
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scaffold.Write(t.Context(), app(t, dir)); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(dir)
	if err != nil || !os.SameFile(before, after) || !slices.Contains(entries(t, dir), "main.go") {
		t.Errorf("it is another folder, or without a program: %v, %q", err, entries(t, dir))
	}
}

func TestExistingFilesAreUnchanged(t *testing.T) {
	full := t.TempDir()
	file := filepath.Join(full, "letter")
	if err := os.WriteFile(file, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := scaffold.Write(t.Context(), app(t, full)); !errors.Is(err, scaffold.ErrNotEmpty) || !strings.Contains(err.Error(), "letter") {
		t.Errorf("got %v, want ErrNotEmpty with what is in it", err)
	}
	if _, err := scaffold.Write(t.Context(), app(t, file)); err == nil {
		t.Error("it was written over a file")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "dear" || len(entries(t, full)) != 1 {
		t.Errorf("the folder has %q, the letter %q, %v", entries(t, full), text, err)
	}
}

// fakeGo puts a go command in front of the real one, which it calls $real.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	real, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\nreal='"+real+"'\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// The folder may be a file system of its own, such as a volume of a container:
// nothing can be moved into it from beside it.
func TestExistingFolderIsFilledFromInside(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	fakeGo(t, `case "$(pwd -P)" in '`+dir+`'/*) ;; *) pwd -P >&2; exit 1 ;; esac`)
	a := app(t, dir)
	a.Bare = false
	if _, err := scaffold.Write(t.Context(), a); err != nil {
		t.Error(err)
	}
	if names := entries(t, dir); !slices.Contains(names, "main.go") || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, ".shop") }) {
		t.Errorf("the folder has %q", names)
	}
}

// The go command may take minutes, in which a file appears.
func TestFileOfTheMeantimeIsUnchanged(t *testing.T) {
	for _, exists := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "shop")
		if exists {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		fakeGo(t, "mkdir -p '"+dir+"'; echo dear >'"+dir+"/main.go'")
		a := app(t, dir)
		a.Bare = false
		if _, err := scaffold.Write(t.Context(), a); !errors.Is(err, scaffold.ErrNotEmpty) {
			t.Errorf("got %v, want ErrNotEmpty", err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "main.go")); err != nil || string(text) != "dear\n" || len(entries(t, dir)) != 1 {
			t.Errorf("the folder has %q, the file %q, %v", entries(t, dir), text, err)
		}
	}
}

// A go command that fails, here because it was told to end, leaves nothing.
func TestFailureLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	parent := t.TempDir()
	for _, dir := range []string{"shop", "new/folders/shop", "."} {
		a := app(t, filepath.Join(parent, dir))
		a.Bare = false
		if _, err := scaffold.Write(ctx, a); !errors.Is(err, scaffold.ErrModules) || strings.HasSuffix(err.Error(), "\n") {
			t.Errorf("got %q, want ErrModules", err)
		}
		if names := entries(t, parent); len(names) > 0 {
			t.Errorf("it left %q", names)
		}
	}
}

// Where go mod tidy cannot have what the tests of others need, the application
// has what it needs itself.
func TestApplicationIsWrittenWhereItCannotBeTidied(t *testing.T) {
	fakeGo(t, `[ "$1 $2" = "mod tidy" ] && exit 1; exec "$real" "$@"`)
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "")
	a := app(t, filepath.Join(t.TempDir(), "shop"))
	a.Bare = false
	w, err := scaffold.Write(t.Context(), a)
	if err != nil || w.Tidy || !slices.Contains(w.Files, "go.sum") {
		t.Fatalf("got %+v, %v", w, err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", "./...")
	cmd.Dir, cmd.Env = w.Dir, append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}

func TestUnfitNameIsRefusedWithTheReason(t *testing.T) {
	for _, name := range []string{"shop", "a", "shop2", "mega", "lock"} {
		if err := scaffold.CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for name, why := range map[string]string{
		"": "empty", "Shop": "lower-case", "my-shop": "lower-case", "my_shop": "lower-case", "2shop": "begins with a letter",
		"shop/x": "lower-case", "../shop": "lower-case", "상점": "lower-case", "func": "keyword", "range": "keyword",
		"http2x" + strings.Repeat("x", 30): "longer", "fmt": "go command", "main": "go command", "nul": "go command", "com1": "go command", "all": "go command",
		"true": "YAML", "null": "YAML", "service": "Kubernetes",
	} {
		if err := scaffold.CheckName(name); !errors.Is(err, scaffold.ErrName) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %v, want ErrName that says %q", name, err, why)
		}
	}
}

func TestNoNameHidesTheStandardLibrary(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "std").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		name, _, _ := strings.Cut(path, "/")
		if err := scaffold.CheckName(name); err == nil {
			t.Errorf("%q was allowed", name)
		}
	}
}

func TestFrameworkIsAVersionOrAWorkingCopy(t *testing.T) {
	gomod := func(f scaffold.Framework) string {
		a := app(t, filepath.Join(t.TempDir(), "shop"))
		a.Framework = f
		w, err := scaffold.Write(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(w.Dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	dir := func(name string) string {
		dir := filepath.Join(t.TempDir(), name)
		for file, text := range map[string]string{
			"go.mod": "module " + scaffold.Module + "\n\ngo 1.26.0\n\nrequire example.com/a v1.0.0\n\nrequire (\n\texample.com/b v1.2.3 // indirect\n)\n\nexclude (\n\texample.com/c v0.1.0\n)\n",
			"go.sum": "example.com/a v1.0.0 h1:x=\n",
		} {
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	plain, spaced, braced := dir("mega"), dir("my mega"), dir("{mega}")
	const head = "module shop\n\ngo 1.26.0\n\n// make dev runs it\ntool github.com/megaframework/mega/cmd/mega\n\nrequire github.com/megaframework/mega "
	const all = "v0.0.0\n\nrequire (\n\texample.com/a v1.0.0 // indirect\n\texample.com/b v1.2.3 // indirect\n)\n\nreplace github.com/megaframework/mega => "
	for _, x := range []struct {
		framework scaffold.Framework
		want      string
	}{
		{scaffold.Framework{Version: "v0.3.0"}, head + "v0.3.0\n"},
		{scaffold.Framework{Dir: plain, Linked: true}, head + all + plain + "\n"},
		{scaffold.Framework{Dir: spaced, Linked: true}, head + all + "\"" + spaced + "\"\n"},
		{scaffold.Framework{Dir: braced, Linked: true}, head + all + "\"" + braced + "\"\n"},
		{scaffold.Framework{Dir: spaced}, head + all + "./mega\n"},
	} {
		if got := gomod(x.framework); got != x.want {
			t.Errorf("%+v: got\n%s\nwant\n%s", x.framework, got, x.want)
		}
	}
}

// go mod tidy keeps only the modules that the packages and tools of an application
// need. A program that its Makefile runs could not be built without the others.
func TestProgramsOfTheMakefileAreTools(t *testing.T) {
	w, err := scaffold.Write(t.Context(), app(t, filepath.Join(t.TempDir(), "shop")))
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(w.Dir, "Makefile"))
	gomod, unread := os.ReadFile(filepath.Join(w.Dir, "go.mod"))
	if err := errors.Join(err, unread); err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile(`(?m)^\tgo run (\S*/\S*)`).FindAllStringSubmatch(string(makefile), -1)
	for _, p := range programs {
		if !strings.Contains(string(gomod), "\ntool "+p[1]+"\n") {
			t.Errorf("%s is not a tool in\n%s", p[1], gomod)
		}
	}
	if len(programs) == 0 {
		t.Errorf("the Makefile runs no program of mega:\n%s", makefile)
	}
}

// An application asks for the version of Go that the framework asks for.
func TestVersionOfGoIsTheFrameworks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^go .*$`).FindString(string(text))
	w, err := scaffold.Write(t.Context(), app(t, filepath.Join(t.TempDir(), "shop")))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(w.Dir, "go.mod")); err != nil || !strings.Contains(string(text), line+"\n") {
		t.Errorf("want %q, got %v\n%s", line, err, text)
	}
}

func TestFolderWithoutTheFrameworkIsRefused(t *testing.T) {
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "go.mod"), []byte("module example.com/other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{t.TempDir(), other} {
		if _, err := scaffold.WorkingCopy(dir); !errors.Is(err, scaffold.ErrNoFramework) {
			t.Errorf("%s: got %v, want ErrNoFramework", dir, err)
		}
	}
}

// A test is built from a working copy.
func TestOwnFrameworkIsWhereTheSourcesAre(t *testing.T) {
	want, err := scaffold.WorkingCopy(root)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := scaffold.Own(); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
