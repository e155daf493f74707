package settings

import (
	"reflect"
	"strings"
)

// decoder fills structs from the merged values of a Config.
type decoder struct {
	config   *Config
	problems Problems
}

// decode fills the struct v from the keys below key. before precedes the keys
// of an app's own section.
func (d *decoder) decode(v reflect.Value, before, key string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		at := strings.TrimPrefix(key+"."+name, ".")
		switch {
		case familyOf(f.Type) != noFamily:
			d.leaf(v.Field(i), newField(f, strings.Split(at, ".")), before+at)
		case f.Type.Kind() == reflect.Map:
			d.fillMap(v.Field(i), at)
		default:
			d.decode(v.Field(i), before, at)
		}
	}
}

// fillMap fills a map with an element for each name below key.
func (d *decoder) fillMap(m reflect.Value, key string) {
	m.Set(reflect.MakeMap(m.Type()))
	for full, value := range d.config.values {
		rest, ok := strings.CutPrefix(full, key+".")
		if !ok || value.Text == "" {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if m.MapIndex(reflect.ValueOf(name)).IsValid() {
			continue
		}
		elem := reflect.New(m.Type().Elem()).Elem()
		d.decode(elem, "", key+"."+name)
		m.SetMapIndex(reflect.ValueOf(name), elem)
	}
}

func (d *decoder) leaf(v reflect.Value, f field, key string) {
	value, ok := d.config.lookup(key)
	if f.Required && value.Text == "" {
		d.problems = append(d.problems, Problem{
			Code: "config.missing", Key: key, Origin: value.Origin, Text: "is required", Hint: "set " + EnvName(f.Key()),
		})
		return
	}
	if ok {
		v.Set(value.parsed) // a key has the type of the key from which it inherits
	}
}
