package megactx

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// WantsJSON reports whether the answer should be JSON: the request's body is
// JSON, or its Accept header prefers JSON.
func (c *Ctx) WantsJSON() bool { return c.exchange != nil && wantsJSON(c.exchange.request) }

// JSON answers with v.
func (c *Ctx) JSON(status int, v any) error {
	if c.exchange == nil {
		return ErrNoRequest
	}
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return c.answer(status, "application/json", body)
}

// Text answers with plain text.
func (c *Ctx) Text(status int, s string) error {
	return c.answer(status, "text/plain; charset=utf-8", []byte(s))
}

// HTML answers with the view called name, in the request's locale. Nothing is
// written if it cannot be rendered. The boot checks the templates that views
// call, but not the names that handlers give to HTML: an unknown one is an error
// with the code mega.unknown_view and the names of all views.
func (c *Ctx) HTML(status int, name string, data any) error {
	if c.exchange == nil {
		return ErrNoRequest
	}
	body, err := c.host.render(c.Locale(), name, data)
	if err != nil {
		return err
	}
	return c.exchange.writer.answer(answer{status: status, contentType: htmlType, header: c.pageHeader(), body: body})
}

const htmlType = "text/html; charset=utf-8"

// pageHeader returns the Vary header of a page, for caches.
func (c *Ctx) pageHeader() http.Header {
	if c.host.files().Locales == nil {
		return http.Header{"Vary": {"Accept"}}
	}
	return http.Header{"Vary": {"Accept, Accept-Language, Cookie"}, "Content-Language": {c.Locale()}}
}

// Redirect sends the client to target with a status of 300 to 399. An absolute
// path is a path of this app: see [Ctx.URL].
func (c *Ctx) Redirect(status int, target string) error {
	if c.exchange == nil {
		return ErrNoRequest
	}
	if status < 300 || status > 399 {
		return fmt.Errorf("redirect to %q: the status %d is not one of a redirect", target, status)
	}
	location := asciiOnly(c.URL(target))
	return c.exchange.writer.answer(answer{status: status, header: http.Header{"Location": {location}}})
}

// asciiOnly percent-encodes the bytes that a header must not contain.
func asciiOnly(target string) string {
	var b strings.Builder
	for i := range len(target) {
		if c := target[i]; c > ' ' && c < 0x7f {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func (c *Ctx) answer(status int, contentType string, body []byte) error {
	if c.exchange == nil {
		return ErrNoRequest
	}
	return c.exchange.writer.answer(answer{
		status: status, contentType: contentType, body: body,
		header: http.Header{"Vary": {"Accept"}}, // a page and its JSON may share an address
	})
}
