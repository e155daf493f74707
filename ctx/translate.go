package megactx

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Locale is the locale in which c speaks, one of those that the app has: the
// one asked for by ?lang=, by the cookie "lang" or by the browser's
// Accept-Language, in this order. It is "" where the app has none.
func (c *Ctx) Locale() string {
	switch {
	case c.asked.locale != "":
		return c.asked.locale
	case c.exchange != nil:
		return c.exchange.record.locale(c.host.Locales)
	case c.host != nil:
		return c.host.Locales.match()
	}
	return ""
}

// WithLocale returns a copy of c that speaks the app's locale that suits best
// what is wanted, as in an Accept-Language header: for a mail to somebody who
// has made the choice before.
func (c *Ctx) WithLocale(wanted string) *Ctx {
	d := c.WithContext(c.std())
	if c.host != nil {
		d.asked.locale = c.host.Locales.match(wanted)
	}
	return d
}

// T returns the text of key in the locale of c, filled in with the values in
// kv: a name and its value by turns. The value called count chooses the
// plural form. What is missing, a key or a value, is shown by its name and
// logged once.
//
// See [Locales] for how texts are written.
func (c *Ctx) T(key string, kv ...any) string {
	if c.host == nil {
		return key
	}
	return c.host.translate(c.Locale(), key, kv)
}

// locale chooses once for a request.
func (rec *record) locale(l *Locales) string {
	rec.localeOnce.Do(func() { rec.chosen = l.match(wantedLocales(rec.request)...) })
	return rec.chosen
}

func wantedLocales(r *http.Request) []string {
	wanted := []string{r.URL.Query().Get("lang")}
	if cookie, err := r.Cookie("lang"); err == nil {
		wanted = append(wanted, cookie.Value)
	}
	return append(wanted, strings.Join(r.Header.Values("Accept-Language"), ","))
}

func (h *Host) translate(locale, key string, kv []any) string {
	text, err := h.Locales.text(locale, key, kv)
	if err != nil && h.complaints.first(locale+" "+key) {
		h.log().Warn("text not translated", "locale", locale, "key", key, "error", err)
	}
	return text
}

// text returns a text as far as it can be made.
func (l *Locales) text(locale, key string, kv []any) (string, error) {
	if l == nil || l.catalogs[locale] == nil {
		return key, fmt.Errorf("the app has no texts: %w", ErrNotConfigured)
	}
	c := l.catalogs[locale]
	all := c.messages[key]
	if all == nil {
		return key, errors.New("there is no such key")
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

// formFor returns the plural form that the value called count asks for.
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

// values are names and values by turns.
type values []any

func valuesOf(kv []any) (values, error) {
	if len(kv)%2 != 0 {
		return values(kv[:len(kv)-1]), fmt.Errorf("the last name, %v, has no value", kv[len(kv)-1])
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

// complaints remembers what has been logged. Keys may be made of what clients
// send, so there is an end to it.
type complaints struct {
	mu   sync.Mutex // guards made
	made map[string]struct{}
}

const maxComplaints = 1000

// first reports whether a complaint is made for the first time.
func (c *complaints) first(about string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.made[about]; known || len(c.made) >= maxComplaints {
		return false
	}
	if c.made == nil {
		c.made = map[string]struct{}{}
	}
	c.made[about] = struct{}{}
	return true
}
