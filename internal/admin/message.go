package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/bus"
)

// Data is the data of a message in one of three forms: as JSON, as text, or
// otherwise as bytes. Without any of them it is empty.
type Data struct {
	JSON   json.RawMessage `json:"json,omitempty"`
	Text   string          `json:"data,omitempty"`
	Binary []byte          `json:"base64,omitempty"`
}

// newData chooses the form for b.
func newData(b []byte) Data {
	switch {
	case len(b) == 0:
		return Data{}
	case !utf8.Valid(b):
		return Data{Binary: b}
	case json.Valid(b) && !tooDeep(b):
		return Data{JSON: b}
	}
	return Data{Text: string(b)}
}

// The depth of JSON that a decoder takes, and how much deeper JSON is in the
// documents that show it.
const (
	maxDepth = 10_000
	around   = "[[[[[[[["
)

// tooDeep reports whether valid JSON nests too deeply to be a part of a document.
func tooDeep(b []byte) bool {
	if bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) <= maxDepth-len(around) {
		return false
	}
	return !json.Valid(slices.Concat([]byte(around), b, bytes.Repeat([]byte("]"), len(around))))
}

// Bytes returns the data. JSON may have lost its original spaces.
func (d Data) Bytes() []byte {
	switch {
	case len(d.JSON) > 0:
		return d.JSON
	case len(d.Binary) > 0:
		return d.Binary
	}
	return []byte(d.Text)
}

var errSeveralData = errors.New("give only one of json, data and base64")

func (d Data) check() error {
	given := 0
	for _, n := range []int{len(d.JSON), len(d.Text), len(d.Binary)} {
		given += min(n, 1)
	}
	if given > 1 {
		return errSeveralData
	}
	return nil
}

// Message is an event to publish, or a request to make.
type Message struct {
	Subject string      `json:"subject"`
	Headers bus.Headers `json:"headers,omitempty"`
	Timeout string      `json:"timeout,omitempty"` // of a request, as "2s"; default: 5s
	Data
}

// Reply is the answer to a request.
type Reply struct {
	Headers bus.Headers `json:"headers,omitempty"`
	Took    string      `json:"took"`
	Data
}

// published is the answer to an event.
type published struct {
	Bytes int `json:"bytes"`
}

// The bounds of the timeout of a request.
const (
	defaultTimeout = 5 * time.Second
	maxTimeout     = time.Hour
)

func (m Message) options() (options []bus.PubOption) {
	for key, values := range m.Headers {
		for _, v := range values {
			options = append(options, bus.Header(key, v))
		}
	}
	return options
}

func (m Message) timeout() (time.Duration, error) {
	if m.Timeout == "" {
		return defaultTimeout, nil
	}
	d, err := time.ParseDuration(m.Timeout)
	if err != nil || d <= 0 || d > maxTimeout {
		return 0, fmt.Errorf("timeout is %q, want a duration up to %v, such as 2s", m.Timeout, maxTimeout)
	}
	return d, nil
}

// message decodes the message to send, or answers with an error. Its limit allows
// for the escapes of text, which take up to six bytes for one of the data.
func (d operations) message(w http.ResponseWriter, r *http.Request) (m Message, ok bool) {
	limit := 6*int64(d.process.Bus.Info().MaxPayload) + maxBody
	err := readUpTo(w, r, limit, &m)
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		fail(w, fmt.Errorf("%w: its form as JSON has more than %d bytes", bus.ErrTooLarge, limit)) // S17
		return m, false
	}
	if err != nil {
		refuseBody(w, err)
		return m, false
	}
	if err := m.check(); err != nil {
		refuse(w, http.StatusBadRequest, "request.invalid", err)
		return m, false
	}
	return m, true
}

// publish answers when the event has left the process.
func (d operations) publish(w http.ResponseWriter, r *http.Request) {
	m, ok := d.message(w, r)
	if !ok {
		return
	}
	if m.Timeout != "" {
		refuse(w, http.StatusBadRequest, "request.invalid", errors.New("an event has no answer, so it takes no timeout"))
		return
	}
	data := m.Bytes()
	if err := d.process.Bus.Publish(r.Context(), m.Subject, data, m.options()...); err != nil {
		fail(w, err)
		return
	}
	logChange(d.process.Log, r, "admin: event published", slog.String("subject", m.Subject), slog.Int("bytes", len(data)))
	if err := d.process.Bus.Flush(r.Context()); err != nil {
		fail(w, fmt.Errorf("the event is queued in the process and not sent yet: %w", err))
		return
	}
	answer(w, http.StatusOK, published{len(data)})
}

// request answers with the responder's answer.
func (d operations) request(w http.ResponseWriter, r *http.Request) {
	m, ok := d.message(w, r)
	if !ok {
		return
	}
	timeout, err := m.timeout()
	if err != nil {
		refuse(w, http.StatusBadRequest, "request.invalid", err)
		return
	}
	unbounded(w)
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	began := time.Now()
	out, err := d.process.Bus.Request(ctx, m.Subject, m.Bytes(), m.options()...)
	_, refused := errors.AsType[*bus.RemoteError](err) // by its responder: an answer, too
	logChange(d.process.Log, r, "admin: request made", slog.String("subject", m.Subject), slog.Bool("answered", err == nil || refused))
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, Reply{Headers: out.Header, Took: time.Since(began).Round(time.Microsecond).String(), Data: newData(out.Data)})
}

// unbounded removes the server's read timeout, which would end the context of a
// longer request.
func unbounded(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a recorder in a test has none
}
