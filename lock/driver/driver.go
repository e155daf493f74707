// Package driver is the boundary between package lock and its backends:
// what a lock backend implements, and the words both sides share.
//
// Users of locks need this package only to name an error or a [State]; package
// lock has an alias for each. Authors of drivers start here, and prove their
// work with package locktest.
//
// A driver does one thing per call and reports honestly. It does not validate
// keys, apply defaults, renew by itself, retry a release, count, log or wrap
// error texts: the front does each of these once, for every driver.
//
// # What a driver may rely on
//
// Keys, tokens, TTLs, slots and labels were checked by the front. Tokens are
// random, 22 characters of [A-Za-z0-9_-], and never used for a second request.
// Every context given to Renew, Release, ForceRelease and Inspect has a deadline
// of at most about a second, and List's of ten; a driver of scope Process may be
// given one without.
//
// # What a driver must keep
//
// Its methods may be called concurrently. Every operation is idempotent by
// token. An error that is neither a context's nor one of this package's is
// taken for [ErrUnavailable].
package driver

import (
	"context"
	"fmt"
	"time"
)

// CallTimeout is how long a call that is not queued may take before it is
// ErrUnavailable.
const CallTimeout = time.Second

// MaxTickets is how many requests may be queued for a key. A driver refuses
// another one with a *NotAcquiredError that has Full set.
const MaxTickets = 10_000

// Driver stores leases. At any instant at most Slots grants of a key are live
// in its scope.
type Driver interface {
	// Info says what the driver is. It does no I/O and never changes.
	Info() Info

	// Acquire queues for r.Key and returns when it is granted, first come,
	// first served.
	//
	// It returns an error that wraps ErrNotAcquired, as *NotAcquiredError with
	// whatever is known of the holders, once r.Wait has passed: at once if it
	// is 0, and never if it is below 0. Having said so, it holds nothing and
	// is queued nowhere.
	//
	// When ctx ends it returns promptly, with an error that wraps ctx's. After
	// that, and after every error but ErrNotAcquired, ErrInvalid,
	// ErrUnsupported and ErrClosed, the outcome may be unknown; the front then
	// calls Release with the key and token of r until it answers.
	//
	// While r is not queued yet, a backend that cannot be reached for
	// CallTimeout is ErrUnavailable. Once queued, the driver rides out an
	// outage until r.Wait has passed, and keeps its place where the backend
	// still has one for it.
	//
	// An error that wraps ErrLost says that the grant was taken away by force
	// before it arrived; the front asks again.
	//
	// Asking again with the token of a live grant answers the same grant.
	Acquire(ctx context.Context, r Request) (Grant, error)

	// Renew sets the life of each grant to its TTL from now, longer or shorter
	// than what it had, or, where NoRenew is set, only reports whether it
	// lives. Result i belongs to grants[i].
	//
	// The backend keeps the highest Rev that it has seen for a grant. A request
	// with a lower one is a late copy: it changes nothing, and its result is
	// the grant's deadline as it stands.
	//
	// Renewal.Err wraps ErrLost, as *LostError with the cause where it is
	// known, if the grant is no longer the live one, and it is never made
	// live again. Any other error means that it could not be found out. One
	// grant's failure does not keep another from being renewed.
	Renew(ctx context.Context, grants []Grant) []Renewal

	// Release ends the grant or withdraws the request with g's key and token,
	// whichever there is; the fields beside them may be zero. If there is
	// neither, or if the request may have been sent more than once, a copy of
	// it that reaches the backend later is refused.
	//
	// It returns an error that wraps ErrLost if there is neither; others'
	// grants are never touched.
	Release(ctx context.Context, g Grant) error

	// ForceRelease ends every live grant of key, tells their holders who did
	// it and why, and serves the queue. It returns how many there were.
	ForceRelease(ctx context.Context, key, reason string, by Holder) (int, error)

	// Inspect returns the holders of key by slot, and its waiters in the order
	// in which they will be served. A key that nobody uses has neither.
	Inspect(ctx context.Context, key string) (State, error)

	// List returns the state of every key in use that begins with prefix,
	// sorted by key. Data that is not a lock does not fail the list: its State
	// has Skipped set. Neither Inspect nor List changes the backend or delays
	// another call (L23).
	List(ctx context.Context, prefix string) ([]State, error)

	// Close ends the waiters with ErrClosed and frees what the driver holds of
	// its process: connections, goroutines, timers. Live grants are left to
	// their TTL. It is idempotent.
	Close(ctx context.Context) error
}

