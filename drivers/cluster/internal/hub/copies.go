package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// limitCopy is the copy of the limits that a client has, as far as the hub knows
// it. It is guarded by hubLimits.mu.
type limitCopy struct {
	behind    map[string]struct{} // the keys of which the client may lack something
	reporting bool                // the client's report has begun
	awaited   bool                // calls wait for its end
	whole     bool                // the report has ended: the client is sent what it lacks
	sending   bool                // a goroutine sends it
	// reset are the keys that were reset before the end of the report, which may
	// still have what the client knew before.
	reset map[string]struct{}
}

// outdated reports whether a record of the key may be older than a Reset, or than
// the end of the client's report: later ones come from this hub.
func (c *limitCopy) outdated(key string) bool {
	_, reset := c.reset[key]
	return reset || c.whole
}

// forgotten records that the key was reset.
func (c *limitCopy) forgotten(key string) {
	if c.whole {
		return
	}
	if c.reset == nil {
		c.reset = make(map[string]struct{})
	}
	c.reset[key] = struct{}{}
}

// limitReport is the state of the reports of all clients to a new hub. It is
// guarded by hubLimits.mu.
type limitReport struct {
	running int           // the awaited clients whose reports have not ended
	moved   time.Time     // when the last record arrived
	over    chan struct{} // closed when running is 0 again
	// known are the records that the table has, word for word, with their keys.
	// Usually all clients report the same, which is decoded once. texts are the
	// same by key. Both are nil without a report.
	known map[string]string
	texts map[string]string
	// wanted are the keys that calls need before the end of the reports.
	wanted map[string]*wantedKey
}

// wantedKey is a key that the awaited clients have been asked for. It is guarded by
// hubLimits.mu.
type wantedKey struct {
	from map[*limitCopy]struct{} // the copies that have not reported the key
	over chan struct{}           // closed when all have
}

// given records that a copy has reported the key.
func (w *wantedKey) given(copied *limitCopy) {
	if _, awaited := w.from[copied]; !awaited {
		return
	}
	if delete(w.from, copied); len(w.from) == 0 {
		close(w.over)
	}
}

// recordsPart is the number of bytes of records that may wait for a client: answers
// do not wait behind more.
const recordsPart = 128 << 10

// reportBound is the maximum time for which the calls of all clients wait for the
// next record of one that reports.
const reportBound = 500 * time.Millisecond

