package megactx

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/megaframework/mega/internal/request"
)

// WantsJSON reports whether the answer should be JSON: the request's body is
// JSON, or its Accept header prefers JSON.
func (c *Ctx) WantsJSON() bool {
	return c.exchange() != nil && request.WantsJSON(c.work.Exchange.Request)
}

// JSON answers with v, encoded by encoding/json. It returns an error and writes
// nothing if v cannot be encoded or the status is not 200 to 999, and the errors
// that [Ctx] names. So do the other methods that answer.
func (c *Ctx) JSON(status int, v any) error {
	if c.exchange() == nil {
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

// HTML answers with the view called name, in the locale of c. Nothing is
// written if it cannot be rendered. An unknown name is an error with
// the code mega.unknown_view; in env dev and in the dry run, one that is a literal
// stops the boot.
func (c *Ctx) HTML(status int, name string, data any) error {
	if c.exchange() == nil {
		return ErrNoRequest
	}
	body, err := c.work.Host.Render(c.Locale(), name, data)
	if err != nil {
		return err
	}
	return c.work.Exchange.Writer.Answer(request.Answer{Status: status, Type: "text/html; charset=utf-8", Header: c.pageHeader(), Body: body})
}

// pageHeader returns the Vary header of a page, for caches.
func (c *Ctx) pageHeader() http.Header {
	if c.work.Host.Files().Locales == nil {
		return http.Header{"Vary": {"Accept"}}
	}
	return http.Header{"Vary": {"Accept, Accept-Language, Cookie"}, "Content-Language": {c.Locale()}}
}

// Redirect sends the client to target with a status of 300 to 399. An absolute
// path is a path of this app: see [Ctx.URL].
func (c *Ctx) Redirect(status int, target string) error {
	if c.exchange() == nil {
		return ErrNoRequest
	}
	if status < 300 || status > 399 {
		return fmt.Errorf("redirect to %q: the status %d is not one of a redirect", target, status)
	}
	location := escaped(c.URL(target))
	return c.work.Exchange.Writer.Answer(request.Answer{Status: status, Header: http.Header{"Location": {location}}})
}

// escaped percent-encodes the bytes that a header must not contain, and the
// backslash: a browser takes "/\" for "//", which a host follows.
func escaped(target string) string {
	var b strings.Builder
	for i := range len(target) {
		if c := target[i]; c > ' ' && c < 0x7f && c != '\\' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func (c *Ctx) answer(status int, contentType string, body []byte) error {
	if c.exchange() == nil {
		return ErrNoRequest
	}
	return c.work.Exchange.Writer.Answer(request.Answer{Status: status, Type: contentType, Body: body, Header: byAccept})
}

// byAccept is a header of answers: a page and its JSON may share an address.
// Answer copies the values of Vary.
var byAccept = http.Header{"Vary": {"Accept"}}

// WrapHandler makes an http.Handler a Handler. The request it is given carries
// the Ctx; see From. Its parameters are the request's PathValue. It panics if std is nil.
//
//go:noinline // the list of routes knows it by its name
func WrapHandler(std http.Handler) Handler {
	if std == nil {
		panic("mega: WrapHandler has no http.Handler")
	}
	return func(c *Ctx) error {
		x := c.exchange()
		if x == nil {
			return ErrNoRequest
		}
		x.Serve(c, std)
		x.Writer.Begin()
		return nil
	}
}
