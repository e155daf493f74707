package input

import (
	"bytes"
	"context"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/request"
)

// formMemory is the number of bytes of a form's files that stay in memory.
const formMemory = 1 << 20

func readForm(r *http.Request, mediaType string, v any) error {
	r.Body = http.MaxBytesReader(nil, r.Body, math.MaxInt64) // this bound applies; net/http's own is 10 MB
	err := parse(r, mediaType)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return request.TooLarge(tooLarge)
	case errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, errJSON):
		return request.Refuse(http.StatusUnsupportedMediaType, "request.unsupported_media_type", nil, "problem.request.json_as_form", "type", mediaType)
	case err != nil:
		return request.BadBody("bad_form", err)
	}
	return setFields(reflect.ValueOf(v).Elem(), r.PostForm)
}

// errJSON is the error of a form that is an object of JSON: curl -d sends it with
// the type of a form. It would be a form without any of the fields.
var errJSON = errors.New("the form is JSON")

// parse reads the inputs of a form into r.PostForm.
func parse(r *http.Request, mediaType string) error {
	switch {
	case mediaType == "multipart/form-data":
		_ = r.ParseForm() // of this type it reads the query alone, which may be malformed
		return r.ParseMultipartForm(formMemory)
	case r.PostForm != nil:
		return nil // the handler has parsed it
	}
	// ParseForm reads the body of POST, PUT and PATCH alone, and refuses a query
	// that is malformed.
	text, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
	case bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && json.Valid(text):
		err = errJSON
	default:
		r.PostForm, err = url.ParseQuery(string(text))
	}
	return err
}

// setFields sets the fields of a struct to the inputs of a form. It returns an
// error for a struct that no form can fill, because no tag names one of its fields:
// JSON needs none.
func setFields(v reflect.Value, form url.Values) error {
	wrong := request.Fields{}
	fields := fieldsOf(v.Type(), formTag)
	tagged := 0
	for name, f := range fields {
		if !f.tagged {
			continue
		}
		tagged++
		if !form.Has(name) {
			continue
		}
		at, err := fieldAt(v, f.path)
		if err != nil {
			return fmt.Errorf("bind the field %s of a form: %w", name, err)
		}
		setInput(at, name, form[name], wrong)
	}
	switch {
	case tagged == 0 && len(fields) > 0:
		return fmt.Errorf("bind a form: no field of %v has a name in a tag form or json", v.Type())
	case len(wrong) > 0:
		return request.Invalid(wrong, wrong)
	}
	return nil
}

// fieldAt returns the field at a path, and makes the embedded structs on the way to
// it.
func fieldAt(v reflect.Value, path []int) (reflect.Value, error) {
	for _, i := range path {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() && !v.CanSet() {
				return v, fmt.Errorf("the embedded pointer has the unexported type %v", v.Type())
			}
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v, nil
}

// setInput sets a field to the values of the inputs with its name: a list to all of
// them, another field to the first one.
func setInput(v reflect.Value, name string, values []string, wrong request.Fields) {
	if !isList(elem(v.Type())) {
		if err := setField(v, strings.TrimSpace(values[0])); err != nil {
			wrong[name] = short(err.Error())
		}
		return
	}
	list := reflect.New(elem(v.Type())).Elem()
	for i, text := range values {
		one := reflect.New(list.Type().Elem()).Elem()
		text = strings.TrimSpace(text)
		if text == "" && one.Kind() != reflect.String {
			continue // left out
		}
		if err := setField(one, text); err == nil {
			list = reflect.Append(list, one)
		} else if len(wrong) < maxWrong {
			wrong[item(name, i)] = short(err.Error())
		}
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(list.Type()))
		v = v.Elem()
	}
	v.Set(list)
}

// isList reports whether a field of a type takes all inputs with its name.
func isList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && isContainer(t) && !decodesItself(t)
}

// setField sets a field to the text of a form's input. An empty input means
// that the field was left out, unless the field is text.
func setField(v reflect.Value, text string) error {
	if text == "" && v.Kind() != reflect.String {
		return nil
	}
	if !v.CanSet() { // an embedded struct whose type is not exported
		return errors.New(expected(elem(v.Type())))
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		err := u.UnmarshalText([]byte(text))
		if err != nil && v.Type() == reflect.TypeFor[time.Time]() {
			return errors.New(expected(v.Type()))
		}
		return err
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return setField(v.Elem(), text)
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, ok := booleans[strings.ToLower(text)]
		if !ok {
			return errors.New(expected(v.Type()))
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return errors.New(expected(v.Type()))
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return errors.New(expected(v.Type()))
		}
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) { // JSON has neither, and comparisons of Validate do not notice NaN
			return errors.New(expected(v.Type()))
		}
		v.SetFloat(n)
	default:
		bytes, err := base64.StdEncoding.DecodeString(text)
		if v.Kind() != reflect.Slice || isContainer(v.Type()) || err != nil {
			return errors.New(expected(v.Type()))
		}
		v.SetBytes(bytes)
	}
	return nil
}

// booleans are the values of an input for a bool. A browser sends "on" for a
// checkbox without a value.
var booleans = map[string]bool{
	"true": true, "on": true, "yes": true, "1": true,
	"false": false, "off": false, "no": false, "0": false,
}
