package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Field is one key of the schema. A part of its Path that is "*" stands for a
// name: that of an app or the alias of a cache.
type Field struct {
	Path    []string
	Type    reflect.Type
	Default string
	Enum    []string
	Doc     string
}

// Key returns the dotted key, such as lock.ttl.
func (f Field) Key() string { return strings.Join(f.Path, ".") }

// EnvName returns the variable that sets key: lock.ttl is MEGA_LOCK_TTL.
func EnvName(key string) string {
	return "MEGA_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// schema is all keys there are, and the apps and sections that exist.
type schema struct {
	fields   []Field
	apps     []string
	sections []Section // each name once
}

var nameRule = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// ValidName reports whether name may name an app, a cache or a section: it
// becomes part of variables, so it is a lower-case word.
func ValidName(name string) bool { return nameRule.MatchString(name) }

func newSchema(s Source) (*schema, Problems) {
	sc := &schema{apps: s.Apps}
	sc.add(reflect.TypeFor[Config](), nil)
	var problems Problems
	for _, sec := range s.Sections {
		if err := sc.join(sec); err != nil {
			problems = append(problems, Problem{Code: "config.section", Key: sec.Name, Text: err.Error(), Hint: "declared at " + sec.Site})
		}
	}
	return sc, problems
}

// join adds a section to the schema. Two parts of a program may share one, as
// long as they mean the same type.
func (sc *schema) join(sec Section) error {
	if i := slices.IndexFunc(sc.sections, func(s Section) bool { return s.Name == sec.Name }); i >= 0 {
		if first := sc.sections[i]; first.Type != sec.Type {
			return fmt.Errorf("it is %v here and %v at %s", sec.Type, first.Type, first.Site)
		}
		return nil
	}
	if err := sc.admit(sec); err != nil {
		return err
	}
	sc.sections = append(sc.sections, sec)
	sc.add(sec.Type, []string{sec.Name})
	return nil
}

// admit checks that a section is a struct of decodable fields under a name
// that is free.
func (sc *schema) admit(sec Section) error {
	switch {
	case !ValidName(sec.Name):
		return errors.New("a section's name is a lower-case word")
	case sec.Type == nil || sec.Type.Kind() != reflect.Struct:
		return fmt.Errorf("want a struct, got %v", sec.Type)
	case slices.ContainsFunc(sc.fields, func(f Field) bool { return f.Path[0] == sec.Name }):
		return errors.New("the name is mega's own")
	}
	return decodable(sec.Type, sec.Name)
}

func decodable(t reflect.Type, key string) error {
	for f := range t.Fields() {
		name, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		key := key + "." + name
		switch {
		case !f.IsExported():
			return fmt.Errorf("%s: field %s is not exported", key, f.Name)
		case isLeaf(f.Type):
		case f.Type.Kind() == reflect.Struct:
			if err := decodable(f.Type, key); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: a field of type %v cannot be configured", key, f.Type)
		}
	}
	return nil
}

func isDuration(t reflect.Type) bool { return t == reflect.TypeFor[time.Duration]() }

func isLeaf(t reflect.Type) bool {
	if isDuration(t) || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
		return true
	}
	return false
}

func (sc *schema) add(t reflect.Type, path []string) {
	for f := range t.Fields() {
		key, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		at := append(slices.Clip(path), key)
		switch {
		case isLeaf(f.Type):
			sc.fields = append(sc.fields, newField(f, at))
		case f.Type.Kind() == reflect.Map:
			sc.add(f.Type.Elem(), append(at, "*"))
		default:
			sc.add(f.Type, at)
		}
	}
}

func newField(f reflect.StructField, path []string) Field {
	field := Field{Path: path, Type: f.Type, Default: f.Tag.Get("default"), Doc: f.Tag.Get("doc")}
	if enum := f.Tag.Get("enum"); enum != "" {
		field.Enum = strings.Split(enum, "|")
	}
	return field
}

// defaults is the lowest layer. Apps count up from port 8080, in the order in
// which the program names them.
func (sc *schema) defaults(s Source) map[string]Value {
	layer := map[string]Value{}
	put := func(key, text string) {
		layer[key] = Value{Key: key, Text: text, Origin: Origin{Layer: "default"}}
	}
	for _, f := range sc.fields {
		if f.Default != "" {
			put(f.Key(), f.Default)
		}
	}
	for i, app := range sc.apps {
		put("apps."+app+".addr", fmt.Sprintf("127.0.0.1:%d", 8080+i))
	}
	put("env", "production")
	if s.Env != "" {
		put("env", s.Env)
	}
	if inKubernetes(s.Environ) {
		put("shutdown.delay", "5s") // endpoints learn late that a pod is going away
	}
	return layer
}
