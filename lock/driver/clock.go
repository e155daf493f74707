package driver

import "time"

// Now is the present on a clock that goes on while the machine sleeps, which
// the one behind time.Now does not everywhere: backends count a TTL through a
// suspend, so their clients have to as well. Its difference to another Now,
// or to a Deadline, is what counts; it is not the time of day.
//
// It is monotonic, safe for concurrent use, and costs little more than
// time.Now.
func Now() time.Time {
	now := time.Now()
	return now.Add(asleep(now))
}

// start is what drifts are measured from.
var start = time.Now()

// drift is how far the time of day has run ahead of the monotonic clock since
// the process started: it moves when the machine sleeps, and when somebody
// sets the time of day.
func drift(now time.Time) time.Duration {
	return now.Round(0).Sub(start.Round(0)) - now.Sub(start)
}

// Margin is how much earlier than the backend a holder stops believing in a
// grant of ttl: 2 ms for scheduling, and a fiftieth for clocks whose rates
// differ.
func Margin(ttl time.Duration) time.Duration { return 2*time.Millisecond + ttl/50 }

// Deadline is until when a grant of ttl is surely live if the request that
// made it so was sent at sent, a value of Now taken before it left. When the
// reply came does not matter: the backend may have started to count as soon as
// the request was on its way.
func Deadline(sent time.Time, ttl time.Duration) time.Time { return sent.Add(ttl - Margin(ttl)) }
