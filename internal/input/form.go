package input

import (
	"context"
	"encoding"
	"errors"
	"fmt"
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
	err := r.ParseForm()
	if err == nil && mediaType == "multipart/form-data" {
		err = r.ParseMultipartForm(formMemory)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return request.TooLarge(tooLarge)
	case errors.Is(err, context.DeadlineExceeded):
		return err
	case err != nil:
		return request.BadBody("bad_form", err)
	}
	if wrong := setFields(reflect.ValueOf(v).Elem(), r.PostForm); len(wrong) > 0 {
		return request.Invalid(wrong, wrong)
	}
	return nil
}

func setFields(v reflect.Value, form url.Values) request.Fields {
	wrong := request.Fields{}
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
	if text == "" && v.Kind() != reflect.String {
		return nil
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
		v.SetBool(text == "true" || text == "on" || text == "1")
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
		return fmt.Errorf("cannot be set from a form: its type is %v", v.Type())
	}
	return nil
}
