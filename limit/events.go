package limit

import (
	"errors"
	"time"
)

// Observer receives the events of a [Limiter]. Observe is called synchronously,
// from several goroutines at once and outside all locks; it must not block. A
// panic in it is caught and dropped.
type Observer interface {
	Observe(Event)
}

// Event is one of the event types of this package. More may be added.
type Event interface{ event() }

type (
	// Granted: a call was allowed. Waited is the time in Wait or With.
	Granted struct {
		Key      string
		Cost     int
		Waited   time.Duration
		Degraded bool
	}
	// Refused: a call was not allowed. Local is set if this process remembered
	// the refusal of an earlier call. Err is the error of the call, and nil for an
	// Allow that is answered: an outage refuses a call whose Outage is Closed.
	Refused struct {
		Key        string
		Cost       int
		By         Rate
		RetryAfter time.Duration
		Local      bool
		Err        error
	}
	// Settled: the units of a grant were corrected from Cost to Actual.
	Settled struct {
		Key          string
		Cost, Actual int
	}
	// Paused: this process has paused a key.
	Paused struct {
		Key    string
		For    time.Duration
		Reason string
	}
	// WasReset: this process has reset a key.
	WasReset struct{ Key string }
	// Unavailable: the backend has stopped answering, for the reason in Err. It
	// is reported once, and ends with Available.
	Unavailable struct{ Err error }
	// Available: the backend answers again; After is the length of the outage,
	// and Degraded the number of calls that the Outage of their limits has
	// allowed during it.
	Available struct {
		After    time.Duration
		Degraded uint64
	}
)

func (Granted) event()     {}
func (Refused) event()     {}
func (Settled) event()     {}
func (Paused) event()      {}
func (WasReset) event()    {}
func (Unavailable) event() {}
func (Available) event()   {}

// granted counts and reports a call that was allowed.
func (l *Limiter) granted(c *call, waited time.Duration, degraded bool) {
	l.counters.allowed.Add(1)
	if degraded {
		l.counters.degraded.Add(1)
	}
	if l.config.Observer != nil {
		l.observe(Granted{Key: c.key, Cost: c.cost, Waited: waited, Degraded: degraded})
	}
}

// refused counts and reports a refusal of Allow.
func (l *Limiter) refused(c *call, r Result, local bool) {
	l.counters.refused.Add(1)
	if local {
		l.counters.local.Add(1)
	}
	if l.config.Observer != nil {
		l.observe(Refused{Key: c.key, Cost: c.cost, By: r.By, RetryAfter: r.RetryAfter, Local: local})
	}
}

// unavailable counts and reports an Allow that an outage refuses.
func (l *Limiter) unavailable(c *call, err error) {
	if c.cost == 0 || !errors.Is(err, ErrUnavailable) {
		return
	}
	l.counters.refused.Add(1)
	l.observe(Refused{Key: c.key, Cost: c.cost, Err: err})
}

// observe passes e to the observer, if there is one. It must be called without
// any mutex held.
func (l *Limiter) observe(e Event) {
	if l.config.Observer == nil {
		return
	}
	defer func() { _ = recover() }()
	l.config.Observer.Observe(e)
}
