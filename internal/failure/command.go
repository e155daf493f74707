package failure

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// goRun matches the paths of executables that go run starts: the place where go
// run has linked one, or from the second run on the cache of the go command.
var goRun = regexp.MustCompile(`/go-build[^/]*/.*/exe/[^/]+$|/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)

// GoRun reports whether go run starts the executable at that path.
func GoRun(exe string) bool { return goRun.MatchString(filepath.ToSlash(exe)) }

// Command returns the start of a command line that runs this program: its name,
// or go run with its package if go run or mega dev has started it.
func Command(program string) string {
	exe, err := os.Executable()
	if inDev := os.Getenv("MEGA_RUN_DEV") != ""; !inDev && (err != nil || !GoRun(exe)) {
		return program
	}
	info, _ := debug.ReadBuildInfo() // a nil one has no package
	if info == nil {
		info = new(debug.BuildInfo)
	}
	dir, _ := os.Getwd() // "" is in no module
	return "go run " + packageFrom(dir, info.Path, info.Main.Path)
}

// packageFrom returns a package as an argument of the go command in dir: as a
// path, if dir is in its module. A program that was named by its files has no
// package path, and is taken for the package in dir.
func packageFrom(dir, path, module string) string {
	below, ok := strings.CutPrefix(path, module)
	if module == "" || !ok {
		return "."
	}
	for root := dir; root != filepath.Dir(root); root = filepath.Dir(root) {
		text, err := os.ReadFile(filepath.Join(root, "go.mod"))
		if err != nil {
			continue
		}
		if !declares(string(text), module) {
			break
		}
		at, err := filepath.Rel(dir, filepath.Join(root, filepath.FromSlash(below)))
		switch at = filepath.ToSlash(at); {
		case err != nil:
			return path
		case at == "." || at == ".." || strings.HasPrefix(at, "../"):
			return at
		}
		return "./" + at
	}
	return path
}

// declares reports whether the text of a go.mod declares that module.
func declares(text, module string) bool {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "module" {
			return strings.Trim(words[1], "\"`") == module
		}
	}
	return false
}
