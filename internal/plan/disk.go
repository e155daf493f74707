package plan

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/megaframework/mega/internal/request"
)

// Files are the files of an option and the call site of the option.
type Files struct {
	fs.FS
	site string
}

// systems returns the file systems of files.
func systems(files []Files) (all []fs.FS) {
	for _, f := range files {
		all = append(all, f.FS)
	}
	return all
}

// OnDisk returns the part with its embedded files read from the folder of the
// call site of their option, and the paths that are read. Embedded files that
// this folder does not contain, with the same content, stay embedded.
func (p Part) OnDisk() (Part, []string) {
	var paths []string
	live := func(files []Files) []Files {
		files = slices.Clone(files)
		for i, f := range files {
			if d, ok := f.onDisk(); ok {
				files[i].FS = d
				paths = append(paths, d.paths()...)
			}
		}
		return files
	}
	p.Views, p.Public, p.Locales = live(p.Views), live(p.Public), live(p.Locales)
	return p, paths
}

// onDisk returns the files on disk that f was made from.
func (f Files) onDisk() (disk, bool) {
	source, ok := f.FS.(embed.FS)
	i := strings.LastIndexByte(f.site, ':')
	if !ok || i < 0 || !filepath.IsAbs(f.site[:i]) {
		return disk{}, false
	}
	d := disk{dir: filepath.Dir(f.site[:i]), source: source}
	d.FS = os.DirFS(d.dir)
	entries, err := source.ReadDir(".")
	if err != nil {
		return disk{}, false
	}
	for _, entry := range entries {
		d.names = append(d.names, entry.Name())
	}
	return d, d.has(source)
}

// disk is a folder of which only some entries are visible. Entries below them
// are hidden as go:embed hides them, by a dot or an underscore, unless they are
// embedded.
type disk struct {
	fs.FS
	dir    string
	names  []string
	source embed.FS
}

// has reports whether the folder has all files of source with their content.
func (d disk) has(source embed.FS) bool {
	return fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := source.ReadFile(name)
		if err != nil {
			return err
		}
		if got, err := fs.ReadFile(d.FS, name); err != nil || !bytes.Equal(got, want) {
			return fs.ErrNotExist
		}
		return nil
	}) == nil
}

func (d disk) paths() (all []string) {
	for _, name := range d.names {
		all = append(all, filepath.Join(d.dir, name))
	}
	return all
}

// ReadDir returns the visible entries of a folder.
func (d disk) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(d.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		if name == "." {
			return !slices.Contains(d.names, e.Name())
		}
		if !strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(e.Name(), "_") {
			return false
		}
		_, err := fs.Stat(d.source, path.Join(name, e.Name()))
		return err != nil
	}), err
}

// Fresh returns a function that reads the files of an app again after a change,
// and returns nil without one. It returns the error of files that cannot be used
// until they change.
func (p *Plan) Fresh(a Part) func() (*request.Files, error) {
	var mu sync.Mutex // guards seen and failed
	seen := stateOf(a)
	var failed error
	return func() (*request.Files, error) {
		mu.Lock()
		defer mu.Unlock()
		now := stateOf(a)
		if now == seen {
			return nil, failed
		}
		seen = now
		files, err := p.files(a)
		if failed = err; err != nil {
			return nil, err
		}
		return files, nil
	}
}

// files reads all files of an app.
func (p *Plan) files(a Part) (*request.Files, error) {
	texts, err := p.Texts(a)
	if err != nil {
		return nil, err
	}
	views, public, err := a.pages()
	if err != nil {
		return nil, err
	}
	return &request.Files{Views: views, Public: public, Locales: texts}, nil
}

// stateOf describes the files on disk of an app by name, size and time.
func stateOf(a Part) string {
	var b strings.Builder
	for _, f := range slices.Concat(a.Views, a.Public, a.Locales) {
		d, ok := f.FS.(disk)
		if !ok {
			continue
		}
		_ = fs.WalkDir(d, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return nil //nolint:nilerr // a folder that cannot be read is an error of the reader
			}
			if info, err := entry.Info(); err == nil {
				fmt.Fprintln(&b, path.Join(d.dir, name), info.Size(), info.ModTime().UnixNano())
			}
			return nil
		})
	}
	return b.String()
}
