package megactx

// Locale returns the locale of c, one of the locales of the app: the locale
// requested by ?lang=, by the cookie "lang" or by Accept-Language, in this order.
// It is "" if the app has no texts.
func (c *Ctx) Locale() string { return c.work.Locale() }

// WithLocale returns a copy of c with the locale of the app that matches wanted
// best, where wanted is written as in an Accept-Language header: for a mail to a
// user who chose a language before, or in a middleware for the rest of the request.
func (c *Ctx) WithLocale(wanted string) *Ctx {
	d := c.WithContext(c.std())
	d.work = c.work.In(wanted)
	return d
}

// T returns the text of key in the locale of c with the values in kv, which
// alternates names and values. The value called count selects the plural form. A
// missing key or value is shown by its name and logged once.
//
// Package locale describes how texts are written.
func (c *Ctx) T(key string, kv ...any) string {
	if c.work == nil {
		return key
	}
	return c.work.Host.Translate(c.Locale(), key, kv)
}
