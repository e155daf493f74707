package settings

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/notation"
	"github.com/megaframework/mega/internal/spelling"
)

// family is the kind of syntax of a key's values.
type family int

const (
	noFamily family = iota // not a key
	textFamily
	boolFamily
	intFamily
	floatFamily
	listFamily // of texts
)

func familyOf(t reflect.Type) family {
	if isDuration(t) || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return textFamily
	}
	switch k := t.Kind(); {
	case k == reflect.String:
		return textFamily
	case k == reflect.Bool:
		return boolFamily
	case k >= reflect.Int && k <= reflect.Uint64:
		return intFamily
	case k == reflect.Float32 || k == reflect.Float64:
		return floatFamily
	case k == reflect.Slice && t.Elem().Kind() == reflect.String:
		return listFamily
	}
	return noFamily
}

func isDuration(t reflect.Type) bool { return t == reflect.TypeFor[time.Duration]() }

// measured reports whether values have a magnitude, which min and max bound.
func (f field) measured() bool {
	family := familyOf(f.Type)
	return isDuration(f.Type) || f.Type == reflect.TypeFor[config.Size]() || family == intFamily || family == floatFamily
}

// parse returns the value of a text from a variable, an argument or a default.
func (f field) parse(text string) Value {
	v := Value{Key: f.Key(), Text: text, secret: f.Type == reflect.TypeFor[config.Secret](), url: f.Type == reflect.TypeFor[config.URL]()}
	if familyOf(f.Type) == listFamily && text != "" {
		for item := range strings.SplitSeq(text, ",") {
			v.list = append(v.list, strings.TrimSpace(item))
		}
	}
	return v
}

// check parses v, or returns an error if v is illegal.
func (f field) check(v Value) (Value, error) {
	v.parsed = reflect.New(f.Type).Elem()
	return v, f.set(v.parsed, v)
}

// set assigns v to the field to, which is zero. Empty text was set on purpose; it
// means the zero value, if the key may be empty.
func (f field) set(to reflect.Value, v Value) error {
	if familyOf(f.Type) == listFamily {
		return f.setList(to, v.list)
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](to.Addr()); ok {
		return f.setText(to, u, v)
	}
	switch {
	case isDuration(f.Type):
		return f.setDuration(to, v.Text)
	case familyOf(f.Type) == textFamily:
		to.SetString(v.Text)
		return f.match(v.Text)
	case familyOf(f.Type) == boolFamily:
		return setBool(to, v.Text)
	case familyOf(f.Type) == floatFamily:
		return f.setFloat(to, v.Text)
	}
	return f.setInt(to, v.Text)
}

func (f field) setText(to reflect.Value, u encoding.TextUnmarshaler, v Value) error {
	if v.Text == "" && !f.measured() {
		return nil
	}
	if _, ok := u.(*config.URL); ok && !notation.IsURL(v.Text) {
		return notation.NotURL(v.Text, f.Default, f.Schemes)
	}
	if err := f.unmarshal(u, v.Text); err != nil {
		return err
	}
	if err := f.match(v.Text); err != nil {
		return err
	}
	if f.measured() {
		return f.bounded(to, v.Text)
	}
	return f.checkScheme(to.Interface())
}

// The timeouts of an UnmarshalText of the program: the second one after another call
// of the same Load has not returned.
const (
	unmarshalTime      = 5 * time.Second
	unmarshalTimeAgain = 100 * time.Millisecond
)

// unmarshal decodes text. The types of package config mask the credentials that their
// errors quote. A type of the program may quote credentials, panic or hang.
func (f field) unmarshal(u encoding.TextUnmarshaler, text string) error {
	t := reflect.TypeOf(u).Elem()
	if t.PkgPath() == reflect.TypeFor[config.URL]().PkgPath() {
		return u.UnmarshalText([]byte(text))
	}
	method := fmt.Sprintf("UnmarshalText of %v ", t)
	done := contain(method, func() error {
		err := u.UnmarshalText([]byte(text))
		if _, known := errors.AsType[*notation.Error](err); known || err == nil {
			return err
		}
		return errors.New(mask.Text(err.Error()))
	})
	select {
	case err := <-done:
		return err
	case <-time.After(*f.patience):
		err := fmt.Errorf("%sdid not return within %v", method, *f.patience)
		*f.patience = unmarshalTimeAgain
		return err
	}
}

// contain calls a function of the program in a goroutine of its own. The channel receives
// its error, which names the function if it panicked or called runtime.Goexit.
func contain(name string, fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errors.New(name + "ended its goroutine")
		defer func() {
			if r := recover(); r != nil {
				err = errors.New(mask.Text(fmt.Sprintf("%spanicked: %v", name, r)))
			}
			done <- err
		}()
		err = fn()
	}()
	return done
}

// quoted returns a text in the form in which an error may quote it.
func (f field) quoted(text string) string {
	switch f.Type {
	case reflect.TypeFor[config.Secret]():
		return "the secret"
	case reflect.TypeFor[config.URL]():
		return mask.Quote(mask.URL(text))
	}
	return mask.Quote(text)
}

func (f field) setList(to reflect.Value, items []string) error {
	list := reflect.MakeSlice(f.Type, 0, len(items))
	for _, item := range items {
		if item == "" {
			return errors.New("an item of the list is empty")
		}
		if err := f.match(item); err != nil {
			return err
		}
		made := reflect.New(f.Type.Elem()).Elem()
		if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](made.Addr()); !ok {
			made.SetString(item)
		} else if err := f.unmarshal(u, item); err != nil {
			return err
		}
		list = reflect.Append(list, made)
	}
	to.Set(list)
	return nil
}