// introduce sends a new client what it lacks, after its report.
func (h *hubLimits) introduce(c *Client) {
	if !h.copied {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	copied := &limitCopy{behind: make(map[string]struct{})}
	for _, key := range h.table.Keys() {
		copied.behind[key] = struct{}{}
	}
	h.copies[c] = copied
}

// forget ends the copy of a client that has gone.
func (h *hubLimits) forget(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if copied := h.copies[c]; copied != nil {
		h.end(copied)
		delete(h.copies, c)
	}
}

// begin handles the begin of a client's report. Calls wait for it if the hub is new:
// a client that comes back later does not delay the others.
func (h *hubLimits) begin(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	copied := h.copies[c]
	if copied == nil || copied.reporting || copied.whole {
		return
	}
	copied.reporting, copied.awaited = true, h.hub.isShut() || h.met != nil && !protocol.IsClosed(h.met)
	if !copied.awaited {
		return
	}
	if h.report.running == 0 {
		h.report.over = make(chan struct{})
	}
	h.report.running++
	h.report.moved = time.Now()
}

// end ends the report of a copy. The caller holds h.mu.
func (h *hubLimits) end(copied *limitCopy) {
	awaited := copied.awaited
	copied.reporting, copied.awaited = false, false
	if !awaited {
		return
	}
	for _, w := range h.report.wanted {
		w.given(copied)
	}
	if h.report.running--; h.report.running == 0 {
		close(h.report.over)
		h.report.known, h.report.texts, h.report.wanted = nil, nil, nil
	}
}

// reported handles the end of a client's report.
func (h *hubLimits) reported(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if copied := h.copies[c]; copied != nil {
		h.end(copied)
		copied.whole, copied.reset = true, nil
		h.complete(c, copied)
	}
}

// leasesReported handles the end of the report of a client's leases: a client
// without limits, or of an earlier build, has reported all.
func (h *hubLimits) leasesReported(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if copied := h.copies[c]; copied != nil && !copied.reporting {
		copied.whole, copied.reset = true, nil
		h.complete(c, copied)
	}
}

// given handles a client's answer to the question for a key.
func (h *hubLimits) given(c *Client, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.moved = time.Now()
	if w, copied := h.report.wanted[key], h.copies[c]; w != nil && copied != nil {
		w.given(copied)
	}
}

// keyOf returns the only key that a call needs, or an empty string.
func keyOf(name string, body []byte) string {
	switch name {
	case protocol.LimitTake, protocol.LimitWithdraw, protocol.LimitSettle, protocol.LimitInspect:
		var of struct{ Key string }
		_ = json.Unmarshal(body, &of) // the call itself fails
		return of.Key
	}
	return "" // Reset and Pause, too: a record that is on its way would undo a Reset
}

// want returns the state of a key, after asking the awaited clients for it. The
// caller holds h.mu, and flushes b.
func (h *hubLimits) want(b *batch, key string) *wantedKey {
	w := h.report.wanted[key]
	if w != nil {
		return w
	}
	w = &wantedKey{from: make(map[*limitCopy]struct{}), over: make(chan struct{})}
	for c, copied := range h.copies {
		if copied.awaited {
			w.from[copied] = struct{}{}
			b.send(c, protocol.Begin(protocol.LimitWanted).String(key))
		}
	}
	if h.report.wanted == nil {
		h.report.wanted = make(map[string]*wantedKey)
	}
	h.report.wanted[key] = w
	return w
}

// reports waits until all clients have reported what they know from an earlier hub:
// of the key of the call, or of all keys if it needs more than one. A client that
// stops within its report delays the others by reportBound.
func (h *hubLimits) reports(ctx context.Context, name string, body []byte) error {
	if err := h.meets(ctx); err != nil {
		return err
	}
	for {
		var b batch
		h.mu.Lock()
		running, over, stalls := h.report.running, h.report.over, time.Until(h.report.moved.Add(reportBound))
		if running > 0 && stalls > 0 {
			if key := keyOf(name, body); key != "" {
				w := h.want(&b, key)
				running, over = len(w.from), w.over
			}
		}
		h.mu.Unlock()
		b.flush()
		if running == 0 || stalls <= 0 {
			return nil
		}
		select {
		case <-over:
		case <-time.After(stalls):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// meets waits until the clients of an earlier hub are back (W1).
// It fails when the caller has given up: the call would count for nobody.
func (h *hubLimits) meets(ctx context.Context) error {
	if h.met == nil || protocol.IsClosed(h.met) {
		return nil
	}
	select {
	case <-h.met:
		return nil
	case <-time.After(driver.CallTimeout):
		return errors.New("a client of the last hub has not reported its limits")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restore adds what a client knows from an earlier hub, and sends the other
// copies what is new. All copies then have the same past, so that the copy with
// the latest news is complete.
func (h *hubLimits) restore(c *Client, d *protocol.Decoder) error {
	text := d.Rest()
	if h.knows(c, text) {
		return nil
	}
	var r windows.Record
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("decode a limit: %w", err)
	}
	if err := protocol.CheckLimitRecord(&r); err != nil {
		return fmt.Errorf("a limit: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if copied := h.copies[c]; copied != nil && copied.outdated(r.Key) {
		return nil
	}
	news, err := h.table.Restore(r)
	if err != nil {
		return err
	}
	whole := h.note(r.Key, text)
	for other, copied := range h.copies {
		switch {
		case other != c && !news:
			continue
		case other == c && whole:
			delete(copied.behind, r.Key)
			continue
		}
		copied.behind[r.Key] = struct{}{}
		h.complete(other, copied)
	}
	return nil
}

// knows reports whether the table has all of a record that c reports. c lacks
// nothing of it then.
func (h *hubLimits) knows(c *Client, text []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.moved = time.Now()
	key, known := h.report.known[string(text)]
	if copied := h.copies[c]; known && copied != nil && !copied.outdated(key) {
		delete(copied.behind, key)
	}
	return known
}

// note records that the table has the record with that text, and reports whether
// it has nothing else of the key. The caller holds h.mu.
func (h *hubLimits) note(key string, text []byte) (whole bool) {
	own := h.table.RecordsOf(key)
	if len(own) == 1 {
		mine, err := json.Marshal(&own[0])
		whole = err == nil && string(mine) == string(text)
	}
	if h.report.running == 0 {
		return whole
	}
	if h.report.known == nil {
		h.report.known, h.report.texts = make(map[string]string), make(map[string]string)
	}
	h.forgetText(key) // another client had less
	if whole {
		same := string(text)
		h.report.known[same], h.report.texts[key] = key, same
	}
	return whole
}

// forgetText records that the table may have more of a key than clients have
// reported. The caller holds h.mu.
func (h *hubLimits) forgetText(key string) {
	delete(h.report.known, h.report.texts[key])
	delete(h.report.texts, key)
}

// complete sends c the records that it lacks, unless its own report follows. The
// caller holds h.mu.
func (h *hubLimits) complete(c *Client, copied *limitCopy) {
	if !copied.whole || copied.sending || len(copied.behind) == 0 {
		return
	}
	copied.sending = true
	c.copying.Go(func() { // ends with the line
		for c.line.Room(context.Background(), recordsPart) == nil && h.sendPart(c, copied) {
			c.line.Flush()
		}
		c.line.Flush()
	})
}

// sendPart queues records that a client lacks, and reports whether more are left.
func (h *hubLimits) sendPart(c *Client, copied *limitCopy) (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	size := 0
	for key := range copied.behind {
		if size >= recordsPart {
			return true
		}
		delete(copied.behind, key)
		for _, r := range h.table.RecordsOf(key) {
			f, err := protocol.AddJSON(protocol.Begin(protocol.LimitRecord), r)
			if err != nil {
				continue // it has numbers and texts
			}
			size += f.Len()
			_ = c.line.Queue(f, 0) // Room reports the end of the line
			f.Free()
		}
	}
	copied.behind, copied.sending = make(map[string]struct{}), false
	return false
}
