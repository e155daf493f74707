package boot

import (
	"cmp"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
)

// leastSecret is how long a text is at least that is taken out of others: a
// shorter one may be a part of any word.
const leastSecret = 4

// secrets finds the texts in a configuration that must not be shown. The
// configuration masks them itself; but what a library says of a connection
// that failed may have the whole URL in it.
type secrets struct{ texts []concealed }

// concealed is a text and what is shown in its place.
type concealed struct{ text, shown string }

// secretsOf collects those of a configuration and of the sections in it.
func secretsOf(c *config.Config, sections []config.Section) *secrets {
	s := &secrets{}
	s.collect(reflect.ValueOf(c))
	for _, sec := range sections {
		if v, ok := c.Section(sec.App, sec.Name); ok {
			s.collect(reflect.ValueOf(v))
		}
	}
	return s
}

// hide returns a function that takes the secrets out of a text, the longest
// first: one may be the beginning of another.
func (s *secrets) hide() func(string) string {
	slices.SortFunc(s.texts, func(a, b concealed) int { return cmp.Or(len(b.text)-len(a.text), strings.Compare(a.text, b.text)) })
	var pairs []string
	for _, t := range s.texts {
		pairs = append(pairs, t.text, t.shown)
	}
	return strings.NewReplacer(pairs...).Replace
}

// collect adds the secrets in v, which is what a configuration consists of.
func (s *secrets) collect(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		s.collectStruct(v)
	case reflect.Map:
		for _, key := range v.MapKeys() {
			s.collect(v.MapIndex(key))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			s.collect(v.Index(i))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			s.collect(v.Elem())
		}
	}
}

func (s *secrets) collectStruct(v reflect.Value) {
	switch secret := v.Interface().(type) {
	case config.Secret:
		s.add(secret.Reveal(), secret.String())
	case config.URL:
		s.addURL(secret.Reveal(), secret.String())
	default:
		for f, field := range v.Fields() {
			if f.IsExported() {
				s.collect(field)
			}
		}
	}
}

func (s *secrets) add(text, shown string) {
	if len(text) >= leastSecret {
		s.texts = append(s.texts, concealed{text, shown})
	}
}

// addURL adds a URL, and what its masked form leaves out.
func (s *secrets) addURL(text, shown string) {
	if text == shown {
		return
	}
	s.add(text, shown)
	mask := config.Secret{}.String()
	rest := text
	parts := strings.Split(shown, mask)
	for i, part := range parts[1:] {
		rest = strings.TrimPrefix(rest, parts[i])
		end := len(rest)
		if part != "" {
			end = max(strings.LastIndex(rest, part), 0)
		}
		s.add(rest[:end], mask)
		if plain, err := url.PathUnescape(rest[:end]); err == nil {
			s.add(plain, mask)
		}
		rest = rest[end:]
	}
}
