package driver

import "time"

// Now returns the time on a clock that continues while the machine sleeps. The
// clock of time.Now does not on every system, but backends count a TTL through
// a suspend, so their clients must do so too. Only the difference to another
// Now or to a Deadline has a meaning; the value is not the time of day.
//
// The clock is monotonic. Now is safe for concurrent use and costs little more
// than time.Now.
func Now() time.Time {
	now := time.Now()
	return now.Add(asleep(now))
}

// start is the reference time of all drifts.
var start = time.Now()

// drift returns the lead of the time of day over the monotonic clock since the
// process started. It changes when the machine sleeps, and when the time of day
// is set.
func drift(now time.Time) time.Duration {
	return now.Round(0).Sub(start.Round(0)) - now.Sub(start)
}

// Margin returns how much earlier than the backend a holder treats a grant of
// ttl as expired: 2 ms for scheduling, and a fiftieth of ttl for clocks whose
// rates differ.
func Margin(ttl time.Duration) time.Duration { return 2*time.Millisecond + ttl/50 }

// Deadline returns the time until which a grant of ttl is surely live. sent is
// the value of Now before the request for the grant or its renewal was sent.
// The time of the reply does not matter: the backend may have started to count
// as soon as the request was sent.
func Deadline(sent time.Time, ttl time.Duration) time.Time { return sent.Add(ttl - Margin(ttl)) }
