package console

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// The bounds of the streams. All streams of a page with the same query share
// its renderings, so that a further reader costs no further calls.
const (
	MaxStreams     = 16
	maxRenders     = 2                // at a time
	renderInterval = time.Second      // between two renderings of a page
	aliveInterval  = 5 * time.Second  // between two signs of life; the page waits three times as long
	writeTime      = 10 * time.Second // for a browser that does not read
)

// streams are the open streams.
type streams struct {
	slots   chan struct{} // has room for one more stream
	renders chan struct{} // has room for one more rendering

	mu     sync.Mutex // guards shared, and readers of each
	shared map[string]*shared
}

// shared is the last rendering of a page for all its streams.
type shared struct {
	readers int

	mu   sync.Mutex // guards the fields below; held while one reader renders
	next time.Time  // when the next rendering is due
	html []byte
}

func isStream(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream")
}

// stream sends the live part of a page whenever it has changed, until the
// browser disconnects or the console ends. It runs on the goroutine of the
// request and starts no other.
func (c *Console) stream(w http.ResponseWriter, r *http.Request, p page) {
	select {
	case c.streams.slots <- struct{}{}:
		defer func() { <-c.streams.slots }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, "the console has too many open pages", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.ending, cancel)()
	s, leave := c.streams.join(p.path + "?" + r.URL.Query().Encode())
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	c.follow(ctx, w, func() []byte { return c.rendered(ctx, s, p, r.URL.Query()) })
}

// follow writes each rendering that differs from the one before.
func (c *Console) follow(ctx context.Context, w http.ResponseWriter, render func() []byte) {
	out := http.NewResponseController(w)
	var last []byte
	written := time.Now()
	tick := time.NewTicker(renderInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		var event []byte
		if html := render(); html != nil && !bytes.Equal(html, last) {
			event, last = newEvent(html), html
		} else if time.Since(written) >= aliveInterval {
			event = []byte("event: alive\ndata:\n\n") // a script does not see comments
		}
		if event != nil {
			_ = out.SetWriteDeadline(time.Now().Add(writeTime)) // a recorder in a test has none
			if _, err := w.Write(event); err != nil || out.Flush() != nil {
				return
			}
			written = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// newEvent returns an event of a stream. Each line of its text has a prefix.
func newEvent(html []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(html) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// join returns the rendering that the streams of a page share. leave must be called
// once; the last call removes the rendering.
func (s *streams) join(key string) (joined *shared, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	joined = s.shared[key]
	if joined == nil {
		joined = &shared{}
		if s.shared == nil {
			s.shared = map[string]*shared{}
		}
		s.shared[key] = joined
	}
	joined.readers++
	return joined, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if joined.readers--; joined.readers == 0 {
			delete(s.shared, key)
		}
	}
}

// rendered returns the live part of a page, at most renderInterval old, or nil if
// ctx has ended. After a slow rendering the next one is due later, so that a slow
// backend is not called all the time.
func (c *Console) rendered(ctx context.Context, s *shared, p page, query url.Values) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if began.Before(s.next) {
		return s.html
	}
	select {
	case c.streams.renders <- struct{}{}:
		defer func() { <-c.streams.renders }()
	case <-ctx.Done():
		return nil
	}
	html, err := c.render(ctx, p, query)
	if err != nil || ctx.Err() != nil { // a call that was cut off would be shown as an error
		return nil
	}
	took := time.Since(began)
	s.html, s.next = html, began.Add(max(renderInterval-renderInterval/10, 4*took))
	return html
}
