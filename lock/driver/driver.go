// Package driver is the boundary between package lock and its backends. It has
// the interface that a lock driver implements, and the types that both sides
// share.
//
// Users of locks need this package only to name an error or a [State]; package
// lock has an alias for each. Authors of drivers start here, and test their
// work with package locktest.
//
// A driver does one thing per call and reports the exact outcome. It does not
// validate keys, apply defaults, renew without a request, retry a release,
// count, log or wrap error texts: package lock, the front, does each of these
// once for all drivers.
//
// # What a driver may rely on
//
// The front checks keys, tokens, TTLs, slots and labels. Tokens are random, 22
// characters of [A-Za-z0-9_-], and never used for a second request. The contexts
// of Acquire and Ask may have no deadline. The context of List has one of about
// ten seconds, and every other context one of at most about a second. A driver of
// scope Process may receive contexts without a deadline.
//
// # What a driver must keep
//
// Its methods may be called concurrently. Every operation is idempotent by
// token. The front treats an error that is neither a context's nor one of this
// package's as [ErrUnavailable].
package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// CallTimeout is the time after which a call that is not queued ends with
// ErrUnavailable.
const CallTimeout = time.Second

// MaxTickets is the maximum number of queued requests of a key. A driver
// refuses further ones with a *NotAcquiredError that has Full set.
const MaxTickets = 10_000

// MaxHolders is the maximum number of holders in a *NotAcquiredError.
const MaxHolders = 16

// MaxPosition is the maximum position in a *NotAcquiredError. The limit avoids a walk
// over a long queue, under its mutex, for each waiter that gives up.
const MaxPosition = 1000

// Driver stores leases. At any instant at most Slots grants of a key are live
// in its scope.
type Driver interface {
	// Info returns the driver's name, scope and limits. It does no I/O, and its
	// result never changes.
	Info() Info

	// Acquire queues for r.Key and returns when it is granted, first come,
	// first served.
	//
	// When r.Wait has passed, it returns an error that wraps ErrNotAcquired, as
	// *NotAcquiredError with the known holders: at once if r.Wait is 0, and
	// never if it is negative. After that error the request neither holds nor
	// queues for anything.
	//
	// When ctx ends, it returns promptly with an error that wraps ctx's error.
	// After that, and after every error but ErrNotAcquired, ErrInvalid,
	// ErrUnsupported and ErrClosed, the outcome may be unknown; the front then
	// calls Release with the key and token of r until it answers.
	//
	// While r is not queued yet, a backend that cannot be reached for
	// CallTimeout is ErrUnavailable. Once queued, the driver rides out an
	// outage until r.Wait has passed, and keeps its place where the backend
	// still has one for it.
	//
	// An error that wraps ErrLost means that the grant was taken away by force
	// before it arrived; the front repeats the request.
	//
	// A request with the token of a live grant returns the same grant.
	Acquire(ctx context.Context, r Request) (Grant, error)

	// Renew sets the life of each grant to its TTL from now, which may lengthen
	// or shorten it. Where NoRenew is set, it only reports whether the grant is
	// live. Result i belongs to grants[i].
	//
	// The backend keeps the highest Rev that it has seen for a grant. A request
	// with a lower one is a late copy: it changes nothing, and its result is
	// the grant's current deadline.
	//
	// Renewal.Err wraps ErrLost, as *LostError with the cause if known, if the
	// grant is no longer live. Such a grant never becomes live again. Any other
	// error means that the outcome is not known. The failure of one grant does
	// not prevent the renewal of another.
	Renew(ctx context.Context, grants []Grant) []Renewal

	// Release ends the grant or withdraws the request with g's key and token;
	// the other fields of g may be zero. If there is neither, or if the request
	// may have been sent more than once, the backend refuses a copy of the
	// request that arrives later.
	//
	// The same operation stores g.Handback (P5).
	//
	// If g.Rest is positive, a grant is not ended, but left at the backend for
	// that time: nobody has the key, nobody renews the grant, and waiters are
	// served when it has expired. It does not end with its process where the
	// driver's scope is wider. g.TTL, g.NoRenew and g.Rev are then as for Renew.
	//
	// It returns an error that wraps ErrLost if there is neither. It never
	// changes a grant with another token.
	Release(ctx context.Context, g Grant) error

	// ForceRelease ends every live grant of key that f covers, in one operation of
	// the backend, notifies their holders with f.By and f.Reason, and serves the
	// queue. It returns the number of ended grants.
	ForceRelease(ctx context.Context, key string, f Force) (int, error)

	// Inspect returns the holders of key by slot, and its waiters in the order
	// in which they will be served. A key that is not in use has neither.
	Inspect(ctx context.Context, key string) (State, error)

	// List returns the state of every key in use that begins with prefix,
	// sorted by key. A pool whose slots have states is in use until the backend
	// forgets it. Data that is not a lock does not fail the list: its State has
	// Skipped set. Neither Inspect nor List changes the backend or delays
	// another call (L23).
	List(ctx context.Context, prefix string) ([]State, error)

	// Close ends the waiters with ErrClosed and frees the driver's connections,
	// goroutines and timers. Live grants are left to their TTL. It is
	// idempotent.
	Close(ctx context.Context) error
}

