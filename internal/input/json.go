package input

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/internal/request"
)

// readJSON decodes a body into v. It refuses unknown fields, duplicate members and
// bytes that are not UTF-8 unless lenient is set.
func readJSON(body io.Reader, v any, lenient bool, own func(error) request.Fields) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return badJSON(err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return request.BadBody("empty_body", io.EOF)
	}
	if !lenient && !utf8.Valid(text) { // json would replace the bytes that are not
		return request.BadBody("not_utf8", nil)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	failed := dec.Decode(v)
	if _, syntax := errors.AsType[*json.SyntaxError](failed); syntax || errors.Is(failed, io.ErrUnexpectedEOF) {
		return badJSON(failed)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return request.BadBody("two_values", err)
	}
	if failed == nil && lenient {
		return nil
	}
	in := bodyCheck{
		dec: json.NewDecoder(bytes.NewReader(text)), lenient: lenient, failed: failed != nil, own: own,
		structs: map[reflect.Type]map[string]field{}, wrong: request.Fields{},
	}
	in.dec.UseNumber() // a float64 cannot hold each number
	in.value(reflect.TypeOf(v), "")
	switch {
	case in.isNotObject:
		return request.BadBody("not_object", failed)
	case in.isStrange:
		return request.BadFields(in.wrong)
	case len(in.wrong) > 0:
		return request.Invalid(in.wrong, in.wrong)
	case failed != nil:
		return badJSON(failed)
	}
	return nil
}

// bodyCheck compares a syntactically valid JSON text with a type. It reads the
// text once, since a text may be nested as deep as it is long.
type bodyCheck struct {
	dec     *json.Decoder
	lenient bool
	failed  bool // the text could not be decoded: inspect each value
	own     func(error) request.Fields

	structs map[reflect.Type]map[string]field // the fields of each, since a list may have many values of one

	wrong       request.Fields
	isNotObject bool // the text as a whole
	isStrange   bool // it has unknown fields or duplicate members
}

// value reads one value that belongs to t, which is nil if any value fits.
func (in *bodyCheck) value(t reflect.Type, path string) {
	for t != nil && t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	switch {
	case t == nil:
	case decodesItself(t):
		in.leaf(t, path)
		return
	case t.Kind() == reflect.Interface:
		t = nil
	case !isContainer(t) && in.failed:
		in.leaf(t, path)
		return
	}
	token, err := in.dec.Token()
	if err != nil {
		return // the text was decoded before: it has no error
	}
	switch token {
	case json.Delim('{'):
		in.object(t, path)
	case json.Delim('['):
		in.list(t, path)
	case nil: // leaves a member as it is
		in.isNotObject = in.isNotObject || path == "" && t != nil && t.Kind() == reflect.Struct
	default:
		if t != nil && isContainer(t) {
			in.refuse(path, expected(t))
		}
	}
}

// leaf reads one value that is not a struct, a map or a list.
func (in *bodyCheck) leaf(t reflect.Type, path string) {
	err := in.dec.Decode(reflect.New(t).Interface())
	wrongType, isType := errors.AsType[*json.UnmarshalTypeError](err)
	own := in.own(err)
	switch {
	case err == nil || path == "":
	case own != nil:
		maps.Copy(in.wrong, own)
	case isType && t.Kind() != reflect.Bool && isWhole(wrongType.Value):
		in.refuse(path, outOfRange(t, wrongType.Value))
	case isType || t == reflect.TypeFor[time.Time]():
		in.refuse(path, expected(t))
	default:
		in.refuse(path, short(err.Error()))
	}
}

// quoted reads one value that is text which contains a value of t.
func (in *bodyCheck) quoted(t reflect.Type, path string) {
	var text json.RawMessage
	if err := in.dec.Decode(&text); err != nil || !in.failed {
		return
	}
	one := reflect.StructOf([]reflect.StructField{{Name: "V", Type: t, Tag: `json:"v,string"`}})
	if json.Unmarshal(slices.Concat([]byte(`{"v":`), text, []byte("}")), reflect.New(one).Interface()) == nil {
		return
	}
	if text[0] != '"' {
		t = reflect.TypeFor[string]()
	}
	in.refuse(path, expected(elem(t)))
}

// key checks the name of a member of a map whose keys have the type t.
func (in *bodyCheck) key(t reflect.Type, name, path string) {
	if !in.failed || t.Kind() == reflect.String && !decodesItself(t) {
		return
	}
	text, err := json.Marshal(map[string]any{name: nil})
	if err == nil {
		err = json.Unmarshal(text, reflect.New(reflect.MapOf(t, reflect.TypeFor[any]())).Interface())
	}
	if _, isType := errors.AsType[*json.UnmarshalTypeError](err); isType {
		in.refuse(path, expected(t))
	} else if err != nil {
		in.refuse(path, short(err.Error()))
	}
}

