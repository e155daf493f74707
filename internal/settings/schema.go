package settings

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/mask"
)

// field is one key of the schema. A part "*" of its Path stands for the alias
// of a cache.
type field struct {
	Path     []string
	Type     reflect.Type
	Default  string
	Doc      string
	Enum     []string
	Min, Max string
	Schemes  []string // of a URL
	Like     string   // an example of text that matches Pattern
	Inherits string   // the key whose value applies if this key has none
	Required bool
	Live     bool // a running process applies a new value
	InFiles  bool // a file may set it

	pattern  *regexp.Regexp
	patience *time.Duration // timeout of UnmarshalText, which all keys share
}

// Key returns the dotted key, such as lock.ttl.
func (f field) Key() string { return strings.Join(f.Path, ".") }

// EnvName returns the variable that sets key: lock.ttl is MEGA_LOCK_TTL.
func EnvName(key string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// schema is the set of all keys, apps and sections.
type schema struct {
	fields   []field // as declared, the keys of apps once for each app
	apps     []string
	sections []Section         // each app and name once
	variable map[string]string // the key of each variable, without the keys of caches
	root     *branch

	defaulted map[string]Value // the parsed defaults of sections
	patience  time.Duration    // timeout of the next UnmarshalText
}

// branch is a node in the tree of keys: a key, or a section of keys.
type branch struct {
	field *field
	parts map[string]*branch
	names *branch // the branch below every name, such as the alias of a cache
}

var (
	nameRule = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	keyRule  = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
)

// ValidName reports whether name is valid for an app, a cache or a section: it
// becomes part of variables, so it is a lower-case word.
func ValidName(name string) bool { return nameRule.MatchString(name) }

func newSchema(s Source) (*schema, Problems) {
	sc := &schema{apps: s.Apps, variable: map[string]string{}, root: newBranch(), defaulted: map[string]Value{}, patience: unmarshalTime}
	sc.root.ensure([]string{"apps"}) // a known section, although a program may have no app
	problems := sc.addStruct(reflect.TypeFor[config.Config](), nil)
	for _, sec := range s.Sections {
		problems = append(problems, sc.addSection(sec)...)
	}
	return sc, problems
}

func newBranch() *branch { return &branch{parts: map[string]*branch{}} }

// addStruct adds the keys of a struct at path to the schema.
func (sc *schema) addStruct(t reflect.Type, path []string) (p Problems) {
	for f := range t.Fields() {
		key, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		at := append(slices.Clip(path), key)
		switch {
		case familyOf(f.Type) != noFamily:
			p = append(p, sc.addField(newField(f, at))...)
		case f.Type == reflect.TypeFor[map[string]config.App]():
			for _, app := range sc.apps {
				p = append(p, sc.addStruct(f.Type.Elem(), append(slices.Clip(at), app))...)
			}
		case f.Type.Kind() == reflect.Map:
			p = append(p, sc.addStruct(f.Type.Elem(), append(at, "*"))...)
		default:
			p = append(p, sc.addStruct(f.Type, at)...)
		}
	}
	return p
}

func newField(f reflect.StructField, path []string) field {
	made := field{
		Path: path, Type: f.Type, Default: f.Tag.Get("default"), Doc: f.Tag.Get("doc"),
		Enum: alternatives(f.Tag.Get("enum")), Min: f.Tag.Get("min"), Max: f.Tag.Get("max"),
		Schemes: alternatives(f.Tag.Get("schemes")), Like: f.Tag.Get("like"), Inherits: f.Tag.Get("inherits"),
		Required: f.Tag.Get("required") == "true", Live: f.Tag.Get("reload") == "live", InFiles: f.Tag.Get("file") != "no",
	}
	if pattern := f.Tag.Get("pattern"); pattern != "" {
		made.pattern = regexp.MustCompile(pattern) // a section's pattern was compiled before
	}
	return made
}

func alternatives(tag string) []string {
	if tag == "" {
		return nil
	}
	return strings.Split(tag, "|")
}

// addField adds one key. Two keys with the same variable are a problem.
func (sc *schema) addField(f field) Problems {
	name := EnvName(f.Key())
	if first, taken := sc.variable[name]; taken && first != f.Key() {
		return Problems{{
			Code: "config.section", Key: f.Key(),
			Text: fmt.Sprintf("has the variable %s, as %s has", name, first), Hint: "rename one of them",
		}}
	}
	if injectedAlways.MatchString(name) {
		return Problems{{
			Code: "config.section", Key: f.Key(),
			Text: fmt.Sprintf("has the variable %s, which Kubernetes sets for a service", name), Hint: "rename it",
		}}
	}
	if _, known := sc.find(f.Key()); known {
		return nil // another app declares the same section
	}
	f.patience = &sc.patience
	sc.variable[name] = f.Key()
	sc.fields = append(sc.fields, f)
	sc.root.ensure(f.Path).field = &f
	return nil
}

// ensure returns the branch at path and creates its missing parts.
func (b *branch) ensure(path []string) *branch {
	for _, part := range path {
		if part == "*" {
			if b.names == nil {
				b.names = newBranch()
			}
			b = b.names
			continue
		}
		if b.parts[part] == nil {
			b.parts[part] = newBranch()
		}
		b = b.parts[part]
	}
	return b
}

// below returns the branch under name, or nil.
func (b *branch) below(name string) *branch {
	if next := b.parts[name]; next != nil {
		return next
	}
	if b.names != nil && ValidName(name) {
		return b.names
	}
	return nil
}

// find returns the field of a key.
func (sc *schema) find(key string) (field, bool) {
	b := sc.root
	for part := range strings.SplitSeq(key, ".") {
		if part == "*" {
			b = b.names
		} else {
			b = b.below(part)
		}
		if b == nil {
			return field{}, false
		}
	}
	if b.field == nil {
		return field{}, false
	}
	return *b.field, true
}

// addSection adds a section to the schema. Two parts of a program may share a section
// if they use the same type.
func (sc *schema) addSection(sec Section) Problems {
	if i := slices.IndexFunc(sc.sections, func(s Section) bool { return s.Name == sec.Name }); i >= 0 {
		if first := sc.sections[i]; first.Type != sec.Type {
			return sec.problem(fmt.Errorf("it is %v here and %v at %s", sec.Type, first.Type, first.Site))
		}
	} else if err := sc.checkSection(sec); err != nil {
		return sec.problem(err)
	}
	sc.sections = append(sc.sections, sec)
	p := sc.addStruct(sec.Type, []string{sec.Name})
	if sec.App != "" {
		p = append(p, sc.addOverrides(sec)...)
	}
	for i := range p {
		p[i].Hint += "; declared at " + sec.Site
	}
	return p
}

// addOverrides adds the keys with which an app overrides a shared section.
func (sc *schema) addOverrides(sec Section) (p Problems) {
	if !slices.Contains(sc.apps, sec.App) {
		return sec.problem(errors.New("unknown app " + mask.Quote(sec.App)))
	}
	shared := slices.DeleteFunc(slices.Clone(sc.fields), func(f field) bool { return f.Path[0] != sec.Name })
	for _, f := range shared {
		f.Inherits, f.Default, f.Required = f.Key(), "", false
		f.Path = append([]string{"apps", sec.App}, f.Path...)
		p = append(p, sc.addField(f)...)
	}
	return p
}

func (s Section) problem(err error) Problems {
	return Problems{{Code: "config.section", Key: s.Name, Text: strings.TrimPrefix(err.Error(), s.Name+": "), Hint: "declared at " + s.Site}}
}

// appNames returns the apps as a phrase.
func (sc *schema) appNames() string {
	if len(sc.apps) == 0 {
		return "the program has no apps"
	}
	return "its apps: " + strings.Join(sc.apps, ", ")
}
