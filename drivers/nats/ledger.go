package nats

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// ledger records the messages that were handed to the connection and not
// confirmed by the server, and those that were lost or refused. A message
// passes through three stretches: it is written, then handed over, then covered
// by a PING; the PONG confirms it. The messages in the stretches may be lost when
// the connection ends (S28).
type ledger struct {
	mu      sync.Mutex // guards the fields below
	written sequence   // the writer hands these over
	handed  sequence   // not covered by a PING
	pinged  sequence   // covered by the PING under way
	asked   time.Time  // when that PING was sent; zero if none is under way
	last    time.Time  // when the latest PING was sent
	window  window

	denials map[string]denial // of unconfirmed requests, by subject
	denied  map[string]bool   // subjects whose latest confirmed request was refused

	away     bool   // there is no connection
	holding  bool   // nothing more is handed to this connection
	resolved uint64 // messages from the first one on that were confirmed, lost or dropped
	pings    uint64 // PINGs that have begun
	pongs    uint64 // PINGs that were answered
	waiting  []*flush
	trouble  trouble // since the start
	reported trouble // when the last Flush began that reported everything before
}

// sequence describes consecutive messages.
type sequence struct {
	count           uint64 // of all messages, dropped ones too
	messages, bytes int    // of events and answers
	wire            int    // bytes on the connection
	largest         int    // size of the largest message
	requests        []request
}

func (p *sequence) add(other sequence) {
	p.count += other.count
	p.messages += other.messages
	p.bytes += other.bytes
	p.wire += other.wire
	p.largest = max(p.largest, other.largest)
	p.requests = append(p.requests, other.requests...)
}

// trouble counts the messages that did not reach the server, and those that it
// refused.
type trouble struct {
	messages, bytes, refused int
	err                      error // the latest cause
}

// since returns the difference to an earlier state as an error, or nil.
func (t trouble) since(earlier trouble) error {
	lost, bytes, refused := t.messages-earlier.messages, t.bytes-earlier.bytes, t.refused-earlier.refused
	switch {
	case lost > 0:
		return fmt.Errorf("%w: %d accepted messages (%d bytes) not confirmed, %d refused: %w", driver.ErrDisconnected, lost, bytes, refused, t.err)
	case refused > 0:
		return fmt.Errorf("%w: %d accepted messages: %w", driver.ErrRefused, refused, t.err)
	}
	return nil
}

// flush is a waiting call of Flush.
type flush struct {
	target uint64        // that many messages have to be resolved
	pings  uint64        // and so many PINGs have to be answered
	handed bool          // instead, the messages have to be handed over
	done   chan struct{} // closed then
}

// isDone reports whether the wait is over. Without a connection there is no PONG to
// wait for. The caller holds l.mu.
func (l *ledger) isDone(f *flush) bool {
	if f.handed {
		return f.target <= l.count()
	}
	return f.target <= l.resolved && (l.away || f.pings <= l.pongs)
}

// count returns how many messages were handed over. The caller holds l.mu.
func (l *ledger) count() uint64 { return l.resolved + l.pinged.count + l.handed.count }

// space returns how many more bytes may be handed over. It is negative after hold, and
// while the server leaves a PING unanswered for longer than patience, so that a dead
// connection falls silent and the watchdog detects it (S29). Without
// unconfirmed messages there is always space for one message.
func (l *ledger) space(now time.Time, patience time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holding || !l.asked.IsZero() && now.Sub(l.asked) > patience {
		return -1
	}
	unconfirmed := l.handed.wire + l.pinged.wire
	if unconfirmed == 0 {
		return maxWindow
	}
	return l.window.size(now) - unconfirmed
}

// begin records messages before they are handed over, and reports whether they may be.
func (l *ledger) begin(p sequence) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holding {
		return false
	}
	l.written = p
	return true
}

// hold makes the writer hand over nothing more until the next connection, and returns
// how many messages were or are being handed over.
func (l *ledger) hold() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holding = true
	return l.count() + l.written.count
}

// done records that p was handed over, and reports whether a PING is due.
func (l *ledger) done(p sequence) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = sequence{}
	l.handed.add(p)
	l.release()
	return l.handed.wire == p.wire || l.isUrgent(time.Now())
}

// isUrgent reports whether a PING should be sent at once: half of the window is
// used, a refused request or a Flush only waits for the PONG. The caller holds
// l.mu.
func (l *ledger) isUrgent(now time.Time) bool {
	if l.handed.wire >= l.window.size(now)/2 {
		return true
	}
	if len(l.denials) > 0 && slices.ContainsFunc(l.handed.requests, l.isReported) {
		return true
	}
	handed := l.count()
	return slices.ContainsFunc(l.waiting, func(f *flush) bool { return !f.handed && f.target <= handed && f.pings > l.pings })
}

