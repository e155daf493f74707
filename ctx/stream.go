package megactx

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/request"
)

const (
	// heartbeat is the interval of comments on an idle stream. Proxies close
	// silent connections, and a failed comment reveals a dead client.
	heartbeat = 15 * time.Second
	// stall is the timeout for sending one event.
	stall = 10 * time.Second
)

// Stream is an answer of server-sent events. It is a Ctx that ends when the
// client disconnects or stops receiving, and when the service shuts down. It is
// safe for use by several goroutines.
type Stream struct {
	*Ctx
	out *request.Response
	end context.CancelCauseFunc
}

// SSE answers with a stream of server-sent events, which fn sends until it
// returns. The request's timeout does not apply, and a comment every 15 seconds
// keeps the connection alive.
//
// When the client disconnects or the service shuts down, the Ctx of the handler
// and of the stream end, and sending fails. SSE returns nil if fn returns for
// that reason, and otherwise the error of fn. As with a part of any other answer, an
// error that the handler returns, and a panic, close the connection and are logged.
func (c *Ctx) SSE(fn func(*Stream) error) error {
	x := c.exchange()
	if x == nil {
		return ErrNoRequest
	}
	if x.Request.Method == http.MethodHead {
		return x.Writer.Answer(request.Answer{Status: http.StatusOK, Header: streamHeader()})
	}
	if err := c.Err(); err != nil {
		if errors.Is(context.Cause(c), ErrHandlerReturned) {
			return ErrHandlerReturned
		}
		return err
	}
	s := c.newStream()
	defer s.end(ErrHandlerReturned)
	if err := s.begin(); err != nil {
		return err
	}
	c.work.Host.OpenStream(x)
	defer c.work.Host.CloseStream(x)
	var helpers sync.WaitGroup
	defer s.restore(&helpers)
	defer s.end(ErrHandlerReturned)
	helpers.Go(s.beat)
	helpers.Add(1)
	context.AfterFunc(s, func() { defer helpers.Done(); x.Hurry() })

	err := fn(s)
	if s.endedWith(err) {
		return nil
	}
	return err
}

// endedWith reports whether c has ended, and err is or wraps its reason: as where the
// client of a stream has left. Such an error is no failure.
func (c *Ctx) endedWith(err error) bool {
	return c.Err() != nil && (errors.Is(err, c.Err()) || errors.Is(err, context.Cause(c)))
}

func (c *Ctx) newStream() *Stream {
	std, end := context.WithCancelCause(c)
	return &Stream{Ctx: c.WithContext(std), out: c.exchange().Writer, end: end}
}

func streamHeader() http.Header {
	return http.Header{
		"Content-Type":           {"text/event-stream"},
		"Cache-Control":          {"no-cache"},
		"X-Content-Type-Options": {"nosniff"},
		"X-Accel-Buffering":      {"no"}, // nginx would buffer events
	}
}

func (s *Stream) begin() error {
	if !s.out.CanFlush() { // before the answer begins
		return errors.New("begin a stream: the writer of a middleware cannot send in pieces")
	}
	if !s.out.FullDuplex() {
		s.exchange().ReadRest()
	}
	if err := s.out.Answer(request.Answer{Status: http.StatusOK, Header: streamHeader(), Stream: true}); err != nil {
		return err
	}
	s.exchange().Lift()
	// The server's timeouts are meant for answers that end.
	_ = s.out.SetWriteDeadline(time.Time{})
	if s.out.FullDuplex() { // otherwise net/http reads the rest of the request now, and removes its deadline
		_ = s.out.SetReadDeadline(time.Time{})
	}
	if err := s.out.FlushError(); err != nil {
		return fmt.Errorf("begin a stream: %w", err)
	}
	return nil
}

// restore waits for the stream's goroutines and resets the connection's
// deadline for the next request.
func (s *Stream) restore(helpers *sync.WaitGroup) {
	helpers.Wait()
	_ = s.out.SetWriteDeadline(time.Time{})
}

// beat sends comments until the stream ends.
func (s *Stream) beat() {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = s.Comment("") // a failure has ended the stream
		case <-s.Done():
			return
		}
	}
}

// LastEventID returns the id of the last event that the client received before
// it reconnected, or "".
func (s *Stream) LastEventID() string {
	if s.Ctx == nil || s.exchange() == nil {
		return ""
	}
	return s.exchange().Request.Header.Get("Last-Event-ID")
}

// Send sends an event with v as its data: a string or bytes unchanged, any
// other value as JSON. A browser delivers it to the listeners of event, or, if
// event is "", to onmessage.
func (s *Stream) Send(event string, v any) error { return s.SendID("", event, v) }

// SendID is Send with an id, which a reconnecting client sends as its
// Last-Event-ID.
func (s *Stream) SendID(id, event string, v any) error {
	if strings.ContainsAny(id+event, "\r\n\x00") {
		return fmt.Errorf("send an event: its id %q or name %q has a line break or a zero byte", id, event)
	}
	data, err := eventData(v)
	if err != nil {
		return fmt.Errorf("send an event: encode it: %w", err)
	}
	var b bytes.Buffer
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	if event != "" {
		b.WriteString("event: " + event + "\n")
	}
	writeLines(&b, "data: ", data)
	b.WriteByte('\n')
	return s.send(b.Bytes())
}

// Comment sends a comment, which clients ignore.
func (s *Stream) Comment(text string) error {
	var b bytes.Buffer
	writeLines(&b, ": ", text)
	b.WriteByte('\n')
	return s.send(b.Bytes())
}

func eventData(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	data, err := json.Marshal(v)
	return string(data), err
}

// writeLines writes every line of text with a prefix. A line ends with LF, CR
// or both.
func writeLines(b *bytes.Buffer, prefix, text string) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(prefix + line + "\n")
	}
}

// send writes and flushes one event. A client that does not receive it within
// stall ends the stream, and with it the handler's Ctx.
func (s *Stream) send(event []byte) error {
	if s.Ctx == nil || s.exchange() == nil {
		return ErrNoRequest
	}
	err := s.out.Push(s, event, stall)
	if err == nil || errors.Is(err, context.Cause(s)) {
		return err
	}
	err = fmt.Errorf("send an event: %w", err)
	s.exchange().End(err)
	if cause := context.Cause(s); cause != nil && !errors.Is(err, cause) { // the stream has ended, as a cause of the failure or by it
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
