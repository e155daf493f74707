// Package config turns the files, the environment and the command line of a
// process into one checked Config, whose values know where they came from.
//
// One schema, the key tags of the structs in this package and of an
// application's own sections, decides everything: which keys exist, what the
// variable of a key is called (lock.redis.key is MEGA_LOCK_REDIS_KEY), its
// default, what is a legal value, what [Config.Explain], [JSONSchema] and [Reference]
// say of it. Loading is strict and complete: an unknown key, a number without
// its unit, an empty section and a malformed URL are errors, each says the
// line of its file, and all of them are reported at once.
//
// # Layers
//
// A key has the value of the strongest layer that sets it:
//
//	--set key=value
//	MEGA_* variables
//	.env                        in env dev and test
//	apps/<name>/app.config.*    keys of apps.<name>
//	mega.config.<env>.*
//	mega.config.*
//	defaults
//
// Sections merge key by key, lists replace each other.
//
// # Sections
//
// An application adds structs of its own to the schema. Fields have the tags
//
//	key        the last part of the key, a lower-case word with underscores
//	default    the value where nothing sets it
//	doc        what it is
//	enum       the legal values, with | between them
//	min, max   bounds of a number, a duration or a [Size]
//	schemes    the legal schemes of a [URL], with | between them
//	pattern    what a text, or each text of a list, has to match
//	like       an example of pattern, for those who did not match it
//	required   "true": it has to be set, and not to nothing
//
// and are a string, bool, number, [time.Duration], list of strings, [Size],
// [Addr], [URL], [Secret], another encoding.TextUnmarshaler, or a struct of
// such fields.
package config

import (
	"reflect"
	"slices"
	"strings"
)

// Config is the configuration of a process. It does not change once loaded.
type Config struct {
	Env      string           `key:"env" file:"no" pattern:"^[a-z][a-z0-9_-]*$" like:"staging" doc:"dev, test, production or a name of your own; not in files, as it decides which of them are read"`
	Name     string           `key:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" like:"shop" doc:"what the program is called; default the name of its executable"`
	Lock     Lock             `key:"lock"`
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
	defaults map[string]string // what keys are where nothing sets them
	files    []File
	sections map[sectionID]reflect.Value
}

// Section is a part of the schema that an application adds: the struct Type,
// with key tags, under Name. What one app declares can be set for all who
// declare it, at database.url, and for the app alone, at apps.web.database.url,
// which is then what that app sees.
type Section struct {
	App  string // the app that declares it; empty for one that all share
	Name string
	Type reflect.Type
	Site string // file:line of its declaration, for error texts
}

// sectionID is a section of an app, or of all of them.
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

// Files returns the files that were read, the weakest first.
func (c *Config) Files() []File { return slices.Clone(c.files) }

// Origin says where the value of key came from.
func (c *Config) Origin(key string) Origin {
	v, _ := c.lookup(key)
	return v.Origin
}

// lookup returns the value of key, or of the key that it inherits from.
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

// Section returns the section of that name as app sees it, a value of its
// Type. App is empty for one that all share, and one that all share is what an
// app sees that did not declare its own.
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

// Values returns every key that has a value of its own, sorted, with secrets
// masked.
func (c *Config) Values() []Value {
	var all []Value
	for _, v := range c.values {
		all = append(all, v.masked())
	}
	slices.SortFunc(all, func(a, b Value) int { return strings.Compare(a.Key, b.Key) })
	return all
}
