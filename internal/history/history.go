// Package history records what the users of a lock in several processes did
// and were told, and checks it afterwards, in two ways that catch different
// faults.
//
// [History.CheckServer] asks whether the answers could have come from one lock
// server that did one thing at a time. [History.CheckBeliefs] asks what the
// users care for: whether two of them were ever sure of the same lock at the
// same instant.
//
// A [Recorder] writes what one process did as lines of JSON, each before the
// process goes on, so that a process that is killed leaves its history behind.
// All times are nanoseconds of a clock that all processes of a machine share.
package history

import (
	"fmt"
	"math"
	"time"
)

// Kind is what an operation does.
type Kind string

// The kinds of operations.
const (
	Acquire Kind = "acquire"
	Extend  Kind = "extend"
	Release Kind = "release"
	Force   Kind = "force"
	// Forget is no call of a user: the backend may have lost what it knew, and
	// be back with something older, as after FLUSHALL or a failover to a
	// replica that was behind.
	Forget Kind = "forget"
)

// Outcome is what the caller was told.
type Outcome string

// The outcomes. An operation without one was cut off with its process.
const (
	OK      Outcome = "ok"
	Busy    Outcome = "busy" // the wait was over
	Lost    Outcome = "lost" // the lease was gone
	Unknown Outcome = "unknown"
)

// Never is the Return of an operation that was never answered.
const Never = math.MaxInt64

// Op is one call, from the caller's point of view.
type Op struct {
	Client  string  `json:"client"` // who called: one call at a time
	Kind    Kind    `json:"kind"`
	Key     string  `json:"key"`
	Slots   int     `json:"slots,omitempty"` // the size of the pool asked for
	Call    int64   `json:"call"`
	Return  int64   `json:"return,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	// What an acquire granted, and which lease the others mean.
	Token string `json:"token,omitempty"`
	Fence uint64 `json:"fence,omitempty"`
	Slot  int    `json:"slot,omitempty"`
	// Deadline is until when the caller was told to be sure of the lease; for a
	// release, what it was told last.
	Deadline int64  `json:"deadline,omitempty"`
	Err      string `json:"error,omitempty"`
}

func (o Op) String() string {
	s := fmt.Sprintf("%s: %s %q", o.Client, o.Kind, o.Key)
	if o.Token != "" {
		s += fmt.Sprintf(" lease %.6s fence %d slot %d", o.Token, o.Fence, o.Slot)
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

// Belief is how long a client was sure of a lease: from when it was told until
// its context ended, its last deadline passed or it called Release, whichever
// came first.
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

// History is what happened, in no particular order.
type History struct {
	Ops     []Op
	Beliefs []Belief
}

// at prints a time in seconds: only differences of the clock mean something,
// and milliseconds are what one looks for.
func at(ns int64) string {
	if ns == Never {
		return "never"
	}
	return fmt.Sprintf("%.6fs", time.Duration(ns).Seconds())
}
