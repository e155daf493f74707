package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder fills structs from merged values and collects all that is wrong.
type decoder struct {
	schema   *schema
	values   map[string]Value
	problems Problems
}

func (d *decoder) decode(v reflect.Value, key string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		at := name
		if key != "" {
			at = key + "." + name
		}
		switch {
		case isLeaf(f.Type):
			d.leaf(v.Field(i), f, at)
		case f.Type.Kind() == reflect.Map:
			d.named(v.Field(i), at)
		default:
			d.decode(v.Field(i), at)
		}
	}
}

// named fills a map from the names that occur under key.
func (d *decoder) named(m reflect.Value, key string) {
	m.Set(reflect.MakeMap(m.Type()))
	for full := range d.values {
		rest, ok := strings.CutPrefix(full, key+".")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if m.MapIndex(reflect.ValueOf(name)).IsValid() {
			continue
		}
		elem := reflect.New(m.Type().Elem()).Elem()
		d.decode(elem, key+"."+name)
		m.SetMapIndex(reflect.ValueOf(name), elem)
	}
}

func (d *decoder) leaf(v reflect.Value, f reflect.StructField, key string) {
	value, ok := d.values[key]
	if !ok {
		if f.Tag.Get("required") == "true" {
			d.problems = append(d.problems, Problem{Code: "config.missing", Key: key, Text: "is required", Hint: "set " + EnvName(key)})
		}
		return
	}
	value.secret = f.Type == reflect.TypeFor[Secret]()
	value.url = f.Type == reflect.TypeFor[URL]()
	d.values[key] = value
	if err := set(v, f, value.Text); err != nil {
		p := Problem{Code: "config.invalid", Key: key, Origin: value.Origin, Text: err.Error()}
		if u, ok := errors.AsType[*unitError](err); ok {
			p.Code, p.Hint = "config.no_unit", u.hint()
		}
		d.problems = append(d.problems, p)
	}
}

func set(v reflect.Value, f reflect.StructField, text string) error {
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		return checkScheme(v.Interface(), f.Tag.Get("schemes"))
	}
	switch {
	case isDuration(f.Type):
		return setDuration(v, f, text)
	case f.Type.Kind() == reflect.String:
		return setString(v, f, text)
	case f.Type.Kind() == reflect.Bool:
		return setBool(v, text)
	}
	return setInt(v, f, text)
}

func setString(v reflect.Value, f reflect.StructField, text string) error {
	v.SetString(text)
	enum := f.Tag.Get("enum")
	if enum == "" || slices.Contains(strings.Split(enum, "|"), text) {
		return nil
	}
	legal := strings.Split(enum, "|")
	if best := nearest(text, legal); best != "" {
		return fmt.Errorf("%q is none of %s; did you mean %s?", text, strings.Join(legal, ", "), best)
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(legal, ", "))
}

func setBool(v reflect.Value, text string) error {
	switch strings.ToLower(text) {
	case "true":
		v.SetBool(true)
	case "false":
		v.SetBool(false)
	default:
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return nil
}

func setInt(v reflect.Value, f reflect.StructField, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v.OverflowInt(n) {
		return fmt.Errorf("%q is not a whole number", text)
	}
	if low, err := strconv.ParseInt(f.Tag.Get("min"), 10, 64); err == nil && n < low {
		return fmt.Errorf("%d is less than %d", n, low)
	}
	if high, err := strconv.ParseInt(f.Tag.Get("max"), 10, 64); err == nil && n > high {
		return fmt.Errorf("%d is more than %d", n, high)
	}
	v.SetInt(n)
	return nil
}

// unitError is a duration that is a bare number. It is never guessed what it
// meant: read as nanoseconds it would be wrong almost always.
type unitError struct{ text string }

func (e *unitError) Error() string { return quote(e.text) + " has no unit" }
func (e *unitError) hint() string  { return "write " + e.text + "s or " + e.text + "ms" }

func setDuration(v reflect.Value, f reflect.StructField, text string) error {
	if _, err := strconv.ParseFloat(text, 64); err == nil && text != "0" {
		return &unitError{text}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 500ms, 10s or 1m30s", text)
	}
	if low, err := time.ParseDuration(f.Tag.Get("min")); err == nil && d < low {
		return fmt.Errorf("%v is less than %v", d, low)
	}
	if high, err := time.ParseDuration(f.Tag.Get("max")); err == nil && d > high {
		return fmt.Errorf("%v is more than %v", d, high)
	}
	v.SetInt(int64(d))
	return nil
}

func checkScheme(v any, schemes string) error {
	u, ok := v.(URL)
	if !ok || schemes == "" || slices.Contains(strings.Split(schemes, "|"), u.Scheme()) {
		return nil
	}
	legal := strings.ReplaceAll(schemes, "|", ", ")
	return fmt.Errorf("%s: the scheme %q is none of %s", u, u.Scheme(), legal)
}
