package megatest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/stack"
)

// Client sends requests to one app. A body is sent as JSON, except
// [url.Values], which is sent as a form, and an [io.Reader], which is sent
// unchanged. A request accepts JSON. Its target is a path of the app, without the prefix
// below which a server has the app.
//
// Headers are written "Name: value"; they replace the Client's own headers. Several with
// one name are all sent.
type Client struct {
	t       testing.TB
	handler http.Handler
	log     *Log
	work    *group.Group
}

// Get sends a GET.
func (c Client) Get(target string, headers ...string) *Response {
	c.t.Helper()
	return c.Do(http.MethodGet, target, nil, headers...)
}

// Post sends a POST.
func (c Client) Post(target string, body any, headers ...string) *Response {
	c.t.Helper()
	return c.Do(http.MethodPost, target, body, headers...)
}

// Put sends a PUT.
func (c Client) Put(target string, body any, headers ...string) *Response {
	c.t.Helper()
	return c.Do(http.MethodPut, target, body, headers...)
}

// Patch sends a PATCH.
func (c Client) Patch(target string, body any, headers ...string) *Response {
	c.t.Helper()
	return c.Do(http.MethodPatch, target, body, headers...)
}

// Delete sends a DELETE.
func (c Client) Delete(target string, headers ...string) *Response {
	c.t.Helper()
	return c.Do(http.MethodDelete, target, nil, headers...)
}

// Do sends a request and returns its answer, when the handler has returned. A stream
// needs a request whose context ends: see [Client.Request]. Do does not follow
// redirects. It fails the test if the handler does not complete its answer before the
// application stops, so that a server closes the connection; a test that expects this
// uses [Client.Serve] and recovers [http.ErrAbortHandler].
func (c Client) Do(method, target string, body any, headers ...string) *Response {
	c.t.Helper()
	if c.work.Begin() { // false when the application has stopped
		defer c.work.Done()
	}
	r := c.Request(method, target, body, headers...)
	w := httptest.NewRecorder()
	answer := &Response{t: c.t, request: r.Method + " " + r.URL.RequestURI(), Recorded: w, log: c.log}
	if !c.completes(w, r) && r.Context().Err() == nil {
		answer.fail("the answer is not complete: the connection is closed")
	}
	if method == http.MethodHead || w.Code == http.StatusNoContent || w.Code == http.StatusNotModified { // a server sends no body
		w.Body.Reset()
	}
	return answer
}

// completes serves r, and reports whether the handler completes its answer.
func (c Client) completes(w http.ResponseWriter, r *http.Request) (whole bool) {
	defer func() {
		switch value := recover(); value {
		case nil, http.ErrAbortHandler:
		default:
			panic(value)
		}
	}()
	c.handler.ServeHTTP(w, r)
	return true
}

