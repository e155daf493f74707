package settings

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/spelling"
)

// reserved are the first parts of variables that are not configuration.
var reserved = []string{"config", "env", "run", "test", "worker", "service", "port"}

// checkSection checks that a section is a struct of decodable keys, under a free name.
// A violation is a mistake in the program, so it is reported at boot and not at
// run time.
func (sc *schema) checkSection(sec Section) error {
	switch {
	case !ValidName(sec.Name):
		return errors.New("a section's name is a lower-case word")
	case sec.Type == nil || sec.Type.Kind() != reflect.Struct:
		return fmt.Errorf("want a struct, got %v", sec.Type)
	case sc.root.parts[sec.Name] != nil || slices.Contains(reserved, sec.Name) || isAppKey(sec.Name):
		return errors.New("the name is reserved")
	}
	return sc.checkStruct(sec.Type, sec.Name)
}

func isAppKey(name string) bool {
	return slices.ContainsFunc(appFields(), func(f field) bool { return f.Path[0] == name })
}

// checkStruct checks the fields of a struct whose keys are below at.
func (sc *schema) checkStruct(t reflect.Type, at string) error {
	seen := map[string]bool{} // the keys
	for f := range t.Fields() {
		name, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		key := at + "." + name
		if seen[name] {
			return fmt.Errorf("%s: two fields have this key", key)
		}
		seen[name] = true
		if err := sc.checkField(f, key); err != nil {
			return err
		}
	}
	if len(seen) == 0 {
		return fmt.Errorf("%s: %v has no field with a key tag", at, t)
	}
	return nil
}

// checkField checks one field with a key tag.
func (sc *schema) checkField(f reflect.StructField, key string) error {
	switch {
	case !keyRule.MatchString(f.Tag.Get("key")):
		return fmt.Errorf("%s: a key is a lower-case word, or several with underscores between them", key)
	case !f.IsExported():
		return fmt.Errorf("%s: field %s is not exported", key, f.Name)
	case familyOf(f.Type) != noFamily:
		if err := sc.checkFieldTags(f, key); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	case f.Type.Kind() == reflect.Struct:
		return sc.checkStruct(f.Type, key)
	}
	return fmt.Errorf("%s: a field cannot be a %v; use text, a number, a bool, a duration, a list of texts, a struct of these, or a type with UnmarshalText", key, f.Type)
}

// checkFieldTags checks that the tags of a key have an effect and that its default is
// legal. It stores the parsed default.
func (sc *schema) checkFieldTags(f reflect.StructField, key string) error {
	if pattern := f.Tag.Get("pattern"); pattern != "" {
		if _, err := regexp.Compile(pattern); err != nil {
			return fmt.Errorf("its pattern: %w", err)
		}
	}
	if err := checkTagNames(string(f.Tag)); err != nil {
		return err
	}
	if required, ok := f.Tag.Lookup("required"); ok && required != "true" && required != "false" {
		return fmt.Errorf("the tag required is %q, want \"true\"", required)
	}
	field := newField(f, []string{f.Tag.Get("key")})
	field.patience = &sc.patience
	if field.Live {
		return errors.New(`a section is handed over once, so reload:"live" promises too much`)
	}
	if err := field.checkTags(); err != nil {
		return err
	}
	for _, scheme := range field.Schemes {
		if !schemeRule.MatchString(scheme) {
			return fmt.Errorf("the tag schemes: %q is not a scheme; several have | between them", scheme)
		}
	}
	for _, bound := range []string{field.Min, field.Max} {
		if bound == "" {
			continue
		}
		if _, err := field.magnitude(bound); err != nil {
			return fmt.Errorf("its bound: %w", err)
		}
	}
	if field.Default == "" {
		return nil
	}
	v, err := field.check(field.parse(field.Default))
	if err != nil {
		return fmt.Errorf("its default: %w", err)
	}
	sc.defaulted[key] = v
	return nil
}

// tagNames are the tags of a field in a section.
var tagNames = []string{"key", "default", "doc", "enum", "min", "max", "schemes", "pattern", "like", "required"}

// inTag matches a name and its value in the tag of a field.
var inTag = regexp.MustCompile(`([^\s":]+):"(?:[^"\\]|\\.)*"`)

// checkTagNames returns an error for a tag that is probably misspelled: the field would
// be without its default or its bounds.
func checkTagNames(tag string) error {
	for _, m := range inTag.FindAllStringSubmatch(tag, -1) {
		if best := spelling.Nearest(m[1], tagNames); best != "" && best != m[1] {
			return fmt.Errorf("the tag %s has no effect; did you mean %s?", m[1], best)
		}
	}
	return nil
}

// schemeRule is the grammar of a scheme (RFC 3986, section 3.1).
var schemeRule = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*$`)

// checkTags finds tags that have no effect on a key of this type.
func (f field) checkTags() error {
	family := familyOf(f.Type)
	formed := family == textFamily && !f.measured() || family == listFamily
	for _, x := range []struct {
		tag  string
		set  bool
		fits bool
	}{
		{"enum", f.Enum != nil, formed},
		{"schemes", f.Schemes != nil, f.Type == reflect.TypeFor[config.URL]()},
		{"pattern", f.pattern != nil, formed},
		{"min or max", f.Min != "" || f.Max != "", f.measured()},
	} {
		if x.set && !x.fits {
			return fmt.Errorf("the tag %s has no effect for %v", x.tag, f.Type)
		}
	}
	return nil
}

// appFields returns the keys that every app has, without the prefix
// apps.<name>.
func appFields() (all []field) {
	for f := range reflect.TypeFor[config.App]().Fields() {
		key := f.Tag.Get("key")
		if f.Type != reflect.TypeFor[config.AppTLS]() {
			all = append(all, newField(f, []string{key}))
			continue
		}
		for inner := range f.Type.Fields() {
			all = append(all, newField(inner, []string{key, inner.Tag.Get("key")}))
		}
	}
	return all
}
