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

// stacked is a handler for people: it writes the stack of a record on lines
// below it, and folds the frames of mega and of Go.
type stacked struct {
	slog.Handler // writes to out
	out          *output
	mask         func([]string, slog.Attr) slog.Attr
}

// output joins the parts of a record, so that each record is one write.
type output struct {
	mu  sync.Mutex // guards all fields; held while a record is written
	buf bytes.Buffer
	to  io.Writer
}

// Write adds a part of the record that Handle writes.
func (o *output) Write(p []byte) (int, error) { return o.buf.Write(p) }

// newStacked returns a handler for to. newHandler makes the handler of the lines.
func newStacked(to io.Writer, mask func([]string, slog.Attr) slog.Attr, newHandler func(io.Writer) slog.Handler) slog.Handler {
	out := &output{to: to}
	return stacked{newHandler(out), out, mask}
}

// Handle writes a record.
func (s stacked) Handle(ctx context.Context, r slog.Record) error {
	line, text := s.split(r)
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	s.out.buf.Reset()
	if err := s.Handler.Handle(ctx, line); err != nil {
		return err
	}
	if text != "" {
		s.out.buf.WriteString("    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n")
	}
	_, err := s.out.to.Write(s.out.buf.Bytes())
	return err
}

// split returns a record without its stack, and the stack as text.
func (s stacked) split(r slog.Record) (slog.Record, string) {
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
func (s stacked) WithAttrs(attrs []slog.Attr) slog.Handler {
	s.Handler = s.Handler.WithAttrs(attrs)
	return s
}

// WithGroup returns the same handler with a group.
func (s stacked) WithGroup(name string) slog.Handler {
	s.Handler = s.Handler.WithGroup(name)
	return s
}
