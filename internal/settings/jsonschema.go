package settings

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/notation"
)

// JSONSchema returns a JSON Schema, draft 2020-12, of the files of s: of
// mega.config.*, and below #/$defs/app.<name> of the app.config.* of each app.
// The schema describes the keys, the types and forms of their values, and that
// no section is empty.
func JSONSchema(s Source) ([]byte, error) {
	sc, problems := newSchema(s)
	if len(problems) > 0 {
		return nil, problems
	}
	root := describeFile(sc.root)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "mega.config"
	apps := object{}
	for _, app := range sc.apps {
		apps["app."+app] = describeFile(sc.root.parts["apps"].parts[app])
	}
	if len(apps) > 0 {
		root["$defs"] = apps
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // keeps patterns readable
	e.SetIndent("", "  ")
	err := e.Encode(root)
	return out.Bytes(), err
}

type object = map[string]any

// describeFile describes the keys of a file. The file may name its schema, and
// may be empty.
func describeFile(b *branch) object {
	file := b.describe()
	delete(file, "minProperties")
	file["properties"].(object)["$schema"] = object{"type": "string"}
	return file
}

// describe describes a section. It omits sections that no file can set.
func (b *branch) describe() object {
	section := object{"type": "object", "additionalProperties": false, "minProperties": 1}
	properties := object{}
	for _, name := range slices.Sorted(maps.Keys(b.parts)) {
		if part := b.parts[name]; part.field == nil {
			properties[name] = part.describe()
		} else if part.field.InFiles {
			properties[name] = part.field.describe()
		}
	}
	section["properties"] = properties
	if b.names != nil {
		section["additionalProperties"] = b.names.describe()
		section["propertyNames"] = object{"pattern": nameRule.String()}
	}
	return section
}

// describe describes the values that a file may set for a key.
func (f field) describe() object {
	d := f.describeKind()
	if f.Doc != "" {
		d["description"] = f.Doc
	}
	if f.Default != "" {
		d["default"] = f.literal(f.Default)
	}
	return d
}

func (f field) describeKind() object {
	switch familyOf(f.Type) {
	case boolFamily:
		return object{"type": "boolean"}
	case intFamily:
		return f.describeInt()
	case floatFamily:
		return f.describeNumber("number")
	case listFamily:
		items := f.describeText()
		items["minLength"] = 1
		return object{"type": "array", "items": items}
	}
	if f.measured() {
		return object{"anyOf": []object{f.describeText(), {"const": 0}}}
	}
	return f.describeText()
}

// describeInt describes whole numbers in the range of their type.
func (f field) describeInt() object {
	d := f.describeNumber("integer")
	low, high := "0", strconv.FormatUint(math.MaxUint64>>(64-f.Type.Bits()), 10)
	if reflect.Zero(f.Type).CanInt() {
		low, high = strconv.FormatInt(math.MinInt64>>(64-f.Type.Bits()), 10), strconv.FormatInt(math.MaxInt64>>(64-f.Type.Bits()), 10)
	}
	if f.Min == "" {
		d["minimum"] = json.Number(low)
	}
	if f.Max == "" {
		d["maximum"] = json.Number(high)
	}
	return d
}

func (f field) describeNumber(kind string) object {
	d := object{"type": kind}
	if f.Min != "" {
		d["minimum"] = json.Number(f.Min)
	}
	if f.Max != "" {
		d["maximum"] = json.Number(f.Max)
	}
	return d
}

// durationForm matches the syntax of time.ParseDuration.
const durationForm = `^([+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|0)$`

func (f field) describeText() object {
	d := object{"type": "string"}
	if pattern := f.describePattern(); pattern != "" {
		d["pattern"] = ecma(pattern)
	}
	switch {
	case f.Enum != nil && f.mayBeEmpty() && familyOf(f.Type) == textFamily:
		d["enum"] = append([]string{""}, f.Enum...)
	case f.Enum != nil:
		d["enum"] = f.Enum
	case f.Type == reflect.TypeFor[config.Secret]():
		d["writeOnly"] = true
	}
	return d
}

// describePattern returns the form of a text as a regular expression of Go, or
// "" for any text.
func (f field) describePattern() string {
	switch {
	case isDuration(f.Type):
		return durationForm
	case f.Type == reflect.TypeFor[config.Size]():
		return "^0$|" + notation.SizePattern
	case f.Type == reflect.TypeFor[config.Addr]():
		return f.orNothing(`^.*:(0|[1-9][0-9]{0,4})$`)
	case f.Type == reflect.TypeFor[config.URL]():
		return f.orNothing(f.describeSchemes())
	case f.pattern != nil && f.mayBeEmpty():
		return f.orNothing(f.pattern.String())
	case f.pattern != nil:
		return f.pattern.String()
	}
	return ""
}

// orNothing returns a pattern that also matches empty text if the key may be
// empty.
func (f field) orNothing(pattern string) string {
	if f.Required || familyOf(f.Type) == listFamily {
		return pattern
	}
	return "^$|" + pattern
}

func (f field) describeSchemes() string {
	if f.Schemes == nil {
		return notation.URLPattern
	}
	var schemes []string
	for _, scheme := range f.Schemes {
		schemes = append(schemes, regexp.QuoteMeta(scheme))
	}
	return "^(" + strings.Join(schemes, "|") + ")://."
}

// literal returns a default in the form that a file uses.
func (f field) literal(text string) any {
	switch familyOf(f.Type) {
	case boolFamily:
		return strings.EqualFold(text, "true")
	case intFamily, floatFamily:
		return json.Number(text)
	case listFamily:
		return f.parse(text).list
	}
	return text
}