// Request returns the request that Do sends, for a test that changes it or
// gives it another context. Serve it with [Client.Serve].
func (c Client) Request(method, target string, body any, headers ...string) *http.Request {
	c.t.Helper()
	content, contentType, err := encode(body)
	if err != nil {
		c.t.Fatalf("%s %s: encode the body: %v", method, target, err)
	}
	r, err := newRequest(c.t.Context(), method, target, content)
	if err != nil {
		c.t.Fatalf("%s %q: %v (url.PathEscape and url.QueryEscape escape a part of a target)", method, target, err)
	}
	r.Header.Set("Accept", "application/json")
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	given := http.Header{}
	for _, h := range headers {
		name, value, found := strings.Cut(h, ":")
		if !found {
			c.t.Fatalf("%s %s: the header %q has no value: want Name: value", method, target, h)
		}
		given.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	maps.Copy(r.Header, given)
	if host := r.Header.Get("Host"); host != "" { // a server moves it, too
		r.Host = host
		r.Header.Del("Host")
	}
	return r
}

// newRequest returns an error where httptest panics, which would end all tests of the package.
func newRequest(ctx context.Context, method, target string, body io.Reader) (r *http.Request, err error) {
	defer func() {
		if refused := recover(); refused != nil {
			err = fmt.Errorf("make the request: %v", refused)
		}
	}()
	return httptest.NewRequestWithContext(ctx, method, target, body), nil
}

// Serve answers r on the caller's own writer.
func (c Client) Serve(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

func encode(body any) (io.Reader, string, error) {
	switch b := body.(type) {
	case nil:
		return http.NoBody, "", nil
	case io.Reader:
		return b, "", nil
	case url.Values:
		return strings.NewReader(b.Encode()), "application/x-www-form-urlencoded", nil
	}
	text, err := json.Marshal(body)
	return bytes.NewReader(text), "application/json", err
}

// Response is an answer. Its methods fail the test and print the whole answer
// if an expectation is not met, and the error that the handler returned, with its
// code and its place. They return the Response for the next call.
type Response struct {
	Recorded *httptest.ResponseRecorder

	t       testing.TB
	request string
	log     *Log
}

// Body returns the body.
func (r *Response) Body() string { return r.Recorded.Body.String() }

// Status expects a status.
func (r *Response) Status(want int) *Response {
	r.t.Helper()
	if got := r.Recorded.Code; got != want {
		r.fail("the status is %d, want %d", got, want)
	}
	return r
}

// Code expects a problem with that code.
func (r *Response) Code(want string) *Response {
	r.t.Helper()
	var problem struct{ Code string }
	if err := json.Unmarshal(r.Recorded.Body.Bytes(), &problem); err != nil || problem.Code != want {
		r.fail("the code is %q, want %q", problem.Code, want)
	}
	return r
}

// Header expects a header with that value. A header that the handler has set after
// the answer had begun is not sent, and so it is missing here.
func (r *Response) Header(name, want string) *Response {
	r.t.Helper()
	if got := r.sent().Get(name); got != want {
		r.fail("the header %s is %q, want %q", name, got, want)
	}
	return r
}

// Contains expects a part of the body.
func (r *Response) Contains(want string) *Response {
	r.t.Helper()
	if !strings.Contains(r.Body(), want) {
		r.fail("the body does not contain %q", want)
	}
	return r
}

// JSON expects a body that is one value, which decodes into v and has no field that v
// lacks.
func (r *Response) JSON(v any) *Response {
	r.t.Helper()
	d := json.NewDecoder(strings.NewReader(r.Body()))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		r.fail("decode the body: %v", err)
	} else if _, err := d.Token(); err != io.EOF {
		r.fail("the body has more than one value")
	}
	return r
}

// sent returns the headers as they were when the answer began.
func (r *Response) sent() http.Header {
	answer := r.Recorded.Result()
	_ = answer.Body.Close() // it is in memory
	return answer.Header
}

func (r *Response) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf("%s: "+format+"\n%d %s\n%s%s", append(append([]any{r.request}, args...), r.Recorded.Code, r.sent(), r.Body(), r.cause())...)
}

// cause returns the error of the handler, as the application has logged it: with
// its code, its place or else the handler, and the stack of a panic.
func (r *Response) cause() string {
	id := r.Recorded.Header().Get("X-Request-Id")
	logged, _ := r.log.find("request", []any{"request", id})
	if logged == nil || logged["error"] == nil {
		return ""
	}
	text := fmt.Sprintf("\nthe handler returned: %v  (%v)", logged["error"], logged["code"])
	switch {
	case logged["stack"] != nil:
		text += "\n    " + strings.ReplaceAll(stack.Text(stack.Parse([]byte(fmt.Sprint(logged["stack"])))), "\n", "\n    ")
	case logged["at"] != nil:
		text += fmt.Sprintf("\n    at %v", logged["at"])
	case logged["handler"] != nil:
		text += fmt.Sprintf("\n    by %v", logged["handler"])
	}
	return text
}
