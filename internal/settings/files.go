package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"syscall"
)

// Files is a copy of the files and provider results from which a configuration was
// loaded. A Source with a zero Files makes Load record them. After Keep, or after
// decoding from JSON, Load reads the recorded files in place of the disk, and calls
// only providers without a recorded result. The methods of Files are safe for
// concurrent use. Files contains secrets.
type Files struct {
	mu    sync.Mutex // guards the fields below
	kept  recording
	fixed bool
}

// recording is the contents of Files.
type recording struct {
	Dir    *string                   `json:"dir,omitempty"` // where the search began; nil in a copy of an older build
	Paths  map[string]pathState      `json:"paths,omitempty"`
	Layers map[string]map[string]any `json:"layers,omitempty"` // numbers are json.Number

	Attached map[string][]byte `json:"attached,omitempty"` // files that the configuration names
}

// pathState is the recorded state of a path, which may have been read in several
// ways.
type pathState struct {
	Exists *bool       `json:"exists,omitempty"`
	Hidden string      `json:"hidden,omitempty"` // why it is not known whether the path exists
	Stat   *readResult `json:"stat,omitempty"`
	List   *readResult `json:"list,omitempty"`
	Names  []string    `json:"names,omitempty"`
	Read   *readResult `json:"read,omitempty"`
	Data   []byte      `json:"data,omitempty"`
}

