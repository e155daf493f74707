package settings

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/mask"
)

// formats maps the extensions of files to their readers.
var formats = map[string]func([]byte) (node, []fault){".yaml": readYAML, ".toml": readTOML, ".json": readJSON}

// endings are the extensions in formats, and one that users expect to work.
var endings = []string{".yaml", ".toml", ".json", ".yml"}

const (
	mainStem = "mega.config"
	appStem  = "app.config"
)

// place is the location of a program's files.
type place struct {
	folder string // empty if no file is read
	stem   string // mega.config, or the named file without its extension
	file   string // the named file
}

// find returns the location of the files: the named one, or else the nearest
// folder with such files, from dir upwards to the root of the module or the
// repository. Without such a root it searches dir only, because folders further
// up belong to others.
func (r *reader) find(named string, o Origin) place {
	if named != "" {
		return r.namedPlace(named, o)
	}
	if r.dir == "" {
		return place{}
	}
	p := place{stem: mainStem}
	for _, p.folder = range r.upwards(r.dir) {
		if len(r.existing(p.folder, p.stems(r.env))) > 0 {
			break
		}
	}
	return p
}

// upwards returns the folders from dir to its root.
func (r *reader) upwards(dir string) (folders []string) {
	for at := dir; ; at = filepath.Dir(at) {
		folders = append(folders, at)
		if r.exists(filepath.Join(at, "go.mod")) || r.exists(filepath.Join(at, ".git")) {
			return folders
		}
		if at == filepath.Dir(at) {
			return []string{dir}
		}
	}
}

// namedPlace returns the location of the file or folder name, which a user has given.
func (r *reader) namedPlace(name string, o Origin) place {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	isFolder, err := r.disk.isFolder(path)
	switch {
	case err != nil:
		r.problem(Problem{Code: "config.no_file", Origin: o, Text: fmt.Sprintf("%s cannot be read: %v", mask.Quote(name), err)})
		return place{}
	case isFolder:
		p := place{folder: path, stem: mainStem}
		if len(r.existing(path, p.stems(r.env))) > 0 || len(r.hidden) > 0 {
			return p
		}
		r.problem(Problem{Code: "config.no_file", Origin: o, Text: fmt.Sprintf("the folder %s has no mega.config file", mask.Quote(name)), Hint: "name it mega.config.yaml, .toml or .json"})
		return place{}
	case formats[filepath.Ext(path)] == nil:
		r.problem(Problem{Code: "config.no_file", Origin: o, Text: mask.Quote(name) + " has no format", Hint: "its name ends in .yaml, .toml or .json"})
		return place{}
	}
	return place{folder: filepath.Dir(path), stem: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), file: path}
}

// stems returns the names of the main files, without their extensions, the
// weakest first.
func (p place) stems(env string) []string { return []string{p.stem, p.stem + "." + env} }

// existing returns the files of a folder that have one of these names, in their
// order. It finds endings that oneFormat refuses: their files would be ignored in
// silence.
func (r *reader) existing(folder string, stems []string) (paths []string) {
	for _, stem := range stems {
		for _, ending := range endings {
			for _, written := range []string{ending, strings.ToUpper(ending), strings.ToUpper(ending[:2]) + ending[2:]} {
				if path := filepath.Join(folder, stem+written); r.exists(path) {
					paths = append(paths, path)
					break // where case does not count, both are one file
				}
			}
		}
	}
	return paths
}

// exists reports whether a file exists. A folder that cannot be searched is a
// mistake, reported once: a file in it would be ignored in silence.
func (r *reader) exists(path string) bool {
	found, err := r.disk.exists(path)
	if err != nil {
		r.unsearchable(path, err)
	}
	return found
}

// unsearchable reports the folder above path that hides it.
func (r *reader) unsearchable(path string, err error) {
	folder := filepath.Dir(path)
	for {
		if _, above := r.disk.exists(folder); above == nil || folder == filepath.Dir(folder) {
			break
		}
		folder = filepath.Dir(folder)
	}
	if slices.Contains(r.hidden, folder) {
		return
	}
	r.hidden = append(r.hidden, folder)
	r.problem(Problem{Code: "config.file", Origin: Origin{Layer: LayerFile, File: folder}, Text: fmt.Sprintf("cannot be searched for configuration files: %v", err), Hint: "give this user access to it"})
}

// mainFiles returns the main files of a place.
func (r *reader) mainFiles(p place) []string {
	stems := p.stems(r.env)
	if p.file == "" {
		return r.oneFormat(r.existing(p.folder, stems))
	}
	return r.oneFormat(append([]string{p.file}, r.existing(p.folder, stems[1:])...))
}

// oneFormat refuses files of several formats side by side, because their
// precedence would be undefined.
func (r *reader) oneFormat(paths []string) []string {
	paths = slices.DeleteFunc(paths, func(path string) bool {
		wrong := formats[filepath.Ext(path)] == nil
		if wrong {
			r.problem(Problem{Code: "config.no_file", Origin: r.origin(path), Text: "is not read", Hint: "rename it: its ending is " + endingOf(path)})
		}
		return wrong
	})
	for _, path := range paths {
		if filepath.Ext(path) != filepath.Ext(paths[0]) {
			r.problem(Problem{
				Code: "config.two_formats", Origin: r.origin(path),
				Text: "has another format than " + filepath.Base(paths[0]) + " beside it", Hint: "keep one of them",
			})
		}
	}
	return paths
}

// endingOf returns the ending with which a file is read.
func endingOf(path string) string {
	if ending := strings.ToLower(filepath.Ext(path)); formats[ending] != nil {
		return ending
	}
	return ".yaml"
}

// appFiles returns the file of each app that has one. A folder of an app that
// the program does not have is a mistake: its file would never be read.
func (r *reader) appFiles(p place) map[string]string {
	found := map[string]string{}
	folders, err := r.disk.list(filepath.Join(p.folder, "apps"))
	if err != nil {
		r.problem(Problem{Code: "config.file", Origin: r.origin(filepath.Join(p.folder, "apps")), Text: fmt.Sprintf("cannot be searched for configuration files: %v", err)})
	}
	for _, app := range folders {
		folder, isKnown := filepath.Join(p.folder, "apps", app), slices.Contains(r.schema.apps, app)
		for _, path := range r.existing(folder, []string{mainStem}) {
			if isKnown { // else it may be the folder of another program
				r.problem(Problem{Code: "config.no_file", Origin: r.origin(path), Text: "is not read", Hint: "rename it: the file of an app is " + appStem + endingOf(path)})
			}
		}
		paths := r.existing(folder, []string{appStem, appStem + "." + r.env})
		if len(paths) == 0 {
			continue
		}
		if !isKnown {
			r.problem(r.schema.unknownApp(app, r.origin(paths[0])))
			continue
		}
		for _, path := range r.oneFormat(paths) {
			if strings.HasPrefix(filepath.Base(path), appStem+"."+r.env+".") {
				r.problem(Problem{Code: "config.no_file", Origin: r.origin(path), Text: "is not read", Hint: fmt.Sprintf("put the differences of %s into mega.config.%s.*, below apps.%s", r.env, r.env, app)})
				continue
			}
			found[app] = path
		}
	}
	return found
}
