package shell

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// acquireOrder is the order of an acquire.
type acquireOrder struct {
	Order
	For int           // the lease ends with this process; 0 for none
	Max time.Duration // the lease ends after this time; 0 for no bound
}

// Handle describes a lease from acquire, in its file and in the output of
// acquire --json.
type Handle struct {
	Handle string `json:"handle"`
	Key    string `json:"key"`
	Fence  uint64 `json:"fence"`
	Slot   int    `json:"slot"`
	Token  string `json:"token"`
	PID    int    `json:"pid"` // of the process that keeps the lease
}

// noProcess is the value of a --for that is not given.
const noProcess = math.MinInt

// acquireLabel is the label of a lease from acquire without --label.
const acquireLabel = "acquire"

// handlePrefix begins every handle.
const handlePrefix = "lease-"

// NewHandle returns a random handle of a lease.
func NewHandle() string { return handlePrefix + strings.ToLower(rand.Text()[:16]) }

// IsHandle reports whether s has the form of a handle.
func IsHandle(s string) bool {
	rest, ok := strings.CutPrefix(s, handlePrefix)
	return ok && rest != "" && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

func acquireVerb() Verb {
	var o acquireOrder
	return Verb{
		Name: "acquire", Args: "KEY", Short: "take a lock for longer than one command, and print a handle",
		Long: "It waits for the lock KEY, starts a process that keeps the lock, and prints a handle for release and renew.\n" +
			"Three things give the lock back: release, the end of the process --for, and the end of --max. One of these two\n" +
			"flags is required. If the lock is lost earlier, no process is ended: renew and release report the loss with the\n" +
			"status 70. For a single command, exec is safer.\n\n" +
			"With --json: {\"handle\", \"key\", \"fence\", \"slot\", \"token\", \"pid\"}.",
		Statuses: acquireStatuses,
		Flags: func(f *pflag.FlagSet) {
			o.flags(f, acquireLabel)
			f.IntVar(&o.For, "for", noProcess, "give the lock back when the process `PID` has ended, as in --for $$")
			f.Lookup("for").DefValue = "0" // hides the default
			f.DurationVar(&o.Max, "max", 0, "give it back after `TIME`; renew begins anew")
		},
		Run: func(p Process, args []string, dash int) error {
			if err := oneArgument(args, dash, "KEY"); err != nil {
				return err
			}
			o.Key = args[0]
			if err := o.check(p.Environ); err != nil {
				return err
			}
			return runAcquire(p, o)
		},
	}
}

const (
	leaseStatuses = `  64  the command line is wrong
  69  the backend is unavailable
  70  the lock was lost, or given back before
`
	acquireStatuses = leaseStatuses + `  75  not acquired: the lock was busy until --wait had passed, or the process --for has ended
`
)

// check returns a usage error if a value is not valid, and resolves the backend.
func (o *acquireOrder) check(environ []string) error {
	switch {
	case o.Max == 0 && (o.For == noProcess || o.For == 0):
		return usage("cli.missing_argument", "acquire needs --for PID or --max TIME, above 0: otherwise a script that is killed keeps the lock for good.", "in a script: --for $$")
	case o.For != noProcess && (o.For <= 1 || !exists(o.For)):
		return wrongFlag("--for %d is not a running process of this user.", o.For)
	case o.Max < 0:
		return wrongFlag("--max %v is negative.", o.Max)
	}
	o.For = max(o.For, 0)
	return o.Order.Check(environ)
}

// print writes the handle of a lease to standard output.
func (p *Process) print(h Handle) error {
	text := h.Handle
	if p.JSON {
		b, err := json.Marshal(h)
		if err != nil {
			return err
		}
		text = string(b)
	}
	if _, err := fmt.Fprintln(p.Stdout, text); err != nil {
		return &Error{Code: "cli.output", Exit: ExitUnavailable, Text: fmt.Sprintf("Cannot write the handle: %v.", err)}
	}
	return nil
}

// oneArgument returns a usage error unless args is one argument, without "--". name
// is the argument's name in the error.
func oneArgument(args []string, dash int, name string) error {
	switch {
	case len(args) == 0:
		return usage("cli.missing_argument", name+" is missing.")
	case len(args) > 1 || dash >= 0:
		return usage("cli.extra_argument", fmt.Sprintf("One %s is needed; there is more.", name))
	}
	return nil
}

// request is the request of release or renew to the process that keeps a lease. The
// answer is a report.
type request struct{ Release, Renew bool }

// leaseVerb returns the verb that sends r to the process that keeps a lease.
func leaseVerb(name, short, long string, r request) Verb {
	return Verb{
		Name: name, Args: "HANDLE", Short: short, Long: long, Statuses: leaseStatuses,
		Run: func(_ Process, args []string, dash int) error {
			if err := oneArgument(args, dash, "HANDLE"); err != nil {
				return err
			}
			if !IsHandle(args[0]) {
				return usage("cli.invalid_argument", fmt.Sprintf("%q is not a handle, which acquire prints.", args[0]))
			}
			return ask(args[0], r)
		},
	}
}

func releaseVerb() Verb {
	return leaseVerb("release", "give back a lock from acquire", "It gives the lock back and ends the process that has kept it.", request{Release: true})
}

// GiveBack gives back the lock of a handle from acquire, as the verb release does. The
// error is an *Error.
func GiveBack(handle string) error { return ask(handle, request{Release: true}) }

func renewVerb() Verb {
	return leaseVerb("renew", "check a lock from acquire, and begin its --max anew",
		"It renews the lock at once and begins --max anew. The lock renews itself also without that: renew is for a\nscript that has to know whether it still has the lock.", request{Renew: true})
}
