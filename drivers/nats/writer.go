package nats

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// chunk is the number of messages, and about the number of bytes, that the
// writer hands over between two checks of the window.
const (
	chunkMessages = 256
	chunkBytes    = 32 << 10
)

// writer hands messages to the client of a link. Only the writer publishes.
type writer struct {
	bus  *Bus
	link *link
	msg  nats.Msg

	// The subject of the latest event, without and with its prefix, because
	// publishers often repeat a subject.
	subject, full string
	header        nats.Header // of the latest message
}

// write hands over the messages in the outbox, in order, as far as the window
// allows, until the link ends.
func (b *Bus) write(l *link) {
	w := &writer{bus: b, link: l, header: nats.Header{}}
	for {
		items := b.out.peek()
		switch {
		case len(items) == 0:
			if !l.wait(b.out.wake, nil) {
				return
			}
		case !w.transfer(items):
			return
		}
	}
}

// wait waits for a signal, or for the timer, and returns false if the link has
// ended.
func (l *link) wait(signal <-chan struct{}, timer <-chan time.Time) bool {
	select {
	case <-signal:
		return true
	case <-timer:
		return true
	case <-l.over:
		return false
	case <-l.ctx.Done():
		return false
	}
}

// transfer hands over some of the messages, once there is space in the window.
// It returns false if the link has ended.
func (w *writer) transfer(items []item) bool {
	space := w.bus.ledger.space(time.Now(), w.bus.config.ping)
	if space <= 0 { // S29
		wake(w.link.kick) // half of the window is used: the flusher requests a confirmation
		return w.link.wait(w.link.space, nil)
	}
	n, p := w.plan(items, space)
	if !w.bus.ledger.begin(p) {
		return true
	}
	done, exact := w.handAll(items[:n])
	if !exact {
		p = w.sequence(items[:done])
	}
	if w.bus.ledger.done(p) {
		wake(w.link.kick)
	}
	w.bus.out.drop(done)
	return done == n
}

// handAll gives the messages to the client until the link ends, and returns how
// many it took. exact is false if one of them could not be sent.
func (w *writer) handAll(items []item) (done int, exact bool) {
	exact = true
	for i := range items {
		switch it := &items[i]; {
		case it.skip:
		case !w.hand(it):
			return i, false
		default:
			exact = exact && !it.skip
		}
	}
	return len(items), exact
}

// plan returns how many of the messages make up a chunk, and their sequence.
func (w *writer) plan(items []item, space int) (n int, p sequence) {
	space = min(space, chunkBytes)
	now := time.Now()
	for n < len(items) && n < chunkMessages && (n == 0 || p.wire < space) {
		it := &items[n]
		it.skip = it.skip || w.isOver(it, now)
		w.enter(it, &p)
		n++
	}
	return n, p
}

// sequence returns the sequence of messages that the client has taken.
func (w *writer) sequence(items []item) (p sequence) {
	for i := range items {
		w.enter(&items[i], &p)
	}
	return p
}

// enter adds a message to a sequence.
func (w *writer) enter(it *item, p *sequence) {
	p.count += 1 + uint64(it.behind)
	switch {
	case it.skip:
		return
	case it.kind == driver.Request:
		p.requests = append(p.requests, request{id: it.special.m.ID, subject: w.name(it)})
	default:
		p.messages++
		p.bytes += int(it.size)
	}
	p.wire += it.wire()
	p.largest = max(p.largest, int(it.size))
}

// isOver reports whether a message must not be sent any more: an expired event
// (S24), or a request after the end of its connection, of its inbox, of its call
// or of its deadline (S12).
func (w *writer) isOver(it *item, now time.Time) bool {
	s := it.special
	if s == nil || it.kind == driver.Answer {
		return false
	}
	expired := !s.m.Deadline.IsZero() && !now.Before(s.m.Deadline)
	if it.kind == driver.Request {
		return expired || s.link != w.link || s.inbox.refused.Load() || s.ctx.Err() != nil
	}
	if expired {
		w.bus.notify(func(f driver.Front) { f.Expired(1) })
	}
	return expired
}