// readResult is the result of one read of a path.
type readResult struct {
	Folder bool   `json:"folder,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Keep ends the recording.
func (f *Files) Keep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fixed = true
}

// MarshalJSON encodes all contents, secrets included.
func (f *Files) MarshalJSON() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return json.Marshal(f.kept)
}

// UnmarshalJSON decodes a copy, which then replaces the disk.
func (f *Files) UnmarshalJSON(data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fixed = true
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(&f.kept)
}

// begin returns the folder where the search for files begins: dir, which a recording
// keeps, or the folder of a kept copy.
func (f *Files) begin(dir string) string {
	if f == nil {
		return dir
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.fixed {
		f.kept.Dir = new(dir)
	}
	if f.kept.Dir == nil {
		return dir
	}
	return *f.kept.Dir
}

// state returns the state of path. had reports whether one kind of read is recorded in
// a state. If it is not, and Keep was not called, state calls disk, which reads the
// path without the mutex and returns a function that records the result. Of two
// concurrent calls, the result of the first one is recorded.
func (f *Files) state(path string, had func(*pathState) bool, disk func() func(*pathState)) pathState {
	if f == nil {
		var s pathState
		disk()(&s)
		return s
	}
	if s, done := f.recorded(path, had); done {
		return s
	}
	record := disk()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.kept.Paths[path]
	if f.fixed || had(&s) {
		return s
	}
	record(&s)
	if f.kept.Paths == nil {
		f.kept.Paths = map[string]pathState{}
	}
	f.kept.Paths[path] = s
	return s
}

// recorded returns the recorded state of path, and reports whether it is final.
func (f *Files) recorded(path string, had func(*pathState) bool) (pathState, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.kept.Paths[path]
	return s, f.fixed || had(&s)
}

// exists reports whether a file of that name exists, also as a dangling link:
// its user wants it to be read. The error is about a folder that cannot be
// searched, in which the file may exist.
func (f *Files) exists(path string) (bool, error) {
	s := f.state(path, func(s *pathState) bool { return s.Exists != nil }, func() func(*pathState) {
		_, err := os.Lstat(path)
		return func(s *pathState) {
			s.Exists = new(err == nil)
			if err != nil && !notExist(err) {
				s.Hidden = cause(err).Error()
			}
		}
	})
	if s.Hidden != "" {
		return false, errors.New(s.Hidden)
	}
	return s.Exists != nil && *s.Exists, nil
}

// notExist reports whether err means that a path does not exist.
func notExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}

// isFolder reports whether path is a folder.
func (f *Files) isFolder(path string) (bool, error) {
	s := f.state(path, func(s *pathState) bool { return s.Stat != nil }, func() func(*pathState) {
		info, err := os.Stat(path)
		return func(s *pathState) {
			s.Stat = outcome(err)
			s.Stat.Folder = err == nil && info.IsDir()
		}
	})
	return s.Stat != nil && s.Stat.Folder, s.Stat.err()
}

// list returns the names in a folder, or none if path is not a folder.
func (f *Files) list(path string) ([]string, error) {
	s := f.state(path, func(s *pathState) bool { return s.List != nil }, func() func(*pathState) {
		entries, err := os.ReadDir(path)
		if _, absent := os.Lstat(path); absent != nil || errors.Is(err, syscall.ENOTDIR) {
			err = nil
		}
		return func(s *pathState) {
			for _, e := range entries {
				s.Names = append(s.Names, e.Name())
			}
			s.List = outcome(err)
		}
	})
	if s.List == nil {
		return nil, nil
	}
	return s.Names, s.List.err()
}

// contents returns the text of a file.
func (f *Files) contents(path string) ([]byte, error) {
	s := f.state(path, func(s *pathState) bool { return s.Read != nil }, func() func(*pathState) {
		data, err := contents(path)
		return func(s *pathState) { s.Data, s.Read = data, outcome(err) }
	})
	return s.Data, s.Read.err()
}

// outcome returns the result of a read that ended with err.
func outcome(err error) *readResult {
	if err == nil {
		return &readResult{}
	}
	return &readResult{Error: cause(err).Error()}
}

// err returns the recorded error. A kept copy returns fs.ErrNotExist for a path
// that was not read.
func (t *readResult) err() error {
	switch {
	case t == nil:
		return fs.ErrNotExist
	case t.Error != "":
		return errors.New(t.Error)
	}
	return nil
}

// Attached returns the recorded contents of files that the configuration names,
// such as a certificate and its key, and reports whether all of them are recorded.
func (f *Files) Attached(paths ...string) (texts [][]byte, all bool) {
	if f == nil {
		return nil, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range paths {
		text, ok := f.kept.Attached[path]
		if !ok {
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, true
}

// Attach reads files that the configuration names from the disk, and records
// them, also after Keep: the configuration has to be complete before its files
// are known. A nil Files records nothing.
func (f *Files) Attach(paths ...string) (texts [][]byte, err error) {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a pipe would block its reader for ever
			return nil, fmt.Errorf("read %s: it is not a file", path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	if f == nil {
		return texts, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept.Attached == nil {
		f.kept.Attached = map[string][]byte{}
	}
	for i, path := range paths {
		f.kept.Attached[path] = texts[i]
	}
	return texts, nil
}

// Inherit records the files of Attach that only another copy contains.
func (f *Files) Inherit(from *Files) {
	all := map[string][]byte{}
	from.mu.Lock()
	maps.Copy(all, from.kept.Attached)
	from.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.Copy(all, f.kept.Attached)
	f.kept.Attached = all
}

// layer returns a function that waits for the result of a provider: the kept
// result, or else the result of begin, which it records.
func (f *Files) layer(i int, source Layer, begin func() func() (map[string]any, error)) func() (map[string]any, error) {
	if f == nil {
		return begin()
	}
	name := fmt.Sprintf("%d %s %s", i, source.App, source.Name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if tree, ok := f.kept.Layers[name]; ok && f.fixed {
		return func() (map[string]any, error) { return tree, nil }
	}
	read := begin()
	return func() (map[string]any, error) {
		tree, err := read()
		if err == nil {
			f.keepLayer(name, tree)
		}
		return tree, err
	}
}

func (f *Files) keepLayer(name string, tree map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept.Layers == nil {
		f.kept.Layers = map[string]map[string]any{}
	}
	f.kept.Layers[name] = tree
}
