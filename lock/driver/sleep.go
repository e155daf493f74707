package driver

import (
	"sync"
	"time"
)

// sleep estimates the sleep time of a machine from the drift between the time
// of day and the monotonic clock. It is for systems without a clock that counts
// sleep and can be read without cgo. A forward jump of the drift counts as
// sleep: a wall clock that is set forward ends leases early, which is safe. A
// backward jump is ignored, and the estimate never shrinks: Now must not run
// backward.
type sleep struct {
	mu     sync.Mutex // guards the fields below
	drift  time.Duration
	asleep time.Duration
}

// sleepJump is the smallest change of the drift that counts as a jump: NTP
// slewing changes the drift by far less between two calls.
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
