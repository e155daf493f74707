package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/config"
)

// File is a file from which a configuration was read.
type File struct {
	Path string `json:"path"` // as in origins: relative to the start of the search, if it is near
	Keys int    `json:"keys"` // the number of keys it sets
}

// reader reads the files of a program into layers.
type reader struct {
	schema   *schema
	disk     *Files // nil means the disk
	env, dir string
	folder   string   // where the .env file is
	layers   []*layer // of the config files, the weakest first
	dotenv   []*layer // of the .env file, which has the rank of the environment
	files    []File
	hidden   []string // folders that cannot be searched
	problems Problems
}

func (r *reader) problem(p Problem) { r.problems = append(r.problems, p) }

// read reads all files in their location.
func (r *reader) read(named string, o Origin) {
	p := r.find(named, o)
	if r.folder = p.folder; r.folder == "" {
		return
	}
	for _, path := range r.mainFiles(p) {
		r.tree(path, nil)
	}
	apps := r.appFiles(p)
	for _, app := range r.schema.apps {
		if path, ok := apps[app]; ok {
			r.tree(path, []string{"apps", app})
		}
	}
	if path := filepath.Join(p.folder, ".env"); r.readsDotEnv() && r.exists(path) {
		if folder, _ := r.disk.isFolder(path); !folder { // a virtual environment of Python
			r.dotEnv(path)
		}
	}
}

// tree reads a file whose keys are below under.
func (r *reader) tree(path string, under []string) {
	data, err := r.disk.contents(path)
	if err != nil {
		p := Problem{Code: "config.file", Origin: r.origin(path), Text: err.Error()}
		if folder, _ := r.disk.isFolder(path); folder {
			p.Hint = "remove it; a container runtime makes such a folder when the file to mount is missing"
		}
		r.problem(p)
		return
	}
	root, faults := formats[filepath.Ext(path)](data)
	l := newLayer()
	for _, f := range faults {
		o := r.origin(path)
		o.Line = f.line
		l.problems = append(l.problems, Problem{Code: f.code, Origin: o, Text: f.text, Hint: f.hint, Excerpt: r.schema.render(f.excerpt)})
	}
	w := walk{schema: r.schema, layer: l, source: r.origin(path), under: under}
	w.root(root)
	r.layers = append(r.layers, l)
	r.add(l, path)
}

// add records a file that was read.
func (r *reader) add(l *layer, path string) {
	r.files = append(r.files, File{Path: r.show(path), Keys: len(l.values)})
}

func (r *reader) origin(path string) Origin { return Origin{Layer: LayerFile, File: r.show(path)} }

// show returns a path as a user in dir would write it.
func (r *reader) show(path string) string {
	if r.dir == "" {
		return path
	}
	if near, err := filepath.Rel(r.dir, path); err == nil && len(near) < len(path) {
		return near
	}
	return path
}

var bom = []byte("\xef\xbb\xbf")

// contents reads a text file of bounded size. It does not open other kinds of
// files, such as a pipe, because that may block forever.
func contents(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("is a link to nothing")
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	case info.IsDir():
		return nil, errors.New("is a folder, not a file")
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, err := readAll(f, readTime)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("is not a file: it has no end after %v", readTime)
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	case len(data) > maxFile:
		return nil, fmt.Errorf("is larger than %v", config.Size(maxFile))
	}
	data = bytes.TrimPrefix(data, bom)
	return data, checkUTF8(data)
}

// readTime is the timeout of a read of a file whose reader waits.
const readTime = 5 * time.Second

// readAll reads at most maxFile bytes and one more. /proc/kmsg and some files like it
// are regular to stat, but their readers wait: for these limit is the timeout.
func readAll(f *os.File, limit time.Duration) ([]byte, error) {
	_ = f.SetReadDeadline(time.Now().Add(limit)) // the reader of a file on a disk does not wait, and has no deadline
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// checkUTF8 returns an error for the first line that is not UTF-8.
func checkUTF8(data []byte) error {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Errorf("is not UTF-8, from line %d on (save the file as UTF-8)", newLines(data).lineOf(at))
		}
		at += size
	}
	return nil
}

// cause returns the system's error without the path, which the message already
// contains.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
