package megactx

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// formMemory is the number of bytes of a form's files that stay in memory.
const formMemory = 1 << 20

// BindOption changes how Bind reads a body.
type BindOption struct{ lenient bool }

// Lenient makes Bind accept JSON with unknown fields, which it ignores, and with
// duplicate members, of which the last one counts.
func Lenient() BindOption { return BindOption{lenient: true} }

// Bind decodes the request's body, JSON or a form, into the struct that v
// points to, and then calls the struct's method Validate, if it has one:
// Validate() error, Validate(*Ctx) error or Validate(context.Context) error. A
// form's field belongs to the struct field with the same name in its tag
// form, or else in its tag json.
//
// Its errors are answers: 400 for a malformed body and for JSON with unknown
// fields or duplicate members, 413 for a body larger than the app's limit, 415
// for an unknown type and for a compressed body, 422 for values of the wrong
// type and for an error of Validate. The answer names the fields. Without a body
// Bind only validates.
func (c *Ctx) Bind(v any, options ...BindOption) error {
	if c.exchange == nil {
		return ErrNoRequest
	}
	if t := reflect.TypeOf(v); t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("bind: want a pointer to a struct, got %T", v)
	}
	if err := c.exchange.readBody(v, slices.Contains(options, Lenient())); err != nil {
		return c.worded(err)
	}
	if err := c.validate(v); err != nil {
		return c.worded(invalidInput(err))
	}
	return nil
}

// validate calls the method Validate of v, if it has one.
func (c *Ctx) validate(v any) error {
	switch v := v.(type) {
	case interface{ Validate() error }:
		return v.Validate()
	case interface{ Validate(*Ctx) error }:
		return v.Validate(c)
	case interface{ Validate(context.Context) error }:
		return v.Validate(c)
	}
	return nil
}

func (e *exchange) readBody(v any, lenient bool) error {
	e.binding.Lock()
	defer e.bound()
	if e.over.Load() {
		return ErrHandlerReturned
	}
	r := e.request
	header := r.Header.Get("Content-Type")
	if header == "" && r.ContentLength == 0 {
		return nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return refuse(http.StatusUnsupportedMediaType, "request.unsupported_media_type", nil, "problem.request.encoding", "encoding", encoding)
	}
	switch t := mediaType(header); {
	case isJSON(t):
		return readJSON(r.Body, v, lenient)
	case t == "application/x-www-form-urlencoded" || t == "multipart/form-data":
		return readForm(r, t, v)
	}
	return refuse(http.StatusUnsupportedMediaType, "request.unsupported_media_type", nil, "problem.request.media_type", "type", header)
}

func (e *exchange) bound() {
	e.binding.Unlock()
	if e.over.Load() {
		e.removeFiles()
	}
}

func badJSON(err error) error {
	var tooLarge *http.MaxBytesError
	var fields FieldErrors
	switch {
	case errors.As(err, &tooLarge):
		return bodyTooLarge(tooLarge)
	case errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &fields): // from a field's own UnmarshalJSON
		return invalidInput(err)
	}
	return badBody("bad_json", err)
}

func bodyTooLarge(cause *http.MaxBytesError) error {
	return refuse(http.StatusRequestEntityTooLarge, "request.too_large", cause, "problem.request.too_large", "limit", cause.Limit)
}

func readForm(r *http.Request, mediaType string, v any) error {
	r.Body = http.MaxBytesReader(nil, r.Body, math.MaxInt64) // this bound applies; net/http's own is 10 MB
	err := r.ParseForm()
	if err == nil && mediaType == "multipart/form-data" {
		err = r.ParseMultipartForm(formMemory)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return bodyTooLarge(tooLarge)
	case errors.Is(err, context.DeadlineExceeded):
		return err
	case err != nil:
		return badBody("bad_form", err)
	}
	if wrong := setFields(reflect.ValueOf(v).Elem(), r.PostForm); len(wrong) > 0 {
		return invalidInput(wrong)
	}
	return nil
}

func setFields(v reflect.Value, form url.Values) FieldErrors {
	wrong := FieldErrors{}
	for i := range v.NumField() {
		name := formName(v.Type().Field(i))
		if name == "" || !form.Has(name) {
			continue
		}
		if err := setField(v.Field(i), strings.TrimSpace(form.Get(name))); err != nil {
			wrong[name] = err.Error()
		}
	}
	return wrong
}

func formName(f reflect.StructField) string {
	if !f.IsExported() {
		return ""
	}
	tag, ok := f.Tag.Lookup("form")
	if !ok {
		tag = f.Tag.Get("json")
	}
	name, _, _ := strings.Cut(tag, ",")
	if name == "-" {
		return ""
	}
	return name
}

// setField sets a field to the text of a form's input. An empty input means
// that the field was left out, unless the field is text.
func setField(v reflect.Value, text string) error {
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		return u.UnmarshalText([]byte(text))
	}
	if text == "" && v.Kind() != reflect.String {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return setField(v.Elem(), text)
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(text == "true" || text == "on" || text == "1")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return errors.New(aboutField("integer"))
		}
		v.SetInt(n)
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil {
			return errors.New(aboutField("number"))
		}
		v.SetFloat(n)
	default:
		return fmt.Errorf("cannot be set from a form: its type is %v", v.Type())
	}
	return nil
}
