package logging

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/secrets"
	"github.com/megaframework/mega/internal/stack"
)

// Recent is the last warnings and errors of a process's log, the newest first.
// Records of lost leases are in a list of their own, so that a flood of others
// does not displace them. The frames of mega and Go in a stack are folded.
type Recent struct {
	Lost   []Record `json:"lost"`
	Errors []Record `json:"errors"`
}

// Record is one record of the log. Secrets are masked.
type Record struct {
	Time    time.Time `json:"time"`
	Level   string    `json:"level"` // WARN or ERROR
	Message string    `json:"message"`
	Attrs   []Attr    `json:"attrs,omitempty"`
}

// Attr is an attribute of a record; Key has its groups before it.
type Attr struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// The bounds of Recent.
const (
	recentLost   = 50
	recentErrors = 100
	recentValue  = 2 << 10 // bytes of a message or a value; a stack is longer
)

// lostLease is the message of the record of a lost lease.
const lostLease = "lock lost"

// recentRecords keeps the last records.
type recentRecords struct {
	mu     sync.Mutex // guards the fields below, oldest first
	lost   []Record
	errors []Record
}

func (m *recentRecords) add(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Message == lostLease {
		m.lost = last(append(m.lost, r), recentLost)
		return
	}
	m.errors = last(append(m.errors, r), recentErrors)
}

// last returns the last n records of all. It reuses the array of all.
func last(all []Record, n int) []Record { return slices.Delete(all, 0, max(len(all)-n, 0)) }

func (m *recentRecords) recent() Recent {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Recent{append([]Record{}, m.lost...), append([]Record{}, m.errors...)}
	slices.Reverse(r.Lost)
	slices.Reverse(r.Errors)
	return r
}

// recorder is a handler that keeps warnings and errors, and passes all records on.
type recorder struct {
	slog.Handler
	records *recentRecords
	veil    *secrets.Veil
	attrs   []Attr // of the logger
	prefix  string // its groups
}

// Handle keeps a record and passes it on.
func (h recorder) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		kept := Record{Time: r.Time, Level: r.Level.String(), Message: h.maskAndCut(r.Message), Attrs: slices.Clone(h.attrs)}
		r.Attrs(func(a slog.Attr) bool {
			kept.Attrs = h.appendAttr(kept.Attrs, h.prefix, a)
			return true
		})
		h.records.add(kept)
	}
	return h.Handler.Handle(ctx, r)
}

// appendAttr appends an attribute, or the attributes of a group, to all.
func (h recorder) appendAttr(all []Attr, prefix string, a slog.Attr) []Attr {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, of := range v.Group() {
			all = h.appendAttr(all, prefix, of)
		}
		return all
	}
	if a.Equal(slog.Attr{}) {
		return all
	}
	text := v.String()
	if a.Key == keyStack { // the unfolded stack would be cut before the frames of the program
		text = cmp.Or(stack.Text(stack.Parse([]byte(text))), text)
	}
	return append(all, Attr{prefix + a.Key, h.maskAndCut(text)})
}

// maskAndCut returns s with its secrets masked, and cut to recentValue bytes.
func (h recorder) maskAndCut(s string) string {
	s = h.veil.Text(s) // before it is cut: a part of a secret is not masked
	if len(s) > recentValue {
		s = strings.ToValidUTF8(s[:recentValue], "") + "…" // the cut may be inside a character
	}
	return s
}

// WithAttrs implements [slog.Handler].
func (h recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	h.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		h.attrs = h.appendAttr(h.attrs, h.prefix, a)
	}
	return h
}

// WithGroup implements [slog.Handler].
func (h recorder) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	if name != "" {
		h.prefix += name + "."
	}
	return h
}
