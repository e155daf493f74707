// Package settings loads the configuration of a process: it reads the files, the
// environment and the command line into one checked Config, in which each value
// has its origin. Package config has the structs whose tags are the schema.
//
// [Load] goes from the schema to one Config in five steps:
//
//	schema      the keys of config.Config and of the sections     schema.go, section.go
//	find        the files of the env, upwards from Source.Dir     find.go, read.go
//	read        each layer: text to values, with line numbers     yaml.go, toml.go, json.go, dotenv.go,
//	                                                              environ.go, provider.go, set.go; walk.go
//	merge       the layers, weakest first, by koanf               layer.go
//	assemble    default addresses, values to structs, and         address.go, decode.go,
//	            contradictions between keys                       contradiction.go
//
// The type of a key decides which texts are legal (leaf.go); a layer has values
// (value.go) and problems (problem.go).
//
// A step collects its problems and continues, so that Load returns all of them.
// The rest describes the result: [Config.Explain] (explain.go) and [JSONSchema]
// (jsonschema.go). [Reload] compares a new Config with the running one (reload.go). A
// copy of all files that were read ([Files], files.go) lets a worker load the same
// configuration.
package settings

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
)

// Config is a loaded configuration with the origin of each value. It is
// immutable.
type Config struct {
	config.Config

	schema   *schema
	only     []string // the apps that this process runs; empty for all
	values   map[string]Value
	defaults map[string]string // the values of keys that nothing sets
	files    []File
	sections map[sectionID]reflect.Value
}

// Section is a part of the schema that an application adds: the struct Type,
// with key tags, under Name. A section that an app declares can be set for all
// apps that declare it, at database.url, and for one app alone, at
// apps.web.database.url, which then takes precedence in that app.
type Section struct {
	App  string // the app that declares it; empty for a shared section
	Name string
	Type reflect.Type
	Site string // file:line of its declaration, for error texts
}

// sectionID identifies a section of an app, or a shared section.
type sectionID struct{ app, name string }

// Caches returns the aliases of the configured caches, sorted.
func (c *Config) Caches() []string { return slices.Sorted(maps.Keys(c.Cache)) }

// Files returns the files that Load read, the weakest first.
func (c *Config) Files() []File { return slices.Clone(c.files) }

// Value returns the value of a key that has one of its own, with secrets masked.
func (c *Config) Value(key string) (Value, bool) {
	v, ok := c.values[key]
	return v.masked(), ok
}

// Origin returns the origin of the value of key.
func (c *Config) Origin(key string) Origin {
	v, _ := c.lookup(key)
	return v.Origin
}

// lookup returns the value of key, or of the key from which it inherits.
func (c *Config) lookup(key string) (Value, bool) {
	v, ok := c.values[key]
	if ok {
		return v, true
	}
	if f, known := c.schema.find(key); known && f.Inherits != "" {
		return c.lookup(f.Inherits)
	}
	return Value{}, false
}

// Section returns the section of that name for app, a value of its Type. It
// returns the shared section if app is empty or did not declare a section of
// its own.
func (c *Config) Section(app, name string) (any, bool) {
	v, ok := c.sections[sectionID{app, name}]
	if !ok {
		v, ok = c.sections[sectionID{"", name}]
	}
	if !ok {
		return nil, false
	}
	return v.Interface(), true
}

// Values returns every key with a value of its own, sorted, with secrets
// masked.
func (c *Config) Values() []Value {
	var all []Value
	for _, v := range c.values {
		all = append(all, v.masked())
	}
	slices.SortFunc(all, func(a, b Value) int { return strings.Compare(a.Key, b.Key) })
	return all
}