// due returns when the next PING should be sent: at once, after a moment if
// something is unconfirmed, else after interval.
func (l *ledger) due(interval time.Duration) time.Time {
	const moment = 20 * time.Millisecond
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isUrgent(time.Now()):
		return time.Time{}
	case l.handed.count > 0:
		return l.last.Add(min(moment, interval))
	}
	return l.last.Add(interval)
}

// ping records that a PING is sent, which covers everything handed over.
func (l *ledger) ping() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pinged, l.handed = l.handed, sequence{requests: l.pinged.requests[:0]}
	l.asked = time.Now()
	l.last = l.asked
	l.pings++
}

// pong records that the PING was answered, which confirms the messages that it
// covers. It returns the requests among them that were refused. The caller has
// recorded all refusals that came before the PONG.
func (l *ledger) pong() []refusedRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.window.add(l.asked, time.Now(), l.pinged.wire)
	l.resolved += l.pinged.count
	refused := l.settle()
	l.pinged = sequence{requests: l.pinged.requests[:0]}
	l.asked = time.Time{}
	l.pongs = l.pings
	l.release()
	return refused
}

// release ends the waits whose condition holds. The caller holds l.mu.
func (l *ledger) release() {
	l.waiting = slices.DeleteFunc(l.waiting, func(f *flush) bool {
		if l.isDone(f) {
			close(f.done)
			return true
		}
		return false
	})
}

// cut records that the connection and its writer have ended, and returns the messages
// that may be lost. dropped is the number of those right behind them that no connection will send.
func (l *ledger) cut(err error, dropped uint64) (lost sequence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost.add(l.handed)
	lost.add(l.pinged)
	l.handed, l.pinged, l.asked, l.window = sequence{}, sequence{}, time.Time{}, window{}
	l.away = true
	clear(l.denied)
	clear(l.denials)
	l.resolved += lost.count + dropped
	l.lose(lost.messages, lost.bytes, err)
	l.release() // there is no PONG to wait for
	return lost
}

// restart records that there is a connection.
func (l *ledger) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away, l.holding, l.pongs = false, false, l.pings
}

// lose counts lost messages (S28). The caller holds l.mu.
func (l *ledger) lose(messages, bytes int, err error) {
	if messages > 0 {
		l.trouble.messages += messages
		l.trouble.bytes += bytes
		l.trouble.err = err
	}
}

// discard counts a message that no connection can carry.
func (l *ledger) discard(bytes int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose(1, bytes, err)
}

// confirmed waits until everything up to target is confirmed or lost, over any number
// of connections, and, if there is one, a PING that has begun after this call was
// answered. kick wakes the flusher.
func (l *ledger) confirmed(ctx context.Context, target uint64, kick func(), closing <-chan struct{}) error {
	return l.await(ctx, &flush{target: target}, kick, closing)
}

// passed waits until everything up to target was handed over.
func (l *ledger) passed(ctx context.Context, target uint64, closing <-chan struct{}) error {
	return l.await(ctx, &flush{target: target, handed: true}, func() {}, closing)
}

func (l *ledger) await(ctx context.Context, f *flush, kick func(), closing <-chan struct{}) error {
	f.done = make(chan struct{})
	l.mu.Lock()
	f.pings = l.pings + 1
	if l.isDone(f) {
		l.mu.Unlock()
		return nil
	}
	l.waiting = append(l.waiting, f)
	l.mu.Unlock()
	kick()
	select {
	case <-f.done:
		return nil
	case <-closing:
		return driver.ErrClosed
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(w *flush) bool { return w == f })
	return ctx.Err()
}

// open returns how many of the accepted messages are not resolved.
func (l *ledger) open(accepted uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return accepted - l.resolved
}

// isAway reports whether there is no connection, and everything that was handed to the
// last one is resolved.
func (l *ledger) isAway() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away
}

// state returns the losses and denials so far, and those that were reported.
func (l *ledger) state() (all, reported trouble) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble, l.reported
}

// report returns an error about the losses and denials that were not reported when this
// Flush began, or nil (S28). all and reported are the results of state at that time. The
// next Flush reports later losses and denials again. incomplete means that this Flush was
// interrupted; the next one then reports everything again.
func (l *ledger) report(all, reported trouble, incomplete bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !incomplete && all.messages >= l.reported.messages && all.refused >= l.reported.refused {
		l.reported = all
	}
	return l.trouble.since(reported)
}
