// Package secrets masks the secrets of a configuration in the output of a process.
package secrets

import (
	"cmp"
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

// Attr masks an attribute of a log record, for slog.HandlerOptions.
func (v *Veil) Attr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if s := a.Value.String(); s != "" {
			a.Value = slog.StringValue(v.Text(s))
		}
	case slog.KindAny:
		text := textOf(a.Value.Any())
		if masked := v.Text(text); masked != text {
			a.Value = slog.StringValue(masked)
		}
	}
	return a
}

// textOf returns the text of a logged value: the text of an error, the result of
// a String method, otherwise JSON. It returns "" if that fails or panics, as on
// a nil pointer: the handler deals with such a value.
func textOf(value any) (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	switch value := value.(type) {
	case error:
		return value.Error()
	case fmt.Stringer:
		return value.String()
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(value) != nil {
		return ""
	}
	return b.String()
}

// finder collects the secrets of a configuration.
type finder struct{ texts []string }

// collect adds the secrets in v, a part of a configuration.
func (f *finder) collect(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		f.collectStruct(v)
	case reflect.Map:
		for _, key := range v.MapKeys() {
			f.collect(v.MapIndex(key))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			f.collect(v.Index(i))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			f.collect(v.Elem())
		}
	case reflect.String: // a key that takes text may hold a URL with a password
		f.add(mask.Credentials(v.String())...)
	}
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
