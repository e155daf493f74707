package megactx

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/megaframework/mega/internal/input"
	"github.com/megaframework/mega/internal/request"
)

// BindOption changes how Bind reads a body.
type BindOption struct{ lenient bool }

// Lenient makes Bind accept JSON with unknown fields, which it ignores, with
// duplicate members, of which the last one counts, and with bytes that are not
// UTF-8, each of which becomes U+FFFD.
func Lenient() BindOption { return BindOption{lenient: true} }

// Bind decodes the request's body, JSON or a form, into the struct that v
// points to, and then calls the struct's method Validate, if it has one:
// Validate() error, Validate(*Ctx) error or Validate(context.Context) error. A
// form's field belongs to the struct field with the same name in its tag
// form, or else in its tag json, also of an embedded struct. A list has all values
// of the form's fields with its name, another field the first one, without the
// white space around them.
//
// Its errors are answers: 400 for a malformed body and for JSON with unknown
// fields, duplicate members or bytes that are not UTF-8, 413 for a body larger than
// the app's limit, 415 for an unknown type, for JSON with the type of a form and for
// a compressed body, 422 for values of the wrong type and for an error of Validate.
// The answer names the fields. An error of Validate keeps its own answer if it is
// one of [Error], or of a lock, limit or message that fails, such as
// [lock.ErrUnavailable]. Without a body and its Content-Type Bind only validates; an
// empty body of JSON is malformed.
func (c *Ctx) Bind(v any, options ...BindOption) error {
	x := c.exchange()
	if x == nil {
		return ErrNoRequest
	}
	if t := reflect.TypeOf(v); t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("bind: want a pointer to a struct, got %T", v)
	}
	err := x.Read(func(r *http.Request) error { return input.Read(r, v, slices.Contains(options, Lenient()), fieldsOf) })
	if err == nil {
		if err = c.validate(v); err != nil && !request.OutweighsInput(err) {
			err = request.Invalid(err, fieldsOf(err))
		}
	}
	return c.worded(err)
}

// fieldsOf returns the FieldErrors in err, or nil.
func fieldsOf(err error) request.Fields {
	fields, _ := errors.AsType[FieldErrors](err)
	return request.Fields(fields)
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

// worded translates the messages about fields in an error of Bind.
func (c *Ctx) worded(err error) error {
	if e, ok := errors.AsType[*request.Error](err); ok && e.Fields() != nil {
		c.work.Word(e)
		e.Show(FieldErrors(e.Fields()))
	}
	return err
}
