package driver

import (
	"sync"
	"time"
)

// sleep estimates how long a machine has slept from the drift between the time
// of day and the monotonic clock, where a system has no clock that counts sleep
// for a caller without cgo. A jump of the drift ahead counts as sleep: a wall
// clock that is set forward ends leases early, which is safe. A jump back counts
// as nothing, and the estimate never shrinks: Now must not run backward.
type sleep struct {
	mu     sync.Mutex // guards the fields below
	drift  time.Duration
	asleep time.Duration
}

// sleepJump is the smallest change of the drift that counts: a clock that is
// slewed by NTP changes it by far less between two looks.
const sleepJump = 100 * time.Millisecond

// after returns the estimate at a drift.
func (s *sleep) after(drift time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	jump := drift - s.drift
	if jump.Abs() >= sleepJump {
		s.drift = drift
		s.asleep += max(jump, 0)
	}
	return s.asleep
}
