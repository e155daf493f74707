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
// below it, and folds the frames of mega and of Go. No lock is held while the
// values of a record are formatted: their methods may log, too.
type stacked struct {
	slog.Handler                              // writes the records without a stack
	on           func(io.Writer) slog.Handler // returns the same for another writer
	out          *output
	mask         func([]string, slog.Attr) slog.Attr
}

// output writes one record at a time.
type output struct {
	mu sync.Mutex // guards to; held during a write
	to io.Writer
}

// Write writes a whole record.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(p)
}

// newStacked returns a handler for to. newHandler makes the handler of the lines.
func newStacked(to io.Writer, mask func([]string, slog.Attr) slog.Attr, newHandler func(io.Writer) slog.Handler) slog.Handler {
	out := &output{to: to}
	return stacked{newHandler(out), newHandler, out, mask}
}

// Handle writes a record.
func (s stacked) Handle(ctx context.Context, r slog.Record) error {
	line, text := s.split(r)
	if text == "" {
		return s.Handler.Handle(ctx, r)
	}
	var record bytes.Buffer
	if err := s.on(&record).Handle(ctx, line); err != nil {
		return err
	}
	record.WriteString("    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n")
	_, err := s.out.Write(record.Bytes())
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
	return s.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup returns the same handler with a group.
func (s stacked) WithGroup(name string) slog.Handler {
	return s.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (s stacked) with(add func(slog.Handler) slog.Handler) slog.Handler {
	on := s.on
	s.Handler, s.on = add(s.Handler), func(w io.Writer) slog.Handler { return add(on(w)) }
	return s
}
