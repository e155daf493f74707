package driver

import "time"

// Now is the present on a clock that goes on while the machine sleeps, which
// the one behind time.Now does not everywhere: backends count a TTL through a
// suspend, so their clients have to as well. Its difference to another Now,
// or to a Deadline, is what counts; it is not the time of day.
//
// It is monotonic and safe for concurrent use. On Linux it costs three system
// calls, about half a microsecond.
func Now() time.Time { return time.Now().Add(asleep()) }

// Margin is how much earlier than the backend a holder stops believing in a
// grant of ttl: 2 ms for scheduling, and a fiftieth for clocks whose rates
// differ.
func Margin(ttl time.Duration) time.Duration { return 2*time.Millisecond + ttl/50 }

// Deadline is until when a grant of ttl is surely live if the request that
// made it so was sent at sent, a value of Now taken before it left. When the
// reply came does not matter: the backend may have started to count as soon as
// the request was on its way.
func Deadline(sent time.Time, ttl time.Duration) time.Time { return sent.Add(ttl - Margin(ttl)) }
