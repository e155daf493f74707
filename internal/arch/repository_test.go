package arch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/megaframework/mega/internal/arch"
)

const root = "../.."

func TestRepositoryKeepsItsRules(t *testing.T) {
	pkgs := packages(t)
	for name, rule := range map[string]arch.Rule{
		"Lattice":           arch.Lattice,
		"StandardOnly":      arch.StandardOnly,
		"FxUnderBoot":       arch.FxUnderBoot,
		"KoanfUnderConfig":  arch.KoanfUnderConfig,
		"ProtocolInTheTool": arch.ProtocolInTheTool,
		"SmallBinary":       arch.SmallBinary,
		"Documented":        arch.Documented,
		"Named":             arch.Named,
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range rule(pkgs) {
				t.Error(v)
			}
		})
	}
}

func TestSourcesKeepTheirRules(t *testing.T) {
	seen := 0
	for _, file := range files(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(text) {
			continue // an image
		}
		seen++
		broken := arch.LocalPaths(file, string(text))
		if filepath.Ext(file) == ".go" {
			broken = append(broken, arch.Unconditional(file, string(text))...)
		}
		for _, v := range broken {
			t.Error(v)
		}
	}
	if seen < 20 {
		t.Errorf("read %d files: that is not the repository", seen)
	}
}

// Compiling each module alone is make vet's: here it would take a minute.
func TestEveryModuleHasItsDependencies(t *testing.T) {
	dirs := modules(t)
	if len(dirs) < 2 {
		t.Fatalf("the workspace has %q, want the framework and more", dirs)
	}
	for _, dir := range dirs {
		if err := resolve(t, dir); err != nil {
			t.Error(err)
		}
	}
}

// A module that needs the workspace to find a dependency is refused.
func TestModuleThatNeedsItsNeighboursIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/leaning\n\ngo 1.26.0\n")
	write(t, dir, "main.go", "package main\n\nimport _ \""+arch.Module+"/lock\"\n\nfunc main() {}\n")
	if err := resolve(t, dir); err == nil {
		t.Error("its dependencies were found")
	}
}

// resolve finds every import of a module's packages and tests, without the
// workspace.
func resolve(t *testing.T, dir string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("list the dependencies of %s alone: %w\n%s", dir, err, out)
	}
	return nil
}

// modules returns the folders of the workspace's modules.
func modules(t *testing.T) []string {
	t.Helper()
	return strings.Fields(string(run(t, "go", "list", "-m", "-f", "{{.Dir}}")))
}

// packages returns every package of every module.
func packages(t *testing.T) (pkgs []arch.Package) {
	t.Helper()
	args := []string{"list", "-json=ImportPath,Name,Doc,Imports,TestImports,XTestImports,Deps"}
	for _, dir := range modules(t) {
		args = append(args, dir+"/...")
	}
	for dec := json.NewDecoder(bytes.NewReader(run(t, "go", args...))); ; {
		var p struct {
			ImportPath, Name, Doc                    string
			Imports, TestImports, XTestImports, Deps []string
		}
		err := dec.Decode(&p)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, arch.Package{
			Path: p.ImportPath, Name: p.Name, Doc: p.Doc,
			Imports: p.Imports, TestImports: append(p.TestImports, p.XTestImports...), Deps: p.Deps,
		})
	}
	if len(pkgs) < 4 {
		t.Fatalf("found %d packages: that is not the repository", len(pkgs))
	}
	return pkgs
}

// files returns the files of the repository, relative to its root. It walks
// the folders itself, so that go test sees what this test depends on and does
// not answer from its cache when a file is new.
func files(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case d.Type().IsRegular() && d.Name() != ".git": // a file in a linked work tree
			paths = append(paths, strings.TrimPrefix(filepath.ToSlash(path), root+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return out
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
