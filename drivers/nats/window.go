package nats

import "time"

// The bounds of the data that was handed to the client and that the server has
// not confirmed (S29).
const (
	minWindow = 64 << 10
	maxWindow = 4 << 20
)

// slots is how many parts the last second has.
const slots = 10

// window estimates how much a link carries in a second: the bytes that the
// server confirmed in the last one. A new link starts at the lower bound, and
// each confirmation of a full window doubles it, until the link is the limit.
type window struct {
	confirmed [slots]int // bytes, by tenth of a second
	last      int64      // the tenth of a second of the latest entry
}

func tenth(now time.Time) int64 { return now.UnixMilli() / (1000 / slots) }

// add enters bytes that were confirmed now.
func (w *window) add(now time.Time, bytes int) {
	w.pass(tenth(now))
	w.confirmed[w.last%slots] += bytes
}

// size returns how much may be unconfirmed now.
func (w *window) size(now time.Time) int {
	w.pass(tenth(now))
	sum := 0
	for _, bytes := range w.confirmed {
		sum += bytes
	}
	return min(max(sum, minWindow), maxWindow)
}

// pass forgets what is older than a second. A clock that steps back changes
// nothing.
func (w *window) pass(now int64) {
	for skipped := 0; w.last < now && skipped < slots; skipped++ {
		w.last++
		w.confirmed[w.last%slots] = 0
	}
	w.last = max(w.last, now)
}