// Asker is an optional interface of a Driver that splits Acquire into two
// parts. The front then calls Ask on its caller's goroutine, which is enough for
// a free key, and prepares a wait only for a key that is busy. A type that embeds
// an Asker and replaces Acquire has to replace Ask too.
type Asker interface {
	// Ask is Acquire until r is granted, refused or queued. If r is queued,
	// wait is not nil and does the rest of Acquire; the caller must call it.
	// Of g only Resized is then set.
	//
	// If the ctx of wait ends with the cause ErrPaused before the outcome, wait
	// returns ErrPaused and changes nothing: the request keeps its place, and the
	// caller must call wait again, from any goroutine.
	Ask(ctx context.Context, r Request) (g Grant, wait func(ctx context.Context) (Grant, error), err error)
}

// ErrPaused is the cause of the end of a context that pauses a wait: see [Asker].
var ErrPaused = errors.New("lock: wait paused")

// Paused reports whether ctx has ended to pause a wait.
func Paused(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrPaused) }

// Scope is the set of processes that a driver's exclusion covers.
type Scope int

// The scopes, from the narrowest.
const (
	Process Scope = iota // one process
	Node                 // the processes of one node
	Fleet                // every process that reaches the same backend
)

// String returns "process", "node" or "fleet".
func (s Scope) String() string {
	switch s {
	case Process:
		return "process"
	case Node:
		return "node"
	case Fleet:
		return "fleet"
	}
	return fmt.Sprintf("scope(%d)", int(s))
}

// Info describes a driver and its limits.
type Info struct {
	Name   string // "memory", "redis", "cluster"
	Engine string // the driver's engine, where it has several
	Scope  Scope
	// Format is the version of the data that the driver stores or sends (L24);
	// empty if no data leaves the process.
	Format string
	// Lacks lists the rules of the contract that the driver does not keep.
	Lacks []Lack
	// Warnings lists the properties of the backend that weaken the driver's
	// guarantees, each as a sentence for an operator.
	Warnings []string
}

// Lack is a rule of the contract that a driver does not keep.
type Lack struct {
	Rule string // "L7"
	Why  string
}

// Request asks for a lease.
type Request struct {
	Key   string
	Token string
	TTL   time.Duration
	// Wait is the maximum time in the queue; 0 means no wait, and negative
	// means no limit.
	Wait time.Duration
	// Slots is the size of the pool, 1 for a plain lock. The size of the newest
	// request applies: a pool that shrinks drains.
	Slots int
	// Fences is the number of fences to reserve, at least 1.
	Fences int
	// FIFO requires strict order across processes. A driver whose queue is
	// always strict ignores it.
	FIFO    bool
	NoRenew bool
	// Fixed refuses the request with a *PoolSizeError if the pool is held or
	// waited for with another size, instead of changing the size (P9).
	Fixed bool
	// Pool makes the key a pool whose slots have states; nil for a plain lock or
	// pool. See [PoolDriver].
	Pool   *Pool
	Holder Holder
	// At is the time of the call on the clock of time.Now, or zero. A driver of
	// scope Process may use it in place of a reading of its own to grant a free
	// key. It sets timers by a new reading, because the process may have been
	// stopped since this one.
	At time.Time
}

// Force is a request to end grants of a key (L16). The zero Force covers all of
// them. A driver without [PoolDriver] gets none with BySlot.
type Force struct {
	BySlot bool // only the grant of Slot
	Slot   int

	ByFence bool // only the grant that reserves Fence; 0 means a holder that State shows without a fence
	Fence   uint64

	Reason string
	By     Holder
}

// Covers reports whether f ends g.
func (f *Force) Covers(g *Grant) bool {
	return (!f.BySlot || f.Slot == g.Slot) && (!f.ByFence || g.Reserves(f.Fence))
}