// mayBeEmpty reports whether empty text means no value, and is not checked
// against enum and pattern.
func (f field) mayBeEmpty() bool { return f.Default == "" && f.Inherits == "" }

// match checks a text against enum and pattern.
func (f field) match(text string) error {
	if text == "" && f.mayBeEmpty() {
		return nil
	}
	if f.Enum != nil && !slices.Contains(f.Enum, text) {
		legal := strings.Join(f.Enum, ", ")
		if best := spelling.Nearest(text, f.Enum); best != "" {
			return fmt.Errorf("%s is not one of %s; did you mean %s?", f.quoted(text), legal, best)
		}
		return fmt.Errorf("%s is not one of %s", f.quoted(text), legal)
	}
	if f.pattern != nil && !f.pattern.MatchString(text) {
		if f.Like == "" {
			return fmt.Errorf("%s does not match %s", f.quoted(text), f.pattern)
		}
		for _, near := range []string{strings.ToLower(text), strings.TrimSuffix(strings.ToLower(text), "/")} {
			if f.pattern.MatchString(near) && f.Type != reflect.TypeFor[config.Secret]() {
				return fmt.Errorf("%s is not like %s; did you mean %s?", f.quoted(text), f.Like, f.quoted(near))
			}
		}
		return fmt.Errorf("%s is not like %s", f.quoted(text), f.Like)
	}
	return nil
}

func setBool(to reflect.Value, text string) error {
	switch strings.ToLower(text) {
	case "true":
		to.SetBool(true)
	case "false":
		to.SetBool(false)
	default:
		return fmt.Errorf("%s is not true or false", mask.Quote(text))
	}
	return nil
}

var (
	octalRule = regexp.MustCompile(`^-?0[0-9]+$`)
	wholeRule = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	floatRule = regexp.MustCompile(`^(-?)(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

// notNumber returns the error for a text that is not a number.
func notNumber(text, want string) error {
	if octalRule.MatchString(text) {
		return fmt.Errorf("%s begins with 0, which some formats read as base 8; remove the 0", mask.Quote(text))
	}
	return fmt.Errorf("%s is not %s", mask.Quote(text), want)
}

// whole returns the digits of a whole number, which may have the form 1.0 or 1e3:
// to JSON and its schemas these are whole, too. It returns other text unchanged.
func whole(text string) string {
	m := floatRule.FindStringSubmatch(text)
	if m == nil || wholeRule.MatchString(text) {
		return text
	}
	exponent, err := strconv.Atoi(cmp.Or(strings.TrimLeft(m[4], "eE"), "0"))
	digits := m[2] + strings.TrimPrefix(m[3], ".")
	point := len(m[2]) + exponent
	if err != nil || point < 1 || point > len(digits)+maxDigits || strings.Trim(digits[min(point, len(digits)):], "0") != "" {
		return text
	}
	digits += strings.Repeat("0", max(0, point-len(digits)))
	return m[1] + cmp.Or(strings.TrimLeft(digits[:point], "0"), "0")
}

// maxDigits bounds the zeros of an exponent: an int64 has fewer digits.
const maxDigits = 20

func (f field) setInt(to reflect.Value, text string) error {
	digits := whole(text)
	if !wholeRule.MatchString(digits) {
		return notNumber(text, "a whole number")
	}
	n, err := strconv.ParseInt(digits, 10, to.Type().Bits())
	u, uerr := strconv.ParseUint(digits, 10, to.Type().Bits())
	switch {
	case to.CanInt() && err == nil:
		to.SetInt(n)
	case to.CanUint() && uerr == nil:
		to.SetUint(u)
	default:
		return fmt.Errorf("%s is out of the range of %v", mask.Quote(text), to.Type())
	}
	return f.bounded(to, text)
}

func (f field) setFloat(to reflect.Value, text string) error {
	n, err := strconv.ParseFloat(text, to.Type().Bits())
	if err != nil || !floatRule.MatchString(text) {
		return notNumber(text, "a number")
	}
	to.SetFloat(n)
	return f.bounded(to, text)
}

func (f field) setDuration(to reflect.Value, text string) error {
	if notation.IsNumber(text) && text != "0" {
		return notation.NoUnit(text, func(s string) error { return f.setDuration(reflect.New(f.Type).Elem(), s) }, "s", "ms")
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%s is not a duration such as 500ms, 10s or 1m30s", mask.Quote(text))
	}
	to.SetInt(int64(d))
	return f.bounded(to, d.String())
}

// bounded checks a magnitude against min and max.
func (f field) bounded(v reflect.Value, text string) error {
	if low, err := f.magnitude(f.Min); err == nil && less(v, low) {
		return fmt.Errorf("%s is less than %s", text, f.Min)
	}
	if high, err := f.magnitude(f.Max); err == nil && less(high, v) {
		return fmt.Errorf("%s is more than %s", text, f.Max)
	}
	return nil
}

func less(a, b reflect.Value) bool {
	switch {
	case a.CanFloat():
		return a.Float() < b.Float()
	case a.CanUint():
		return a.Uint() < b.Uint()
	}
	return a.Int() < b.Int()
}

// magnitude returns the value of a bound, or an error if there is none.
func (f field) magnitude(bound string) (reflect.Value, error) {
	f.Min, f.Max = "", ""
	v := reflect.New(f.Type).Elem()
	return v, f.set(v, Value{Text: bound})
}

func (f field) checkScheme(v any) error {
	u, ok := v.(config.URL)
	if !ok || f.Schemes == nil || slices.Contains(f.Schemes, u.Scheme()) {
		return nil
	}
	return fmt.Errorf("%s: the scheme %q is not one of %s", u, u.Scheme(), strings.Join(f.Schemes, ", "))
}
