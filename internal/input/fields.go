package input

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// field is a field of a struct, or of a struct that is embedded in it.
type field struct {
	t      reflect.Type
	path   []int // of its index in each struct, from the outermost one
	tagged bool  // its name is in a tag
	quoted bool  // its JSON is text that contains a value of its type
}

// fieldsOf returns the fields of a struct by their names, with the rules of
// encoding/json: the fields of an embedded struct without a name in its tag belong
// to the outer struct, the least nested of several fields with one name counts,
// and several of the same depth hide each other. tagOf returns the tag of a field.
func fieldsOf(t reflect.Type, tagOf func(reflect.StructField) string) map[string]field {
	fields := map[string]field{}
	hidden := map[string]bool{}
	seen := map[reflect.Type]bool{} // a struct may embed a pointer to itself
	for level := []field{{t: t}}; len(level) > 0; {
		var inside []field
		here := map[string][]field{}
		for _, outer := range level {
			again := seen[outer.t] // one level may have a struct twice: its fields hide each other
			seen[outer.t] = true
			for f := range outer.t.Fields() {
				isStruct := f.Anonymous && elem(f.Type).Kind() == reflect.Struct
				tag := tagOf(f)
				if tag == "-" || !f.IsExported() && !isStruct {
					continue
				}
				name, options, _ := strings.Cut(tag, ",")
				path := slices.Concat(outer.path, f.Index)
				if name == "" && isStruct {
					if !again { // encoding/json looks into the structs of the first one alone
						inside = append(inside, field{t: elem(f.Type), path: path})
					}
					continue
				}
				called := cmp.Or(name, f.Name)
				here[called] = append(here[called], field{f.Type, path, name != "", strings.Contains(options, "string")})
			}
		}
		for name, all := range here {
			if f, ok := dominant(all); ok && !hidden[name] {
				fields[name] = f
			}
			hidden[name] = true
		}
		level = slices.DeleteFunc(inside, func(f field) bool { return seen[f.t] })
	}
	return fields
}

// dominant returns the field that counts of those with one name at one depth.
func dominant(all []field) (field, bool) {
	if len(all) > 1 {
		all = slices.DeleteFunc(all, func(f field) bool { return !f.tagged })
	}
	if len(all) != 1 {
		return field{}, false
	}
	return all[0], true
}

// jsonTag returns the tag of a field for JSON.
func jsonTag(f reflect.StructField) string { return f.Tag.Get("json") }

// formTag returns the tag of a field for a form.
func formTag(f reflect.StructField) string {
	if tag, ok := f.Tag.Lookup("form"); ok {
		return tag
	}
	return f.Tag.Get("json")
}

func elem(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