// Grant is a lease at the driver.
type Grant struct {
	Key, Token string
	// Fence is the first of the Fences that this grant may use. Fences of a
	// key grow strictly in the order of its grants, and stay below 2^53.
	Fence  uint64
	Fences int
	Slot   int // 0 to Slots-1 of the newest request
	// TTL is the life that Renew sets.
	TTL     time.Duration
	NoRenew bool
	// Rev is the revision of the TTL. It starts at 0 and grows with each change
	// of the TTL by the front. Renew sends it to the backend.
	Rev uint64
	// Rest, for Release, is how long the key stays taken after the release.
	Rest time.Duration
	// Deadline is the time until which the grant is surely live, as the
	// function Deadline computes it. A grant may start with less than its TTL,
	// so that the front renews it at once, but not under NoRenew. Deadline is
	// on the clock of Now, or for a driver of scope Process on the clock of
	// time.Now.
	Deadline time.Time
	// Lost is a hint, so that the front detects a loss at once. A received error
	// means that the grant may have been taken away. It is the reason if it wraps
	// ErrLost, and then ends the lease; after any other, or nil, the front renews
	// the grant at once. A driver closes the channel only when Renew returns
	// ErrLost for the grant from then on: a closed channel is a hint at each look.
	// Lost may be nil.
	Lost <-chan error
	// Resized is the size that the pool had before this request changed it,
	// or 0.
	Resized int
	// Queued reports that the request found the key busy and had to wait.
	Queued bool
	// Found is the state in which a request with Pool found its slot, else nil.
	Found *Found
	// Handback is what Release makes of the slot of a pool with states. The
	// front sets it; nil leaves the slot dirty.
	Handback *Handback
	// At, for Release, is the time of the call, as in [Request].
	At time.Time
}

// Reserves reports whether the fence is one of those that g may use.
func (g *Grant) Reserves(fence uint64) bool {
	return g.Fence <= fence && fence-g.Fence < uint64(max(g.Fences, 1)) //nolint:gosec // not negative
}

// Renewal is the outcome of the renewal of one grant: the time until which it
// is surely live, or the error.
type Renewal struct {
	Deadline time.Time
	Err      error
}

// Holder describes a holder or a waiter. Nothing depends on its content.
type Holder struct {
	App     string    `json:"app,omitempty"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Worker  int       `json:"worker,omitempty"` // number of the worker, from 1, under a supervisor
	Label   string    `json:"label,omitempty"`
	Request string    `json:"request,omitempty"` // id of the request that made the call
	Since   time.Time `json:"since,omitzero"`    // when the call began
}

// String returns a text for logs and errors: `app "web" on host-1, worker 2,
// pid 42 (label)`. A holder of which nothing is known, such as a foreign client of
// redislock, is "an unknown process".
func (h Holder) String() string {
	s := fmt.Sprintf("pid %d", h.PID)
	if h.PID == 0 && h.App == "" && h.Host == "" && h.Worker == 0 {
		s = "an unknown process"
	}
	if h.Worker != 0 {
		s = fmt.Sprintf("worker %d, %s", h.Worker, s)
	}
	if h.Host != "" {
		s = h.Host + ", " + s
	}
	if h.App != "" {
		s = fmt.Sprintf("app %q on %s", h.App, s)
	}
	if h.Label != "" {
		s += " (" + h.Label + ")"
	}
	return s
}

// State is the state of a key at one instant.
type State struct {
	Key     string    `json:"key"`
	Size    int       `json:"slots"`   // of the pool, 1 for a plain lock
	Holders []Holding `json:"holders"` // by slot
	Waiters []Holder  `json:"waiters"` // in the order of service
	// Slots are the slots of a pool with states: each number below Size, and
	// those above it that are held. Nil for any other key.
	Slots []SlotState `json:"slot_states,omitempty"`
	// Skipped is the reason why the data at Key is not a lock, or empty. A
	// skipped key has neither holders nor waiters.
	Skipped string `json:"skipped,omitempty"`
	// LastRun is the last run of the key, if a [Runner] has recorded one (O4).
	// A key that has nothing else is not in use: List leaves it out.
	LastRun *Run `json:"last_run,omitempty"`
}

// InTheWay returns the holders of s for a *NotAcquiredError, at most MaxHolders. Data
// that is not a lock is one holder of which nothing is known, with the reason as its
// label.
func (s *State) InTheWay() []Holding {
	if s.Skipped != "" {
		return []Holding{{Holder: Holder{Label: s.Skipped}}}
	}
	return s.Holders[:min(len(s.Holders), MaxHolders)]
}

// Holding is a live grant, seen from outside.
type Holding struct {
	Holder
	Slot  int           `json:"slot"`
	Fence uint64        `json:"fence"`
	Left  time.Duration `json:"left"` // until it expires, unless renewed
}
