// Package scaffold writes a new application that builds, runs and passes its own
// test.
package scaffold

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// The templates end in .tmpl, so that the go tool does not compile them. Their
// delimiters differ from those of html/template, which are part of the output.
//
//go:embed templates
var templates embed.FS

var (
	// ErrName reports a name that is not valid for an application.
	ErrName = errors.New("not a name for an application")
	// ErrNotEmpty reports that the folder of the application is not empty.
	ErrNotEmpty = errors.New("the folder is not empty")
	// ErrModules reports that the modules of the application cannot be resolved.
	ErrModules = errors.New("the modules cannot be resolved")
)

// App describes an application.
type App struct {
	Name      string // a lower-case word: the program, its module and its app
	Dir       string // the folder to write; default Name, in the current one
	Framework Framework
	// Bare leaves go.mod and go.sum incomplete. Completing them needs the go
	// command and, for modules that are not on this machine, the network.
	Bare bool
}

// Written describes a written application.
type Written struct {
	Dir   string
	Files []string // in Dir, sorted, without the sources of mega
	// Tidy reports that go mod tidy would change nothing. It is false if tidy
	// could not run, because it needs more than the application: the modules
	// that only the tests of other modules use.
	Tidy bool
}

// Write writes the whole application or nothing.
func Write(ctx context.Context, a App) (w Written, err error) {
	if err := CheckName(a.Name); err != nil {
		return w, err
	}
	if w.Dir, err = filepath.Abs(cmp.Or(a.Dir, a.Name)); err != nil {
		return w, err
	}
	if err := vacant(w.Dir, ""); err != nil {
		return w, err
	}
	err = a.build(ctx, &w)
	return w, err
}

// vacant checks that dir does not exist, or contains no entry but own.
func vacant(dir, own string) error {
	entries, err := os.ReadDir(dir)
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == own })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("write to %s: %w", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("%w: %s contains %s", ErrNotEmpty, dir, entries[0].Name())
	}
	return nil
}

// build writes the application to a temporary folder, and moves it when it is
// complete. The temporary folder is inside the destination if that exists, which
// may be a file system of its own, and else beside it.
func (a App) build(ctx context.Context, w *Written) (err error) {
	place := w.Dir
	if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) {
		place = filepath.Dir(place)
	}
	undo, err := makeAll(place)
	defer func() {
		if err != nil {
			undo()
		}
	}()
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp(place, "."+a.Name+"-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	whole := filepath.Join(temp, a.Name)
	if err := a.fill(whole); err != nil {
		return err
	}
	if !a.Bare {
		if w.Tidy, err = complete(ctx, whole); err != nil {
			return err
		}
	}
	if w.Files, err = list(whole); err != nil {
		return err
	}
	if err := vacant(w.Dir, filepath.Base(temp)); err != nil { // again: the go command may have taken minutes
		return err
	}
	return move(whole, w.Dir)
}

// makeAll makes dir and its parents. undo removes those that it has made and
// that are empty.
func makeAll(dir string) (undo func(), err error) {
	var made []string // the deepest first
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, at)
	}
	return func() {
		for _, at := range made {
			_ = os.Remove(at) // fails if somebody else has filled it
		}
	}, os.MkdirAll(dir, 0o755)
}

// fill writes every file into a new folder.
func (a App) fill(dir string) error {
	values, err := a.values()
	if err != nil {
		return err
	}
	err = fs.WalkDir(templates, "templates", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(written(name)))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := render(name, values)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o644)
	})
	if err == nil && a.Framework.Copied() {
		to := filepath.Join(dir, copied)
		err = errors.Join(a.Framework.copySources(to), removeEmpty(to))
	}
	sums, unread := a.Framework.sums()
	if err := errors.Join(err, unread); err != nil || sums == nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644)
}

// values are the values of the templates.
func (a App) values() (map[string]any, error) {
	requires, err := a.Framework.requires()
	return map[string]any{
		"Name": a.Name, "Upper": strings.ToUpper(a.Name), "Module": Module, "Go": goVersion,
		"GoMinor": goVersion[:strings.LastIndexByte(goVersion, '.')], "Copied": a.Framework.Copied(),
		"Version": a.Framework.version(), "Replace": a.Framework.replacement(), "Requires": requires,
	}, err
}

// dotted are the names that begin with a dot in the application: go:embed
// ignores such names.
var dotted = []string{"dockerignore", "github", "gitignore"}

// written returns the path of a template's file in the application.
func written(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "templates"), "/")
	name = strings.TrimSuffix(name, ".tmpl")
	if slices.Contains(dotted, strings.Split(name, "/")[0]) {
		return "." + name
	}
	return name
}

func render(name string, values map[string]any) ([]byte, error) {
	text, err := templates.ReadFile(name)
	if err != nil {
		return nil, err
	}
	t, err := template.New(path.Base(name)).Delims("[[", "]]").Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, values)
	return out.Bytes(), err
}

// list returns the files in dir, sorted, without the sources of mega.
func list(dir string) (files []string, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && name == copied {
			return fs.SkipDir
		}
		if err == nil && !entry.IsDir() {
			files = append(files, name)
		}
		return err
	})
	slices.Sort(files)
	return files, err
}

// move moves the content of whole to dir, which does not exist or is empty. An
// empty folder is not replaced: it may be the working directory of a shell.
func move(whole, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return os.Rename(whole, dir)
	}
	entries, err := os.ReadDir(whole)
	if err != nil {
		return err
	}
	var moved []string
	for _, e := range entries {
		target := filepath.Join(dir, e.Name())
		if err := os.Rename(filepath.Join(whole, e.Name()), target); err != nil {
			for _, m := range moved {
				err = errors.Join(err, os.RemoveAll(m))
			}
			return err
		}
		moved = append(moved, target)
	}
	return nil
}
