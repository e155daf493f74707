package megactx

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// exchange is a request and its answer, as a handler sees them.
type exchange struct {
	host    *Host
	request *http.Request
	writer  http.ResponseWriter
	record  *record
}

// Param returns the part of the path that the route calls name, unescaped.
func (c *Ctx) Param(name string) string {
	if c.exchange == nil {
		return ""
	}
	value := c.exchange.request.PathValue(name)
	if c.exchange.request.URL.RawPath == "" {
		return value
	}
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// Query returns the first value of a query parameter, or "".
func (c *Ctx) Query(name string) string {
	if c.exchange == nil {
		return ""
	}
	return c.exchange.request.URL.Query().Get(name)
}

// WantsJSON reports whether the request is to be answered in JSON: its body is
// JSON, or it asks for JSON.
func (c *Ctx) WantsJSON() bool { return c.exchange != nil && wantsJSON(c.exchange.request) }

// JSON answers with v.
func (c *Ctx) JSON(status int, v any) error {
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

// HTML answers with the view called name. Nothing is written if it cannot be
// rendered.
func (c *Ctx) HTML(status int, name string, data any) error {
	if c.exchange == nil {
		return ErrNoRequest
	}
	body, err := c.exchange.host.Views.render(name, data)
	if err != nil {
		return err
	}
	return c.answer(status, "text/html; charset=utf-8", body)
}

// Redirect sends the client to target, which may be relative, with a status of
// 300 to 399.
func (c *Ctx) Redirect(status int, target string) error {
	if c.exchange == nil {
		return ErrNoRequest
	}
	if status < 300 || status > 399 {
		return fmt.Errorf("redirect to %q: the status %d is not one of a redirect", target, status)
	}
	http.Redirect(c.exchange.writer, c.exchange.request, target, status)
	return nil
}

func (c *Ctx) answer(status int, contentType string, body []byte) error {
	if c.exchange == nil {
		return ErrNoRequest
	}
	// A page and its JSON may share an address.
	c.exchange.writer.Header().Add("Vary", "Accept")
	writeBody(c.exchange.writer, status, contentType, body)
	return nil
}

// writeBody writes a whole answer. A failed write is a client that went away,
// which the request's context tells to everyone concerned.
func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
