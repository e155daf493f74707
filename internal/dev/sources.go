package dev

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sources are the files below a folder that can change a program, with their
// size and time.
type sources map[string]state

type state struct {
	size int64
	at   time.Time
}

// skippedFolders are folders whose files are not sources of the program.
var skippedFolders = []string{"node_modules", "testdata", "vendor"}

// writtenEndings are the ends of the names of files that programs write.
var writtenEndings = []string{"~", ".db", ".db-journal", ".db-shm", ".db-wal", ".log", ".out", ".pid", ".sqlite", ".sqlite3", ".swp", ".tmp"}

// isConfig reports whether a program reads a file when it starts.
func isConfig(path string) bool {
	name := filepath.Base(path)
	return name == ".env" || strings.HasPrefix(name, "mega.config.") || strings.HasPrefix(name, "app.config.")
}

// isSource reports whether a file can change a program. An executable without an
// ending is the result of a build.
func isSource(name string, mode fs.FileMode) bool {
	return mode.IsRegular() && !strings.HasSuffix(name, "_test.go") && (mode&0o111 == 0 || filepath.Ext(name) != "") &&
		!slices.ContainsFunc(writtenEndings, func(ending string) bool { return strings.HasSuffix(name, ending) })
}

// scan returns the sources below root. It skips the files that the go command
// ignores, tests, other modules, and files that disappear meanwhile. A link counts as
// its target, and root may be a link.
func scan(root string) sources {
	found := sources{}
	root += string(filepath.Separator) // otherwise WalkDir does not enter a link
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it has disappeared, or cannot be read: the build reports it
		}
		name := entry.Name()
		hidden := strings.HasPrefix(name, ".") && name != ".env" || strings.HasPrefix(name, "_")
		if entry.IsDir() {
			if path != root && (hidden || slices.Contains(skippedFolders, name) || isModule(path)) {
				return filepath.SkipDir
			}
			return nil
		}
		if info, err := os.Stat(path); err == nil && !hidden && isSource(name, info.Mode()) {
			found[path] = state{info.Size(), info.ModTime()}
		}
		return nil
	})
	return found
}

func isModule(dir string) bool {
	matches, err := filepath.Glob(filepath.Join(dir, "go.mod"))
	return err == nil && len(matches) > 0
}

// changed returns the files that differ, are new or no longer exist, sorted.
func (s sources) changed(now sources) (files []string) {
	for path, state := range now {
		if s[path] != state {
			files = append(files, path)
		}
	}
	for path := range s {
		if _, ok := now[path]; !ok {
			files = append(files, path)
		}
	}
	slices.Sort(files)
	return files
}
