package logging

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/megaframework/mega/internal/stack"
)

// keyStack is the attribute of the stack of a panic, in the format of
// debug.Stack.
const keyStack = "stack"

// stackHandler is a handler for people: it writes the stack of a record on lines
// below it, with the frames of mega and of Go folded. It holds no mutex while it
// formats the values of a record, because their methods may log.
type stackHandler struct {
	slog.Handler                              // writes the records without a stack
	newHandler   func(io.Writer) slog.Handler // returns the same for another writer
	out          *syncWriter
	mask         func([]string, slog.Attr) slog.Attr
}

// syncWriter serializes writes, so that records do not mix.
type syncWriter struct {
	mu sync.Mutex // guards to; held during a write
	to io.Writer
}

// Write writes p, a whole record.
func (o *syncWriter) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(p)
}

// newStackHandler returns a handler for to. newHandler makes the handler of the lines.
func newStackHandler(to io.Writer, mask func([]string, slog.Attr) slog.Attr, newHandler func(io.Writer) slog.Handler) slog.Handler {
	out := &syncWriter{to: to}
	return stackHandler{newHandler(out), newHandler, out, mask}
}

// Handle writes a record.
func (s stackHandler) Handle(ctx context.Context, r slog.Record) error {
	line, text := s.split(r)
	if text == "" {
		return s.Handler.Handle(ctx, r)
	}
	var record bytes.Buffer
	if err := s.newHandler(&record).Handle(ctx, line); err != nil {
		return err
	}
	record.WriteString("    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n")
	_, err := s.out.Write(record.Bytes())
	return err
}

// split returns a record without its stack, and the stack as text.
func (s stackHandler) split(r slog.Record) (slog.Record, string) {
	var attrs []slog.Attr
	text := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != keyStack || a.Value.Kind() != slog.KindString {
			attrs = append(attrs, a)
			return true
		}
		if text = stack.Text(stack.Parse([]byte(a.Value.String()))); text == "" {
			text = a.Value.String() // another format
		}
		text = s.mask(nil, slog.String(keyStack, text)).Value.String()
		return true
	})
	if text == "" {
		return r, ""
	}
	line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	line.AddAttrs(attrs...)
	return line, text
}

// WithAttrs returns the same handler with attributes.
func (s stackHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return s.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup returns the same handler with a group.
func (s stackHandler) WithGroup(name string) slog.Handler {
	return s.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (s stackHandler) with(add func(slog.Handler) slog.Handler) slog.Handler {
	on := s.newHandler
	s.Handler, s.newHandler = add(s.Handler), func(w io.Writer) slog.Handler { return add(on(w)) }
	return s
}
