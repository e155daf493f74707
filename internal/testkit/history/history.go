// Package history records the calls and results of a lock's users in several
// processes, and checks them afterwards, in two ways that find different
// faults.
//
// [History.CheckServer] checks whether one lock server that executes one
// operation at a time could have given these answers. [History.CheckBeliefs]
// checks the users' requirement: that no two of them were ever sure of the same
// lock at the same instant. [History.CheckRuns] checks that no tick had two runs.
//
// A [Recorder] writes each call of a process as a line of JSON before the
// process continues, so that a killed process leaves its history behind. All
// times are nanoseconds of a clock that all processes of a machine share.
package history

import (
	"fmt"
	"math"
	"time"

	"github.com/megaframework/mega/lock"
)

// Kind is the kind of an operation.
type Kind string

// The kinds of operations.
const (
	Acquire Kind = "acquire"
	Extend  Kind = "extend"
	Release Kind = "release"
	Force   Kind = "force"
	Heal    Kind = "heal"
	// Run is no call: the work of a tick has begun.
	Run Kind = "run"
	// Forget is not a call of a user: the backend may have lost its state, and
	// returned with an older one, as after FLUSHALL or a failover to a replica
	// that was behind.
	Forget Kind = "forget"
)

// Outcome is the result that the caller received.
type Outcome string

// The outcomes. An operation without one was interrupted by the end of its
// process.
const (
	OK      Outcome = "ok"
	Busy    Outcome = "busy" // the wait timed out
	Lost    Outcome = "lost" // the lease was gone
	Unknown Outcome = "unknown"
)

// Clean is the Found of a slot that was handed back clean.
const Clean = "clean"

// Never is the Return of an operation that never returned.
const Never = math.MaxInt64

// Op is one call, from the caller's point of view.
type Op struct {
	Client  string  `json:"client"` // the caller, which makes one call at a time
	Kind    Kind    `json:"kind"`
	Key     string  `json:"key"`
	Slots   int     `json:"slots,omitempty"` // the size of the requested pool
	Call    int64   `json:"call"`
	Return  int64   `json:"return,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	// The lease that an acquire granted, or that another operation refers to.
	Token string `json:"token,omitempty"`
	Fence uint64 `json:"fence,omitempty"`
	Slot  int    `json:"slot,omitempty"`
	// Found is how an acquire found a slot that has a state: Clean, or the
	// reason why it was dirty. Handback is what a release made of such a slot;
	// empty if the caller knew that it had lost the slot.
	Found    string          `json:"found,omitempty"`
	Handback lock.SlotStatus `json:"handback,omitempty"`
	Tick     int64           `json:"tick,omitempty"` // of a run
	// Deadline is the time until which the caller could be sure of the lease;
	// for a release, the last deadline that the caller knew.
	Deadline int64  `json:"deadline,omitempty"`
	Err      string `json:"error,omitempty"`
}

func (o Op) String() string {
	s := fmt.Sprintf("%s: %s %q", o.Client, o.Kind, o.Key)
	if o.Token != "" {
		s += fmt.Sprintf(" lease %.6s fence %d slot %d", o.Token, o.Fence, o.Slot)
	}
	if o.Kind == Run {
		s += fmt.Sprintf(" tick %d", o.Tick)
	}
	if o.Found != "" {
		s += " found " + o.Found
	}
	if o.Handback != "" {
		s += " handed back " + string(o.Handback)
	}
	s += fmt.Sprintf(" -> %s [%s, %s]", o.Outcome, at(o.Call), at(o.Return))
	if o.Deadline != 0 {
		s += " until " + at(o.Deadline)
	}
	if o.Err != "" {
		s += " (" + o.Err + ")"
	}
	return s
}

// Belief is the period in which a client was sure of a lease: from the return
// of its call until its context ended, its last deadline passed or it called
// Release, whichever came first.
type Belief struct {
	Client     string
	Key, Token string
	Fence      uint64
	Slot       int
	From, To   int64
}

func (b Belief) String() string {
	return fmt.Sprintf("%s lease %.6s fence %d slot %d [%s, %s]", b.Client, b.Token, b.Fence, b.Slot, at(b.From), at(b.To))
}

// History is a set of operations and beliefs, in no particular order.
type History struct {
	Ops     []Op
	Beliefs []Belief
}

// at formats a time in seconds. Only differences of the clock are meaningful,
// and milliseconds are precise enough.
func at(ns int64) string {
	if ns == Never {
		return "never"
	}
	return fmt.Sprintf("%.6fs", time.Duration(ns).Seconds())
}