// Asker is what a Driver may be beside: one whose Acquire can be had in two
// parts. The front then asks on its caller's goroutine, which is the whole of it
// for a free key, and waits on another.
type Asker interface {
	// Ask is Acquire until r is granted, refused or queued. If it is queued,
	// wait is not nil and is the rest of Acquire; it must be called, once.
	Ask(ctx context.Context, r Request) (g Grant, wait func(ctx context.Context) (Grant, error), err error)
}

// Scope is how far a driver's exclusion reaches.
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

// Info says what a driver is, and what it cannot do.
type Info struct {
	Name   string // "memory", "redis", "cluster"
	Engine string // which of the driver's engines, where it has several
	Scope  Scope
	// Format is the version of the data that the driver stores or sends (L24);
	// empty if nothing leaves the process.
	Format string
	// Lacks lists the rules of the contract that the driver does not keep.
	Lacks []Lack
	// Warnings lists what weakens its promise on the backend that it found,
	// each a sentence for an operator.
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
	// Wait is how long the request may be queued; 0 is not at all, below 0
	// without end.
	Wait time.Duration
	// Slots is the size of the pool, 1 for a plain lock. The newest request's
	// size holds: a shrunk pool drains.
	Slots int
	// Fences is how many fences to reserve, at least 1.
	Fences int
	// FIFO asks for strict order across processes. A driver whose queue is
	// always strict ignores it.
	FIFO    bool
	NoRenew bool
	Holder  Holder
}

// Grant is a lease as the driver knows it.
type Grant struct {
	Key, Token string
	// Fence is the first of the Fences that this grant may use. Fences of a
	// key grow strictly in the order of its grants, and stay below 2^53.
	Fence  uint64
	Fences int
	Slot   int // 0 to Slots-1
	// TTL is what Renew extends the grant to.
	TTL     time.Duration
	NoRenew bool
	// Rev grows with each change of the TTL that the front asks for. A grant
	// starts at 0. Renew presents it.
	Rev uint64
	// Deadline is until when the grant is surely live, as Deadline computes
	// it; a grant may start with less than its TTL, to be renewed at once, but
	// not under NoRenew. It is on the clock of Now, or for a driver of scope
	// Process on time.Now's.
	Deadline time.Time
	// Lost is a hint, so that a loss is known at once: when it is closed or
	// receives, the grant may have been taken away, for the reason received
	// or, without one, for what Renew then says. It may be nil.
	Lost <-chan error
	// Resized is the size that the pool had before this request changed it,
	// or 0.
	Resized int
	// Queued says that the request found the key busy and had to wait.
	Queued bool
}

// Renewal is the outcome of renewing one grant: until when it is surely live,
// or why that is not known.
type Renewal struct {
	Deadline time.Time
	Err      error
}

// Holder says who holds or waits. Nothing depends on its content.
type Holder struct {
	App     string    `json:"app,omitempty"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Worker  int       `json:"worker,omitempty"` // its number, from 1, where several run under a supervisor
	Label   string    `json:"label,omitempty"`
	Request string    `json:"request,omitempty"` // id of the request that asked
	Since   time.Time `json:"since,omitzero"`    // when it asked
}

// String is for logs and error texts: `app "web" on host-1, worker 2, pid 42 (label)`.
func (h Holder) String() string {
	s := fmt.Sprintf("pid %d", h.PID)
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

// State is what a key looked like at one instant.
type State struct {
	Key     string    `json:"key"`
	Slots   int       `json:"slots"`
	Holders []Holding `json:"holders"` // by slot
	Waiters []Holder  `json:"waiters"` // in the order of service
	// Skipped is why the data at Key is not a lock, or empty. A skipped key has
	// neither holders nor waiters.
	Skipped string `json:"skipped,omitempty"`
}

// Holding is a live grant, seen from outside.
type Holding struct {
	Holder
	Slot  int           `json:"slot"`
	Fence uint64        `json:"fence"`
	Left  time.Duration `json:"left"` // until it expires, unless renewed
}
