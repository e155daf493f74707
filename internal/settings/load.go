package settings

import (
	"cmp"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
)

// Source describes the inputs of a Config.
type Source struct {
	Environ  []string // as from os.Environ
	Env      string   // the env if MEGA_ENV is not set; default production
	Name     string   // the name if nothing sets it
	Dir      string   // where the search for files begins; empty for no search
	File     string   // the file or the folder to read instead, as from --config
	Apps     []string // the apps of the program, in order
	Only     []string // the apps that this process runs; empty for all
	Sections []Section
	Layers   []Layer           // the program's own, the weakest first
	Set      []string          // key=value, as from the command line
	Private  bool              // Set is not from a command line, so it may contain secrets
	Flags    map[string]string // the flags that set keys of Set in place of --set: cluster.workers by --workers
	Files    *Files            // a copy of the files to record or to load from; nil for the disk alone

	Done <-chan struct{} // ends the wait for Layers when it is closed; may be nil
}

// Load returns the configuration that s describes, or [Problems] with all
// mistakes in it.
func Load(s Source) (*Config, error) {
	sc, problems := newSchema(s)
	if len(problems) > 0 {
		return nil, problems // other problems may be consequences
	}
	vars := newEnvironment(s.Environ)
	env, set := sc.readEnviron(vars), sc.readSet(s)
	defaults := sc.defaults(s, cmp.Or(strongest("env", env, set).Text, s.Env))
	files := reader{schema: sc, disk: s.Files, dir: s.Files.begin(absolute(s.Dir)), env: strongest("env", defaults, env, set).Text}
	files.read(s.namedFile(vars))

	below := slices.Concat([]*layer{defaults}, files.layers)
	above := append(files.dotenv, env, set)
	own := sc.readLayers(s.Layers, waitFor(slices.Concat(below, above)...), s.Files, s.Done)
	layers := slices.Concat(below, own, above)
	problems = append(problems, files.problems...)
	for _, l := range layers {
		problems = append(problems, l.problems...)
	}
	values, err := merge(layers...)
	if err != nil {
		return nil, err
	}
	illegal := problems.keys()
	c, more := sc.assemble(s.Only, values, defaults.texts(), illegal)
	if problems = append(problems, c.withoutConsequences(illegal, problems.unread(), more)...); len(problems) > 0 {
		files.explainMissing(problems)
		problems.sort()
		return nil, problems
	}
	c.files = files.files
	return c, nil
}

// absolute returns dir as an absolute path, or "" if the working directory no
// longer exists.
func absolute(dir string) string {
	if path, err := filepath.Abs(dir); err == nil && dir != "" {
		return path
	}
	return dir
}

// strongest returns the value of key in the last of the layers that have it.
func strongest(key string, layers ...*layer) (v Value) {
	for _, l := range layers {
		if stronger, ok := l.values[key]; ok {
			v = stronger
		}
	}
	return v
}

// namedFile returns the file or folder that the user named, and its origin.
func (s Source) namedFile(vars environment) (string, Origin) {
	if s.File != "" {
		return s.File, Origin{Layer: LayerCommand, Name: "--config"}
	}
	return vars["MEGA_CONFIG"], Origin{Layer: LayerEnv, Name: "MEGA_CONFIG"}
}

// withoutConsequences returns later without the problems that an illegal value
// explains: problems of the same key, of keys that inherit its value, and of the
// cache that it would configure. A file or source that was not read as a whole explains
// missing keys and caches.
func (c *Config) withoutConsequences(illegal map[string]bool, unread bool, later Problems) Problems {
	return slices.DeleteFunc(later, func(l Problem) bool {
		f, _ := c.schema.find(l.Key)
		return unread && (l.Code == "config.missing" || l.Code == "config.unknown_cache") || illegal[l.Key] || illegal[f.Inherits] || l.Code == "config.unknown_cache" && illegal["cache."+c.values[l.Key].Text+".url"]
	})
}

// runs reports whether this process runs the app. Required keys of another
// process's apps are not required here.
func (c *Config) runs(app string) bool { return len(c.only) == 0 || slices.Contains(c.only, app) }

// assemble builds a Config from merged values. Illegal keys have no value in them.
func (sc *schema) assemble(only []string, values map[string]Value, defaults map[string]string, illegal map[string]bool) (*Config, Problems) {
	c := &Config{schema: sc, only: only, values: values, defaults: maps.Clone(defaults), sections: map[sectionID]reflect.Value{}}
	c.assignAddresses()
	d := decoder{config: c}
	d.decode(reflect.ValueOf(&c.Config).Elem(), "", "")
	for _, sec := range sc.sections {
		if sec.App != "" && !c.runs(sec.App) {
			continue
		}
		v := reflect.New(sec.Type).Elem()
		below := ""
		if sec.App != "" {
			below = "apps." + sec.App + "."
		}
		d.decode(v, below, sec.Name)
		c.sections[sectionID{sec.App, sec.Name}] = v
	}
	return c, append(d.problems, c.contradictions(illegal)...)
}
