package plan

import (
	"fmt"

	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/lock/driver"
)

// Decisions contains the selected drivers of locks, messages and limits.
type Decisions struct{ Lock, Bus, Limit Decision }

// All returns the decisions, the most important first.
func (d Decisions) All() []Decision { return []Decision{d.Lock, d.Bus, d.Limit} }

// Decision is the choice of a driver for locks, messages or limits, with its reason. It
// depends only on the configuration and the surroundings of the process: a
// server that cannot be reached never changes it.
type Decision struct {
	Component  string      `json:"component"`           // "lock", "bus" or "limit"
	Chosen     string      `json:"chosen"`              // "redis", "nats", "cluster", "memory"
	Scope      string      `json:"scope"`               // the driver's scope: "process", "node", "fleet"
	Cache      string      `json:"cache,omitempty"`     // the alias of the redis
	Server     string      `json:"server,omitempty"`    // its address, without the password
	Namespace  string      `json:"namespace,omitempty"` // of the locks or limits; empty for none
	Format     string      `json:"format,omitempty"`    // the version of the driver's data format
	Why        string      `json:"why"`
	Key        string      `json:"key,omitempty"`   // the key that decided
	Origin     string      `json:"origin"`          // the origin of that key
	Candidates []Candidate `json:"candidates"`      // all drivers, the widest scope first
	Lacks      []Lack      `json:"lacks,omitempty"` // rules of the contract that the driver does not keep
	Warnings   []string    `json:"warnings,omitempty"`
	Wider      []string    `json:"wider,omitempty"` // changes that lead to a wider scope, in this build
	// As is "lock" if the decision is the one about locks, because nothing else
	// is configured.
	As string `json:"as,omitempty"`
}

// Follows reports whether the decision is the one about another component.
func (d Decision) Follows() bool { return d.As != "" }

// Candidate is a driver that was considered.
type Candidate struct {
	Name    string  `json:"name"`
	Scope   string  `json:"scope"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	Key     string  `json:"key,omitempty"`   // the key that decided about it
	Origin  string  `json:"origin"`          // the origin of that key
	Needs   string  `json:"needs,omitempty"` // the change that would select it
}

// Outcome is the result for a candidate.
type Outcome string

// The outcomes.
const (
	Chosen   Outcome = "chosen"
	Rejected Outcome = "rejected" // the configuration excludes it
	Outdone  Outcome = "outdone"  // a driver with a wider scope was chosen
)

// Requirement is the scope of locks or messages that an app requires.
type Requirement struct {
	App       string
	Component string // "lock" or "bus"
	Scope     driver.Scope
	Site      string // file:line of the option
}

// Lack is a rule of the contract that a driver does not keep.
type Lack struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// Opened adds the properties that a driver reports once it is open.
func (d *Decision) Opened(info driver.Info) {
	d.Format = info.Format
	for _, l := range info.Lacks {
		d.Lacks = append(d.Lacks, Lack{l.Rule, l.Why})
	}
	for _, warning := range info.Warnings {
		d.Warnings = append(d.Warnings, mask.Text(warning))
	}
}

// CarriedOut copies the properties of the driver that a worker has opened.
func (d *Decision) CarriedOut(by Decision) {
	d.Format, d.Lacks, d.Warnings = by.Format, by.Lacks, by.Warnings
}

// Because returns the reason for a decision, with the key that decided.
func (d Decision) Because() string {
	if d.Key == "" {
		return d.Why
	}
	return fmt.Sprintf("%s  (%s: %s)", d.Why, d.Key, d.Origin)
}

// EndsHere returns a sentence about a scope that is this process, or "" for a
// wider scope and for limits that follow the locks.
func (d Decision) EndsHere() string {
	if d.Scope != driver.Process.String() || d.Follows() {
		return ""
	}
	return d.Subject() + " end at this process (driver " + d.Chosen + ")"
}

// Subject returns what the decision is about, as a plural noun: "locks",
// "messages" or "limits".
func (d Decision) Subject() string {
	switch d.Component {
	case "bus":
		return "messages"
	case "limit":
		return "limits"
	}
	return "locks"
}
