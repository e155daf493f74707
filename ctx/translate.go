package megactx

import (
	"net/http"
	"strings"
	"sync"

	"github.com/megaframework/mega/ctx/locale"
)

// Locale returns the locale of c, one of the locales of the app: the locale
// requested by ?lang=, by the cookie "lang" or by Accept-Language, in this order.
// It is "" if the app has no texts.
func (c *Ctx) Locale() string {
	switch {
	case c.asked.locale != "":
		return c.asked.locale
	case c.exchange != nil:
		return c.exchange.record.locale(c.host.files().Locales)
	case c.host != nil:
		return c.host.files().Locales.Match()
	}
	return ""
}

// WithLocale returns a copy of c with the locale of the app that matches wanted
// best, where wanted is written as in an Accept-Language header: for a mail to a
// user who chose a language before.
func (c *Ctx) WithLocale(wanted string) *Ctx {
	d := c.WithContext(c.std())
	if c.host != nil {
		d.asked.locale = c.host.files().Locales.Match(wanted)
	}
	return d
}

// T returns the text of key in the locale of c with the values in kv, which
// alternates names and values. The value called count selects the plural form. A
// missing key or value is shown by its name and logged once.
//
// Package locale describes how texts are written.
func (c *Ctx) T(key string, kv ...any) string {
	if c.host == nil {
		return key
	}
	return c.host.translate(c.Locale(), key, kv)
}

// locale matches the locale of a request, once.
func (rec *record) locale(l *locale.Texts) string {
	rec.localeOnce.Do(func() { rec.chosen = l.Match(wantedLocales(rec.request)...) })
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
	text, err := h.files().Locales.Text(locale, key, kv)
	if err != nil && h.complaints.first(locale+" "+key) {
		h.log().Warn("text not translated", "locale", locale, "key", key, "error", err)
	}
	return text
}

// complaints remembers the logged keys. Keys may contain client input, so their
// number is bounded.
type complaints struct {
	mu   sync.Mutex // guards made
	made map[string]struct{}
}

const maxComplaints = 1000

// first reports whether a complaint is new.
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
