// Package config reads the files, the environment and the command line of a
// process into one checked Config. Each value records its origin.
//
// One schema defines everything: the key tags of the structs in this package
// and of an application's own sections. It defines the keys, the variable of
// each key (lock.redis.key is MEGA_LOCK_REDIS_KEY), the defaults, the legal
// values, and the output of [Config.Explain], [JSONSchema] and [Reference].
// Loading is strict and complete: an unknown key, a number without its unit, an
// empty section and a malformed URL are errors. Each error names the line of
// its file, and Load reports all of them at once.
//
// # Layers
//
// A key has the value of the strongest layer that sets it:
//
//	--set key=value
//	MEGA_* variables
//	.env                        in env dev and test
//	mega.ConfigFrom             sources of the program
//	apps/<name>/app.config.*    keys of apps.<name>
//	mega.config.<env>.*
//	mega.config.*
//	defaults
//
// Sections merge key by key, lists replace each other.
//
// # Sections
//
// An application adds its own structs to the schema. Their fields have the tags
//
//	key        the last part of the key, a lower-case word with underscores
//	default    the value if nothing sets it
//	doc        a description
//	enum       the legal values, with | between them
//	min, max   bounds of a number, a duration or a [Size]
//	schemes    the legal schemes of a [URL], with | between them
//	pattern    what a text, or each text of a list, has to match
//	like       an example of pattern, for the error of a text that does not match
//	required   "true": it must have a value that is not empty
//
// and one of the types string, bool, number, [time.Duration], list of strings,
// [Size], [Addr], [URL], [Secret], another encoding.TextUnmarshaler, or a
// struct of such fields.
//
// # How it works
//
// [Load] goes from the schema to one Config in five steps:
//
//	schema      the keys of Config and of the sections            schema.go, section.go
//	find        the files of the env, upwards from Source.Dir     find.go, read.go
//	read        each layer: text to values, with line numbers     yaml.go, toml.go, json.go, dotenv.go,
//	                                                              environ.go, provider.go, set.go; walk.go
//	merge       the layers, weakest first, by koanf               layer.go
//	assemble    default addresses, values to structs, and         address.go, decode.go,
//	            contradictions between keys                       contradiction.go
//
// A step collects its problems and continues, so that Load returns all of them.
// The rest describes the result: [Config.Explain] (explain.go), [JSONSchema]
// (jsonschema.go), [Reference] (reference.go), and [Reload] compares a new
// Config with the running one (reload.go).
package config

import (
	"reflect"
	"slices"
	"strings"
)

// Config is the configuration of a process. It is immutable once loaded.
type Config struct {
	Env      string           `key:"env" file:"no" pattern:"^[a-z][a-z0-9_-]*$" like:"staging" doc:"dev, test, production or a name of your own; not in files, as it decides which of them are read"`
	Name     string           `key:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" like:"shop" doc:"the name of the program; default the name of its executable"`
	Lock     Lock             `key:"lock"`
	Limit    Limit            `key:"limit"`
	Bus      Bus              `key:"bus"`
	NATS     NATS             `key:"nats"`
	Cache    map[string]Cache `key:"cache"`
	Cluster  Cluster          `key:"cluster"`
	Apps     map[string]App   `key:"apps"`
	Ops      Ops              `key:"ops"`
	Boot     Boot             `key:"boot"`
	Shutdown Shutdown         `key:"shutdown"`
	Log      Log              `key:"log"`

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
func (c *Config) Caches() []string {
	var aliases []string
	for alias := range c.Cache {
		aliases = append(aliases, alias)
	}
	slices.Sort(aliases)
	return aliases
}

// Files returns the files that Load read, the weakest first.
func (c *Config) Files() []File { return slices.Clone(c.files) }

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
