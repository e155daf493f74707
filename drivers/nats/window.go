package nats

import "time"

// The bounds of the unconfirmed data that was handed to the client (S29).
const (
	minWindow = 64 << 10
	maxWindow = 4 << 20
)

// slots is the number of parts of the last second.
const slots = 10

// window estimates the bytes that a link carries in a second: the bytes that
// the server confirmed in the last second. A new link starts at the lower
// bound, and each confirmation of a full window doubles the window, until the
// link is the limit.
type window struct {
	confirmed [slots]int // bytes
	last      int64      // the number of the latest part
	start     time.Time  // of the first part
}

// slot is the length of a part.
const slot = time.Second / slots

// number returns the number of the part that t is in. It counts from the first
// use of the window, because the time of day may step.
func (w *window) number(t time.Time) int64 {
	if w.start.IsZero() {
		w.start = t
	}
	return slots + int64(t.Sub(w.start)/slot)
}

// add records confirmed bytes that the link has carried since the given time.
// It spreads them over that time, so that a large confirmation after a long
// wait is no burst.
func (w *window) add(since, now time.Time, bytes int) {
	w.pass(w.number(now))
	parts := max(w.last-w.number(since), 0) + 1
	for at := range min(parts, slots) {
		w.confirmed[(w.last-at)%slots] += int(int64(bytes) / parts)
	}
}

// size returns the number of bytes that may be unconfirmed now.
func (w *window) size(now time.Time) int {
	w.pass(w.number(now))
	sum := 0
	for _, bytes := range w.confirmed {
		sum += bytes
	}
	return min(max(sum, minWindow), maxWindow)
}

// pass removes data older than a second. A clock that steps back changes
// nothing.
func (w *window) pass(now int64) {
	for skipped := 0; w.last < now && skipped < slots; skipped++ {
		w.last++
		w.confirmed[w.last%slots] = 0
	}
	w.last = max(w.last, now)
}
