package locale

import (
	"errors"
	"fmt"
	"strings"
)

// Text returns the text of key in a locale, with the values in kv, which
// alternates names and values. The error reports a missing key or value; the text
// then shows its name.
func (l *Texts) Text(locale, key string, kv []any) (string, error) {
	if l == nil || l.catalogs[locale] == nil {
		return key, errors.New("the app has no texts in this locale")
	}
	c := l.catalogs[locale]
	all := c.messages[key]
	if all == nil {
		return key, errors.New("unknown key")
	}
	values, err := valuesOf(kv)
	m := all["other"]
	if len(all) > 1 {
		form, wrong := c.formFor(values)
		err = errors.Join(err, wrong)
		if all[form] != nil {
			m = all[form]
		}
	}
	text, missing := m.render(values.text)
	if len(missing) > 0 {
		err = errors.Join(err, fmt.Errorf("no value for %s", strings.Join(missing, ", ")))
	}
	return text, err
}

// formFor returns the plural form for the value called count.
func (c *catalog) formFor(v values) (string, error) {
	count, ok := v.value("count")
	if !ok {
		return "other", errors.New("no value for count, which chooses the plural form")
	}
	number, err := countOf(count)
	if err != nil {
		return "other", err
	}
	return c.form(number)
}

// values alternates names and values.
type values []any

func valuesOf(kv []any) (values, error) {
	if len(kv)%2 != 0 {
		return values(kv[:len(kv)-1]), fmt.Errorf("the name %v has no value", kv[len(kv)-1])
	}
	return values(kv), nil
}

func (v values) value(name string) (any, bool) {
	for i := 0; i+1 < len(v); i += 2 {
		if v[i] == name {
			return v[i+1], true
		}
	}
	return nil, false
}

func (v values) text(name string) (string, bool) {
	value, ok := v.value(name)
	switch value := value.(type) {
	case nil:
		return "", ok
	case string:
		return value, ok
	}
	return fmt.Sprint(value), ok
}
