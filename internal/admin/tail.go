package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/megaframework/mega/bus"
)

// Event is a line of a tail: an event, or, without a subject, the number of
// events missed since the previous line.
type Event struct {
	At      time.Time   `json:"at"`
	Subject string      `json:"subject,omitempty"`
	Headers bus.Headers `json:"headers,omitempty"`
	// Missed is the number of events missing before this one, or -1 if unknown:
	// the reader was too slow, or the backend was unreachable.
	Missed int `json:"missed,omitempty"`
	Data
}

// The bounds on the resources of a tail.
const (
	maxTails   = 8
	tailEvents = 1024                   // that wait for the reader
	tailBytes  = 8 << 20                // of them
	writeTime  = time.Minute            // timeout for a reader that does not read
	lastWrite  = 500 * time.Millisecond // the same timeout, once the server closes
	lastEvents = lastWrite / 2          // timeout for the events that the bus has queued when the server closes
)

// tails are the running tails of a process.
type tails struct {
	bus    *bus.Bus
	slots  chan struct{}   // has room for one more tail
	ending context.Context // ends when the server closes
}

// serve streams the events of a pattern until the client disconnects, or the bus or
// the server ends. It refuses more than maxTails streams.
func (t tails) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	default:
		refuse(w, http.StatusServiceUnavailable, "mega.busy", fmt.Errorf("%d tails are in progress, the maximum", maxTails))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	q := &backlog{more: make(chan struct{}, 1)}
	sub, err := t.bus.Subscribe(ctx, r.FormValue("pattern"), q.push, bus.Name("admin tail"), bus.Site("the admin socket"))
	if err != nil {
		fail(w, err)
		return
	}
	defer sub.Stop()
	unbounded(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	out := newLines(w)
	defer context.AfterFunc(t.ending, out.to.shorten)()
	t.copy(ctx, out, q, sub)
}

// copy writes events until the reader disconnects, or the bus or the server
// ends. It first reports that the subscription is active.
func (t tails) copy(ctx context.Context, out *lines, q *backlog, sub *bus.Sub) {
	for last := false; ; {
		if out.write(q.popAll()) != nil || last {
			return
		}
		select {
		case <-q.more:
		case <-sub.Done():
			last = true
		case <-t.ending.Done():
			drain(ctx, sub)
			last = true
		case <-ctx.Done():
			return
		}
	}
}

// drain ends the subscription after the events that were published before.
func drain(ctx context.Context, sub *bus.Sub) {
	ctx, cancel := context.WithTimeout(ctx, lastEvents)
	defer cancel()
	_ = sub.Drain(ctx) // a backend that does not answer delays the end no longer
}

// backlog is the bounded queue of events for the reader. It counts the events
// beyond its bounds, and never blocks the bus.
type backlog struct {
	more chan struct{} // has an element while the backlog is not empty

	mu     sync.Mutex // guards the fields below
	events []Event
	bytes  int
	missed int // messages that were lost after the last event of events
}

// push is the handler of the subscription. It never blocks and returns no error.
func (b *backlog) push(_ context.Context, m *bus.Msg) error {
	b.mu.Lock()
	b.missed = sum(b.missed, m.Missed)
	if size := sizeOf(m); len(b.events) < tailEvents && b.bytes+size <= tailBytes {
		b.events = append(b.events, Event{At: time.Now(), Subject: m.Subject, Headers: m.Header, Missed: b.missed, Data: newData(m.Data)})
		b.bytes += size
		b.missed = 0
	} else {
		b.missed = sum(b.missed, 1)
	}
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default: // already signalled
	}
	return nil
}

// sizeOf returns the number of bytes that a message has in the backlog.
func sizeOf(m *bus.Msg) int {
	size := len(m.Subject) + len(m.Data)
	for key, values := range m.Header {
		for _, v := range values {
			size += len(key) + len(v)
		}
	}
	return size
}

// sum adds numbers of missed events, where -1 is unknown.
func sum(a, b int) int {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

// popAll removes and returns the waiting events, and a last line if events were
// missed after them.
func (b *backlog) popAll() []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	if b.missed != 0 {
		events = append(events, Event{At: time.Now(), Missed: b.missed})
	}
	b.events, b.bytes, b.missed = nil, 0, 0
	return events
}

// lines writes values, one on each line.
type lines struct {
	to   *deadlineWriter
	text bytes.Buffer
	json *json.Encoder
}

func newLines(w http.ResponseWriter) *lines {
	l := &lines{to: withWriteDeadline(w, writeTime)}
	l.json = json.NewEncoder(&l.text)
	l.json.SetEscapeHTML(false)
	return l
}

// write writes and flushes the events. A reader that does not read before the
// timeout counts as disconnected.
func (l *lines) write(events []Event) error {
	for _, e := range events {
		l.text.Reset()
		if err := l.json.Encode(e); err != nil {
			return err
		}
		if _, err := l.to.Write(l.text.Bytes()); err != nil {
			return err
		}
	}
	l.to.extend()
	return http.NewResponseController(l.to).Flush()
}
