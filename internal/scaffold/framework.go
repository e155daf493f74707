package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"unicode"
)

// Module is the path of the framework's module.
const Module = "github.com/megaframework/mega"

// goVersion is the lowest version of Go in the go.mod of an application.
const goVersion = "1.26.0"

// ErrNoFramework reports that the version of mega for an application is unknown.
var ErrNoFramework = errors.New("the version of mega is unknown")

// Framework is the mega of an application: a version or a working copy.
type Framework struct {
	Version string
	Dir     string // absolute path of a working copy; takes precedence over Version
	// Linked makes the application use the working copy in its place. Such an
	// application can be built on this machine alone. Otherwise the application
	// contains the sources of the working copy.
	Linked bool
}

// Copied reports whether the application contains the sources of mega.
func (f Framework) Copied() bool { return f.Dir != "" && !f.Linked }

// String returns the version, or the folder of the working copy.
func (f Framework) String() string { return cmp.Or(f.Dir, f.version()) }

func (f Framework) version() string { return cmp.Or(f.Version, "v0.0.0") }

// replacement returns the folder of the sources in the form that go.mod expects,
// or "" for a version.
func (f Framework) replacement() string {
	if f.Copied() {
		return "./" + copied
	}
	special := func(r rune) bool { return strings.ContainsRune(" '`\"()[]{},", r) || !unicode.IsPrint(r) }
	if strings.ContainsFunc(f.Dir, special) || strings.Contains(f.Dir, "/*") {
		return fmt.Sprintf("%q", f.Dir)
	}
	return f.Dir
}

// WorkingCopy returns the framework in dir.
func WorkingCopy(dir string) (Framework, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Framework{}, err
	}
	text, err := os.ReadFile(filepath.Join(abs, "go.mod"))
	if err != nil {
		return Framework{}, fmt.Errorf("%w: %w", ErrNoFramework, err)
	}
	if !moduleLine.Match(text) {
		return Framework{}, fmt.Errorf("%w: %s is not the module %s", ErrNoFramework, abs, Module)
	}
	return Framework{Dir: abs}, nil
}

var moduleLine = regexp.MustCompile(`(?m)^module ` + regexp.QuoteMeta(Module) + `\s*$`)

// Own returns the framework that this program was built from: a version, where
// the go command downloaded one, else the working copy that its sources are in.
func Own() (Framework, error) {
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Path == Module && info.Main.Sum != "" { // only what was downloaded has a sum
		return Framework{Version: info.Main.Version}, nil
	}
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return Framework{}, fmt.Errorf("%w: this program was built from a working copy in an unknown folder", ErrNoFramework)
	}
	return WorkingCopy(filepath.Join(filepath.Dir(file), "..", ".."))
}

// requirement is a line of a go.mod that names a module and its version.
var requirement = regexp.MustCompile(`^(?:require )?\s*(\S+ v\S+)(?: // indirect)?$`)

// requires returns the modules of a working copy. With the complete list the go
// command looks up nothing, so a machine that has built the working copy can
// build an application without a network. The go command looks up a version.
func (f Framework) requires() (modules []string, err error) {
	if f.Dir == "" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(f.Dir, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoFramework, err)
	}
	block := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch m := requirement.FindStringSubmatch(line); {
		case strings.HasSuffix(line, "("):
			block = strings.TrimSpace(strings.TrimSuffix(line, "("))
		case line == ")":
			block = ""
		case m != nil && (block == "require" || strings.HasPrefix(line, "require ")):
			modules = append(modules, m[1])
		}
	}
	return modules, nil
}

// sums returns the go.sum of a working copy.
func (f Framework) sums() ([]byte, error) {
	if f.Dir == "" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(f.Dir, "go.sum"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoFramework, err)
	}
	return text, nil
}
