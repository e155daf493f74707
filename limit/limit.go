package limit

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/megaframework/mega/limit/driver"
	lockdriver "github.com/megaframework/mega/lock/driver"
)

// The bounds of the arguments of a call.
const (
	MaxKey    = lockdriver.MaxKey // bytes
	MaxRates  = driver.MaxRates
	MaxN      = driver.MaxN
	MinPer    = driver.MinPer
	MaxPer    = driver.MaxPer
	MaxSlack  = time.Hour
	MaxPause  = 31 * 24 * time.Hour
	MaxReason = 512 // of a Pause, in bytes
)

// Limit is what a key allows. All callers of a key should use the same Limit: a
// log of grants belongs to a key and a Per, so another N counts from the next
// call on, and another Per starts with an empty window. A Limit is not changed
// after its first use.
type Limit struct {
	// Rates must all allow a call: 1 to MaxRates, with different Per.
	Rates []Rate
	// Smooth spaces calls by Per/N for each unit, instead of allowing a whole
	// window's worth at once. With several rates the longest Per/N counts.
	Smooth bool
	// Slack lengthens each Per by the jitter on the way to the limited resource,
	// 0 to MaxSlack: calls that leave in two windows may arrive in one.
	Slack time.Duration
	// Concurrent, if it is not 0, is how many callers of Wait and With may be
	// between the grant and the end of their work at once, at most lock.MaxSlots.
	// It needs Config.Locker, and Outage does not apply to it: a call whose slot the
	// Locker cannot give returns ErrUnavailable.
	Concurrent int
	// Outage decides about calls while the backend does not answer. Default:
	// Closed.
	Outage Outage
}

// Rate allows N units in every interval of length Per, wherever it begins: N is 1
// to MaxN and Per is MinPer to MaxPer.
type Rate = driver.Rate

// PerSecond returns the rate of n units per second.
func PerSecond(n int) Rate { return Rate{N: n, Per: time.Second} }

// PerMinute returns the rate of n units per minute.
func PerMinute(n int) Rate { return Rate{N: n, Per: time.Minute} }

// PerHour returns the rate of n units per hour.
func PerHour(n int) Rate { return Rate{N: n, Per: time.Hour} }

// PerDay returns the rate of n units in any 24 hours.
func PerDay(n int) Rate { return Rate{N: n, Per: 24 * time.Hour} }

// Outage is a policy for calls while the backend does not answer (W11). What it
// allows is marked as Degraded and counted, and the outage is reported once.
type Outage float64

// The policies without a share.
const (
	// Closed refuses calls with ErrUnavailable, within a second.
	Closed Outage = 0
	// Open allows calls.
	Open Outage = -1
)

// Share lets each process allow the part f of each rate by itself, 0 < f <= 1,
// rounded down and at least 1. With n processes that use a key, 1/n keeps the
// rate during the outage, unless it is less than n units or calls cost more than
// this part: such a call counts as the whole part, because it could never be
// allowed otherwise. The parts begin empty and the backend does not learn of them,
// so an interval with the beginning or the end of the outage may have twice the
// rate.
func Share(f float64) Outage {
	if !(f > 0) { // else 0 would be Closed, and -1 Open
		return Outage(math.NaN()) // refused by the first call, as more than 1 is
	}
	return Outage(f)
}

// String returns "closed", "open" or "share(0.25)".
func (o Outage) String() string {
	switch o {
	case Closed:
		return "closed"
	case Open:
		return "open"
	}
	return fmt.Sprintf("share(%v)", float64(o))
}

// check refuses a limit that is out of bounds (W15).
func (m *Limit) check() error {
	if fault := driver.RatesFault(m.Rates); fault != "" {
		return invalidOption("%s", fault)
	}
	switch {
	case m.Slack < 0 || m.Slack > MaxSlack:
		return invalidOption("Slack is %v, want 0 to %v", m.Slack, MaxSlack)
	case m.Concurrent < 0 || m.Concurrent > maxConcurrent:
		return invalidOption("Concurrent is %d, want 0 to %d", m.Concurrent, maxConcurrent)
	case m.Outage != Closed && m.Outage != Open && !(m.Outage > 0 && m.Outage <= 1):
		return invalidOption("Outage is %v, want Closed, Open or Share(f) with 0 < f <= 1", m.Outage)
	}
	return nil
}

// smallest returns the smallest N, the largest cost.
func (m *Limit) smallest() int {
	n := m.Rates[0].N
	for _, r := range m.Rates[1:] {
		n = min(n, r.N)
	}
	return n
}

// effective returns the rates for the driver: with the slack, in whole
// microseconds.
func (m *Limit) effective() []Rate {
	if m.Slack == 0 && !slices.ContainsFunc(m.Rates, func(r Rate) bool { return r.Per != micros(r.Per) }) {
		return m.Rates
	}
	rates := slices.Clone(m.Rates)
	for i := range rates {
		rates[i].Per = micros(rates[i].Per) + micros(m.Slack) // rates that differ stay different
	}
	return rates
}

// micros rounds d up to microseconds, so that a window is never shorter.
func micros(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// equal reports whether both limits allow the same.
func (m *Limit) equal(other *Limit) bool {
	return m.Smooth == other.Smooth && m.Slack == other.Slack && slices.Equal(m.Rates, other.Rates)
}
