package driver

import (
	"context"
	"time"
)

// Runner is an optional interface of a Driver that records runs: work that
// starts at most once per key and tick. The front holds a grant of the key
// during all calls for it.
//
// A driver whose Info().Lacks has O1 may implement it and refuse its calls with
// ErrUnsupported.
type Runner interface {
	// BeginRun starts a run under the live grant g, if it is due. The tick is
	// floor(now / every), where now is the backend's clock in this operation,
	// in microseconds since 1970.
	//
	// The run is due if its tick is newer than the one stored, or if the stored
	// one is more than one ahead (O1). Then the run is recorded as the last run
	// of the key, and, if spend is set, its tick is stored. In any case the
	// result has Tick, Every and Left.
	//
	// g.Fence identifies the run: a second call with the fence of the last run
	// returns that run again (L6). The error wraps ErrLost if g is not live.
	BeginRun(ctx context.Context, g Grant, every time.Duration, spend bool) (Run, error)

	// EndRun stores the tick of r, and its outcome if r is still the last run of
	// the key and has no outcome. The error wraps ErrLost if g is not live.
	EndRun(ctx context.Context, g Grant, r Run) error
}

// Run is one run of a key's work.
type Run struct {
	Tick    int64         `json:"tick"` // ticks of Every since 1970 UTC
	Every   time.Duration `json:"every"`
	Fence   uint64        `json:"fence"`
	Start   time.Time     `json:"start"` // on the backend's clock, as End
	End     time.Time     `json:"end,omitzero"`
	Outcome Outcome       `json:"outcome,omitempty"`
	By      Holder        `json:"by"`
	// Skipped is the reason why the record of the last run cannot be read, or empty.
	// A skipped run has no other value.
	Skipped string `json:"skipped,omitempty"`

	Due  bool          `json:"-"` // BeginRun: the run has been started
	Left time.Duration `json:"-"` // BeginRun: until the next tick, on the backend's clock
}

// Outcome is the end of a run. A run without one is in progress, or its process
// has crashed, or has lost its lease.
type Outcome string

// The outcomes.
const (
	Done   Outcome = "done"   // the function returned nil
	Failed Outcome = "failed" // the function returned an error, or did not return
)

// TickStart returns the time at which the tick of r began.
func (r *Run) TickStart() time.Time { return time.UnixMicro(r.Tick * r.Every.Microseconds()) }

// TickAt returns the tick of the time now, and the time that is left until the
// next one.
func TickAt(now time.Time, every time.Duration) (tick int64, left time.Duration) {
	us, step := now.UnixMicro(), every.Microseconds()
	tick = us / step
	return tick, time.Duration((tick+1)*step-us) * time.Microsecond
}

// IsDue reports whether a run in the tick of r is due after the newest stored
// tick, which began at last. A stored tick of another interval counts by its
// start, so that a new interval does not repeat the work of the present tick.
func (r *Run) IsDue(last time.Time) bool {
	start := r.TickStart()
	return start.After(last) || last.Sub(start) > r.Every // O1
}
