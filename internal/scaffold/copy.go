package scaffold

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// copied is the folder of an application with the sources of mega.
const copied = "mega"

// notCopied are the folders of the framework's repository that an application
// does not need. bin has the programs that its Makefile builds.
var notCopied = []string{"bench", "bin", "docs", "sample", "testdata"}

// copySources copies the sources of a working copy: what the go command needs to
// build the packages of the framework, and the license.
func (f Framework) copySources(to string) error {
	dir, err := filepath.EvalSymlinks(f.Dir) // WalkDir does not follow a link
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name := entry.Name()
		switch hidden := strings.HasPrefix(name, ".") && rel != "."; {
		case entry.IsDir() && (hidden || slices.Contains(notCopied, name) || rel != "." && isModule(path)):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case hidden || !entry.Type().IsRegular() || strings.HasSuffix(name, "_test.go") || !isSource(rel):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
}

// isModule reports whether a folder is a module: below the framework another
// one, such as an application that was written there.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// isSource reports whether a file is a source: every file in a folder, since
// packages embed files of many kinds, but few of those beside go.mod.
func isSource(rel string) bool {
	if strings.ContainsRune(rel, filepath.Separator) {
		return true
	}
	return strings.HasSuffix(rel, ".go") || slices.Contains([]string{"go.mod", "go.sum", "LICENSE"}, rel)
}

// removeEmpty removes the empty folders below dir.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeEmpty(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if entries, err = os.ReadDir(dir); err != nil || len(entries) > 0 {
		return err
	}
	return os.Remove(dir)
}
