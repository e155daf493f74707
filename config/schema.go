package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Field is one key of the schema. A part of its Path that is "*" stands for
// the alias of a cache.
type Field struct {
	Path     []string
	Type     reflect.Type
	Default  string
	Doc      string
	Enum     []string
	Min, Max string
	Schemes  []string // of a URL
	Like     string   // an example of what Pattern wants
	Inherits string   // the key whose value counts where this one has none
	Required bool
	Live     bool // a running process takes a new value over
	InFiles  bool // a file may set it

	pattern *regexp.Regexp
}

// Key returns the dotted key, such as lock.ttl.
func (f Field) Key() string { return strings.Join(f.Path, ".") }

// EnvName returns the variable that sets key: lock.ttl is MEGA_LOCK_TTL.
func EnvName(key string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// schema is all keys there are, and the apps and sections that exist.
type schema struct {
	fields   []Field // as declared, those of apps once for each app
	apps     []string
	sections []Section         // each app and name once
	variable map[string]string // the key of each variable, without those of caches
	root     *branch
}

// branch is a place in the tree of keys: a key, or a section of them.
type branch struct {
	field *Field
	parts map[string]*branch
	names *branch // what stands below every name, such as the alias of a cache
}

var (
	nameRule = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	keyRule  = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
)

// ValidName reports whether name may name an app, a cache or a section: it
// becomes part of variables, so it is a lower-case word.
func ValidName(name string) bool { return nameRule.MatchString(name) }

func newSchema(s Source) (*schema, Problems) {
	sc := &schema{apps: s.Apps, variable: map[string]string{}, root: newBranch()}
	sc.root.grow([]string{"apps"}) // it is known, although a program may have none
	problems := sc.add(reflect.TypeFor[Config](), nil)
	for _, sec := range s.Sections {
		problems = append(problems, sc.join(sec)...)
	}
	return sc, problems
}

func newBranch() *branch { return &branch{parts: map[string]*branch{}} }

// add puts the keys of a struct at path into the schema.
func (sc *schema) add(t reflect.Type, path []string) (p Problems) {
	for f := range t.Fields() {
		key, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		at := append(slices.Clip(path), key)
		switch {
		case familyOf(f.Type) != noFamily:
			p = append(p, sc.put(newField(f, at))...)
		case f.Type == reflect.TypeFor[map[string]App]():
			for _, app := range sc.apps {
				p = append(p, sc.add(f.Type.Elem(), append(slices.Clip(at), app))...)
			}
		case f.Type.Kind() == reflect.Map:
			p = append(p, sc.add(f.Type.Elem(), append(at, "*"))...)
		default:
			p = append(p, sc.add(f.Type, at)...)
		}
	}
	return p
}

func newField(f reflect.StructField, path []string) Field {
	field := Field{
		Path: path, Type: f.Type, Default: f.Tag.Get("default"), Doc: f.Tag.Get("doc"),
		Enum: alternatives(f.Tag.Get("enum")), Min: f.Tag.Get("min"), Max: f.Tag.Get("max"),
		Schemes: alternatives(f.Tag.Get("schemes")), Like: f.Tag.Get("like"), Inherits: f.Tag.Get("inherits"),
		Required: f.Tag.Get("required") == "true", Live: f.Tag.Get("reload") == "live", InFiles: f.Tag.Get("file") != "no",
	}
	if pattern := f.Tag.Get("pattern"); pattern != "" {
		field.pattern = regexp.MustCompile(pattern) // that of a section was compiled before
	}
	return field
}

func alternatives(tag string) []string {
	if tag == "" {
		return nil
	}
	return strings.Split(tag, "|")
}

// put adds one key. Two keys with one variable cannot be told apart.
func (sc *schema) put(f Field) Problems {
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
	sc.variable[name] = f.Key()
	sc.fields = append(sc.fields, f)
	sc.root.grow(f.Path).field = &f
	return nil
}

// grow returns the branch at path, which it makes where it is missing.
func (b *branch) grow(path []string) *branch {
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

// below returns what stands under name, or nil.
func (b *branch) below(name string) *branch {
	if next := b.parts[name]; next != nil {
		return next
	}
	if b.names != nil && ValidName(name) {
		return b.names
	}
	return nil
}

// find returns the field that a key belongs to.
func (sc *schema) find(key string) (Field, bool) {
	b := sc.root
	for part := range strings.SplitSeq(key, ".") {
		if part == "*" {
			b = b.names
		} else {
			b = b.below(part)
		}
		if b == nil {
			return Field{}, false
		}
	}
	if b.field == nil {
		return Field{}, false
	}
	return *b.field, true
}

// join adds a section to the schema. Two parts of a program may share one, as
// long as they mean the same type.
func (sc *schema) join(sec Section) Problems {
	if i := slices.IndexFunc(sc.sections, func(s Section) bool { return s.Name == sec.Name }); i >= 0 {
		if first := sc.sections[i]; first.Type != sec.Type {
			return sec.problem(fmt.Errorf("it is %v here and %v at %s", sec.Type, first.Type, first.Site))
		}
	} else if err := sc.admit(sec); err != nil {
		return sec.problem(err)
	}
	if slices.ContainsFunc(sc.sections, func(s Section) bool { return s.Name == sec.Name && s.App == sec.App }) {
		return nil
	}
	sc.sections = append(sc.sections, sec)
	p := sc.add(sec.Type, []string{sec.Name})
	if sec.App != "" {
		p = append(p, sc.own(sec)...)
	}
	for i := range p {
		p[i].Hint += "; declared at " + sec.Site
	}
	return p
}

// own adds the keys with which an app departs from what others see.
func (sc *schema) own(sec Section) (p Problems) {
	if !slices.Contains(sc.apps, sec.App) {
		return sec.problem(errors.New("there is no app called " + quote(sec.App)))
	}
	shared := slices.DeleteFunc(slices.Clone(sc.fields), func(f Field) bool { return f.Path[0] != sec.Name })
	for _, f := range shared {
		f.Inherits, f.Default, f.Required = f.Key(), "", false
		f.Path = append([]string{"apps", sec.App}, f.Path...)
		p = append(p, sc.put(f)...)
	}
	return p
}

func (s Section) problem(err error) Problems {
	return Problems{{Code: "config.section", Key: s.Name, Text: err.Error(), Hint: "declared at " + s.Site}}
}

// appNames lists the apps, for a sentence.
func (sc *schema) appNames() string {
	if len(sc.apps) == 0 {
		return "it has none"
	}
	return "its apps: " + strings.Join(sc.apps, ", ")
}