// hand gives a message to the client. It returns false if the link has ended
// before the message was handed over; the next link sends it.
func (w *writer) hand(it *item) bool {
	err := w.publish(it)
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrConnectionClosed):
		return false
	case errors.Is(err, nats.ErrMaxPayload):
		w.discard(it, &driver.TooLargeError{Subject: it.subject, Size: int(it.size), Limit: int(w.bus.limit.Load())})
	case w.link.isBroken(): // the message counts as handed over: a part may have been sent (S17, S28)
	default:
		w.discard(it, fmt.Errorf("%w: %w", driver.ErrRefused, err))
	}
	return true
}

func (w *writer) publish(it *item) error {
	switch {
	case int64(it.size) > w.bus.limit.Load():
		return nats.ErrMaxPayload // also a limit that the client does not know
	case it.special == nil && it.header == nil:
		return w.link.conn.Publish(w.name(it), it.data)
	}
	w.msg.Subject, w.msg.Data, w.msg.Reply, w.msg.Header = w.name(it), it.data, "", w.wire(it)
	if it.special != nil {
		w.msg.Reply = it.special.reply
	}
	return w.link.conn.PublishMsg(&w.msg)
}

// name returns the subject of a message on NATS. The subject of an answer
// already contains its prefix.
func (w *writer) name(it *item) string {
	if it.kind != driver.Event {
		return w.bus.prefixes[it.kind] + it.subject
	}
	if it.subject != w.subject {
		w.subject, w.full = it.subject, w.bus.prefixes[driver.Event]+it.subject
	}
	return w.full
}

// hasKeys reports whether the latest header has these keys and no others.
func (w *writer) hasKeys(header []pair) bool {
	for _, p := range header {
		if _, ok := w.header[p.key]; !ok {
			return false
		}
	}
	return len(w.header) == len(header)
}

// wire returns the header of a message on NATS, until the next call.
func (w *writer) wire(it *item) nats.Header {
	if !w.hasKeys(it.header) {
		clear(w.header) // as costly as the rest; publishers often repeat a header
	}
	for _, p := range it.header {
		w.header[p.key] = p.values
	}
	if it.special == nil {
		return w.header
	}
	m := it.special.m
	m.Header = driver.Header(w.header)
	header := nats.Header(m.Wire())
	if m.Err != nil {
		header = serviceError(header, m.Err)
	}
	return header
}

// discard reports a message that this connection cannot carry, because its
// limit has decreased while the message waited. The message is not retried
// (S17).
func (w *writer) discard(it *item, err error) {
	it.skip = true
	if it.kind == driver.Request {
		w.bus.notify(func(f driver.Front) { f.Fail(it.special.m.ID, err) })
		return
	}
	w.bus.ledger.discard(int(it.size), err)
	w.bus.notify(func(f driver.Front) { f.Lost(1, int(it.size), err) })
}

// confirm sends PINGs, one at a time, and records the PONGs, until the link
// ends. It sends a PING soon after messages were handed over, and periodically
// on a quiet connection.
func (b *Bus) confirm(l *link) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if wait := time.Until(b.ledger.due(b.config.ping)); wait > 0 {
			timer.Reset(wait)
			if !l.wait(l.kick, timer.C) {
				return
			}
			continue
		}
		b.ledger.ping()
		if l.conn.FlushTimeout(forever) != nil {
			<-l.over
			return
		}
		l.settle() // handles the refusals that came before the PONG
		b.measure(l)
		for _, r := range b.ledger.pong() {
			b.notify(func(f driver.Front) { f.Fail(r.id, r.err) })
		}
		wake(l.space)
	}
}

// forever is a timeout for calls that end with the connection.
const forever = 24 * time.Hour
