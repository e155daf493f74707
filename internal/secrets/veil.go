// Package secrets masks the secrets of a configuration in the output of a process.
package secrets

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/settings"
)

// leastSecret is the minimum length in bytes of a secret that is masked inside
// other text: a shorter one may be a part of any word.
const leastSecret = 4

// Veil masks the output of a process: the secrets of its configuration, which a
// library may repeat in an error, and the credentials in every URL. Its zero
// value masks only URLs. It is safe for concurrent use.
type Veil struct {
	mu     sync.Mutex // guards texts
	texts  []string
	hidden atomic.Pointer[strings.Replacer]
}

// Text returns s with the secrets in it masked.
func (v *Veil) Text(s string) string {
	if v != nil {
		if hidden := v.hidden.Load(); hidden != nil {
			s = hidden.Replace(s)
		}
	}
	return mask.Text(s)
}

// Add masks the secrets of a configuration and of its sections from now on. The
// secrets of an earlier configuration stay masked: a key that is not live is
// still in use after a reload.
func (v *Veil) Add(c *settings.Config, sections []settings.Section) {
	var found finder
	found.collect(reflect.ValueOf(c))
	for _, sec := range sections {
		if value, ok := c.Section(sec.App, sec.Name); ok {
			found.collect(reflect.ValueOf(value))
		}
	}
	v.conceal(found.texts)
}

func (v *Veil) conceal(texts []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.texts = append(v.texts, texts...)
	slices.SortFunc(v.texts, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // longest first: one secret may be a prefix of another
	v.texts = slices.Compact(v.texts)
	var pairs []string
	for _, text := range v.texts {
		pairs = append(pairs, text, mask.Mark)
	}
	v.hidden.Store(strings.NewReplacer(pairs...))
}

// JSONAttr masks an attribute of a record for the options of a slog.JSONHandler.
func (v *Veil) JSONAttr(_ []string, a slog.Attr) slog.Attr { return attr(a, encoded, v.Text) }

// tinted returns s with the text escaped that prints, but not by tint: in a quoted
// value on a terminal it writes `\x1b` as the escape character, and elsewhere it
// drops the rest of a value after U+FFFD. A strings.Replacer would copy each s.
func tinted(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, `\x1b`, `\u001b`), "\ufffd", `\ufffd`)
}

// TextAttr masks an attribute of a record for the options of a tint handler, and
// escapes what does not print: tint writes messages unchanged, and on a terminal
// the escape characters of values, too.
func (v *Veil) TextAttr(groups []string, a slog.Attr) slog.Attr {
	escape := plain.Text
	if len(groups) == 0 && a.Key == slog.MessageKey {
		escape = plain.Line
	}
	clean := func(s string) string { return tinted(escape(v.Text(s))) }
	a = attr(a, printed, clean)
	a.Key = clean(a.Key)
	return a
}

// attr makes an attribute clean. written returns a value as the handler writes it,
// which may contain more than the value's own text.
func attr(a slog.Attr, written func(any) string, clean func(string) string) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if s := a.Value.String(); s != "" {
			a.Value = slog.StringValue(clean(s))
		}
	case slog.KindAny:
		for _, form := range []func(any) string{ownText, written} {
			text := attempt(form, a.Value.Any())
			if cleaned := clean(text); cleaned != text {
				a.Value = slog.StringValue(cleaned)
				break
			}
		}
	}
	return a
}

// attempt returns the text of a logged value, or "" if form panics, as on a nil
// pointer: the handler deals with such a value.
func attempt(form func(any) string, value any) (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	return form(value)
}

// ownText returns the text of an error or the result of a String method, or "".
func ownText(value any) string {
	switch value := value.(type) {
	case error:
		return value.Error()
	case fmt.Stringer:
		return value.String()
	}
	return ""
}

// encoded returns a value as JSON, or "" if it has none.
func encoded(value any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(value) != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// printed returns a value as the text handlers of log/slog print it: its
// MarshalText, its bytes, or all its fields, also those that JSON leaves out.
func printed(value any) string {
	if m, ok := value.(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return string(text)
		}
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		return string(v.Bytes())
	}
	return fmt.Sprintf("%+v", value)
}

// finder collects the secrets of a configuration.
type finder struct {
	texts []string
	seen  map[reference]bool // a value of the application may refer to itself
}

// collect adds the secrets in v, a part of a configuration.
func (f *finder) collect(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		f.collectStruct(v)
	case reflect.Map:
		if f.met(v) {
			return
		}
		for _, key := range v.MapKeys() {
			f.collect(v.MapIndex(key))
		}
	case reflect.Slice:
		if f.met(v) {
			return
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			f.collect(v.Index(i))
		}
	case reflect.Interface:
		if !v.IsNil() {
			f.collect(v.Elem())
		}
	case reflect.Pointer:
		if !v.IsNil() && !f.met(v) {
			f.collect(v.Elem())
		}
	case reflect.String: // a key that takes text may hold a URL with a password
		f.add(mask.Credentials(v.String())...)
	}
}

// reference is a pointer, a map or a slice.
type reference struct {
	to uintptr
	n  int
	of reflect.Type
}

// met reports whether collect has met this pointer, map or slice before.
func (f *finder) met(v reflect.Value) bool {
	at := reference{to: v.Pointer(), of: v.Type()}
	if v.Kind() == reflect.Slice {
		at.n = v.Len()
	}
	if f.seen[at] {
		return true
	}
	if f.seen == nil {
		f.seen = map[reference]bool{}
	}
	f.seen[at] = true
	return false
}

func (f *finder) collectStruct(v reflect.Value) {
	switch secret := v.Interface().(type) {
	case config.Secret:
		f.add(secret.Reveal())
	case config.URL:
		f.add(mask.Credentials(secret.Reveal())...)
	default:
		for field, value := range v.Fields() {
			if field.IsExported() {
				f.collect(value)
			}
		}
	}
}

func (f *finder) add(texts ...string) {
	for _, text := range texts {
		if len(text) < leastSecret {
			continue
		}
		f.texts = append(f.texts, text)
		if quoted := strings.Trim(strconv.Quote(text), `"`); quoted != text { // the form in the output of %q
			f.texts = append(f.texts, quoted)
		}
	}
}