// object reads the members of an object that belongs to t.
func (in *bodyCheck) object(t reflect.Type, path string) {
	if t != nil && t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		in.refuse(path, expected(t))
		t = nil
	}
	var fields map[string]field
	if t != nil && t.Kind() == reflect.Struct {
		fields = in.fieldsOf(t)
	}
	seen := map[string]bool{}
	for in.dec.More() {
		token, err := in.dec.Token()
		if err != nil {
			return
		}
		written := token.(string) // the decoder returns nothing else here
		name, member, quoted := written, t, false
		switch {
		case fields != nil:
			if name, member, quoted = lookUp(fields, written); member == nil && !in.lenient {
				in.isStrange = true
				in.refuse(below(path, written), request.AboutField("unknown"))
			}
		case t != nil:
			member = t.Elem()
			in.key(t.Key(), written, below(path, written))
		}
		if seen[name] && !in.lenient {
			in.isStrange = true
			in.refuse(below(path, written), request.AboutField("twice"))
		}
		seen[name] = true
		if quoted {
			in.quoted(member, below(path, written))
			continue
		}
		in.value(member, below(path, written))
	}
	_, _ = in.dec.Token() // the brace that closes it
}

// fieldsOf returns the fields of a struct, which it determines once.
func (in *bodyCheck) fieldsOf(t reflect.Type) map[string]field {
	fields, known := in.structs[t]
	if !known {
		fields = fieldsOf(t, jsonTag)
		in.structs[t] = fields
	}
	return fields
}

// list reads the values of a list that belongs to t.
func (in *bodyCheck) list(t reflect.Type, path string) {
	if t != nil && t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
		in.refuse(path, expected(t))
		t = nil
	}
	if t != nil {
		t = t.Elem()
	}
	for i := 0; in.dec.More(); i++ {
		in.value(t, item(path, i))
	}
	_, _ = in.dec.Token() // the bracket that closes it
}

// Bounds of an answer about a body: a client may send anything.
const (
	maxWrong = 50
	maxPath  = 200 // bytes of a path, and of the text of an error, which may repeat the value
)

// short returns text, or its beginning if it is long.
func short(text string) string {
	if len(text) <= maxPath {
		return text
	}
	return strings.ToValidUTF8(text[:maxPath-len("…")], "") + "…"
}

func (in *bodyCheck) refuse(path, text string) {
	switch {
	case path == "":
		in.isNotObject = true
	case len(in.wrong) < maxWrong:
		in.wrong[path] = text
	}
}

// below returns the path of a member, or the path itself if it is long. The
// name of the outermost member is cut.
func below(path, name string) string {
	switch {
	case path == "":
		return short(name)
	case len(path)+len(name) > maxPath:
		return path
	}
	return path + "." + name
}

func item(path string, i int) string {
	if len(path) > maxPath {
		return path
	}
	return fmt.Sprintf("%s[%d]", path, i)
}

// isWhole reports whether the value of an error is a whole number.
func isWhole(value string) bool {
	digits, isNumber := strings.CutPrefix(value, "number ")
	return isNumber && strings.Trim(digits, "-0123456789") == ""
}

// outOfRange returns the text for a whole number that a type cannot hold.
func outOfRange(t reflect.Type, value string) string {
	if text := expected(t); strings.Contains(value, "-") || !strings.Contains(text, "number") {
		return text
	}
	return request.AboutField("too_large")
}

// decodesItself reports whether a type has its own way to read JSON or text.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isContainer reports whether values of a type contain values. Bytes are text
// in JSON.
func isContainer(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Array:
		return true
	case reflect.Slice:
		return t.Elem().Kind() != reflect.Uint8
	}
	return false
}

// lookUp returns the field with a name, as encoding/json does: the case of
// letters matters only if two names differ in nothing else. quoted reports whether
// its JSON is text that contains a value of its type.
func lookUp(fields map[string]field, name string) (known string, t reflect.Type, quoted bool) {
	f, ok := fields[name]
	for other, of := range fields {
		if !ok && strings.EqualFold(other, name) {
			name, f, ok = other, of, true
		}
	}
	return name, f.t, f.quoted && ok && mayBeQuoted(elem(f.t))
}

// mayBeQuoted reports whether the option string of a tag has an effect on a type.
func mayBeQuoted(t reflect.Type) bool {
	k := t.Kind()
	return k == reflect.String || k == reflect.Bool || k == reflect.Float32 || k == reflect.Float64 || k >= reflect.Int && k <= reflect.Uintptr
}

// expected returns what a field of a type has to be.
func expected(t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() {
		return request.AboutField("time")
	}
	switch t.Kind() {
	case reflect.String:
		return request.AboutField("text")
	case reflect.Bool:
		return request.AboutField("boolean")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return request.AboutField("integer")
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return request.AboutField("natural")
	case reflect.Float32, reflect.Float64:
		return request.AboutField("number")
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return request.AboutField("base64")
		}
		return request.AboutField("list")
	}
	return request.AboutField("object")
}
