// Package driver is the boundary between package limit and its backends. It has
// the interface that a driver of limits implements, and the types that both
// sides share.
//
// Users of limits need this package only to name an error or a [State]; package
// limit has an alias for each. Authors of drivers start here, and test their
// work with package limittest.
//
// A driver makes one decision per call, on the backend's clock, and reports it.
// It does not validate, apply defaults, wait, ask again, count, log or wrap
// error texts: package limit, the front, does each of these once for all
// drivers. No call waits for anything but the backend's answer.
//
// # What a driver may rely on
//
// The front checks keys, rates and costs: 1 to [MaxRates] rates with different
// Per, N 1 to 10^9, Per 10 ms to 31 days and an hour, Cost 0 to the smallest N.
// Per is a whole number of microseconds. Every context has a deadline of at most
// [CallTimeout], List's of ten seconds; a driver of scope Process may receive
// contexts without a deadline.
//
// # What a driver must keep
//
// Its methods may be called concurrently. Each call is one atomic operation at
// the backend, whatever the number of rates, and uses no clock but the
// backend's. The front treats an error that is neither a context's nor one of
// this package's as [ErrUnavailable].
//
// For each key and each Per the backend keeps a log of grants: a time, and the
// units granted at it. This is all that it needs to keep:
//
//   - A request of n units is granted at the time t if, for each of its rates,
//     the units in the log with a time after t − Per, plus n, are at most N
//     (W1). Grants of other requests with the same Per count, whatever their N
//     was (W8). A backend with a copy of the log in which each entry also has
//     the number of units granted so far answers this with one search.
//   - The log may be exact for N <= 128. Above that, the time of an entry is
//     rounded up to a multiple of [Tick], so that a log has at most 129 entries
//     (W2). Rounding up never grants more than N.
//   - Either all rates allow, and all logs grow, or nothing changes (W3).
//   - Units that Settle or Withdraw return are removed from the entries of their
//     own grant, and only from these (W7). Units of a debt are an entry of the
//     time of the Settle.
//   - If the clock reads less than at an earlier operation of the key, the time
//     of the key goes on from that reading, and keeps its lead over the clock as
//     long as the key is in use (W10). A log that only knows the times of its
//     entries may treat those that lie ahead of the clock as if they were at the
//     present time.
//   - With Smooth, a request is granted no earlier than Per × n / N after the
//     last grant of the key, which had n units, or Per if that is earlier (W8).
//
// Requests that wait have tickets, one per process, in the order in which they
// came (W5). A ticket is granted only if no ticket is ahead of it, and a request
// without a ticket only if there is no ticket. A granted, refused or withdrawn
// request takes its ticket out of the queue. A ticket is dead, and removed by
// the next operation that meets it, when its process has not asked for
// [TicketGrace] after the time at which it should have.
//
// A driver whose transport may deliver a call twice must give Settle, Pause and Reset
// an effect only once; for Take and Withdraw, Ticket and Seq are enough.
package driver

import (
	"context"
	"time"

	lock "github.com/megaframework/mega/lock/driver"
)

const (
	// CallTimeout is the time after which a call ends with ErrUnavailable.
	CallTimeout = time.Second
	// MaxRates is the maximum number of rates of a request.
	MaxRates = 8
	// MaxTickets is the maximum number of tickets of a key. A driver refuses a
	// further one with an Answer that has Full set.
	MaxTickets = 10_000
	// TicketGrace is the time after which a ticket whose process does not ask is
	// dead.
	TicketGrace = time.Second
	// TicketMemory is how long, at least, a driver remembers which request of a
	// ticket it has granted last.
	TicketMemory = 10 * time.Second
	// Exact is the largest N for which a log keeps the exact times of grants.
	Exact = 128
)

// Driver decides about units of keys.
type Driver interface {
	// Info returns the driver's name, scope and limits. It does no I/O, and its
	// result never changes.
	Info() Info

	// Take grants r, refuses it, or queues it. A refusal and a request of cost 0
	// change nothing.
	//
	// A request with a Ticket is queued until it can be granted: Again is then
	// positive, and the front repeats the request after that time. A repeated
	// request keeps the place of its ticket, also if its Cost, Rates or Seq have
	// changed. If the estimated wait is longer than MaxWait, the request is
	// refused instead, and its ticket is withdrawn (W6).
	//
	// A request with the Ticket and Seq of the last grant of that ticket returns
	// this grant again (W9). A request with a lower Seq is a late copy: it
	// changes nothing, and its Answer has no meaning.
	//
	// After an error the outcome is unknown. The front then repeats the request
	// or calls Withdraw, or the units count as consumed.
	Take(ctx context.Context, r Request) (Answer, error)

	// Withdraw takes a queued request out of the queue. If r has been granted
	// and the driver still remembers it, the units are returned as by Settle. A
	// copy of r that arrives later is refused. r is as for Take.
	Withdraw(ctx context.Context, r Request) error

	// Settle changes the units of a grant from s.Cost to s.Actual. The front
	// calls it at most once for a grant.
	Settle(ctx context.Context, s Settlement) error

	// Pause refuses all requests of key for the time d (W13). A pause that ends
	// later than p stays.
	Pause(ctx context.Context, key string, p Pause) error

	// Reset removes all that the backend has of key except its tickets: logs and
	// pause.
	Reset(ctx context.Context, key string) error

	// Inspect returns the state of key. With rates, the state has these rates, in
	// their order and with their N, used or not; without, it has each rate whose
	// log the backend has, by Per, with the N of its last grant. Whether the grants
	// are spaced (RateState.NextFree) is known from the last one in both cases.
	Inspect(ctx context.Context, key string, rates []Rate) (State, error)

	// List returns the state of every key in use that begins with prefix, sorted
	// by key. Data that is not a limit does not fail the list: its State has
	// Skipped set. Neither Inspect nor List changes the backend.
	List(ctx context.Context, prefix string) ([]State, error)

	// Close frees the driver's connections, goroutines and timers. Later calls
	// return ErrClosed. It is idempotent.
	Close(ctx context.Context) error
}

// Rate allows N units in each interval of length Per.
type Rate struct {
	N   int           `json:"n"`
	Per time.Duration `json:"per"`
}

// Request asks for units of a key.
type Request struct {
	Key string
	// Rates are the rates that must all allow. Their Per contains the slack.
	Rates []Rate
	// Smooth spaces grants by Per/N for each unit.
	Smooth bool
	// Cost is the number of units; a request of 0 units consumes nothing.
	Cost int
	// Ticket identifies the process of a waiting request: the same for all requests
	// of a Limiter, 22 characters of [A-Za-z0-9_-]. It is empty for a request
	// that does not wait.
	Ticket string
	// Seq grows with each request of a Ticket, and stays below 2^53. A repeated
	// request has the Seq of the first.
	Seq uint64
	// MaxWait is the longest useful wait of a request with a Ticket; negative
	// means no limit.
	MaxWait time.Duration
	// Waiter describes the caller of a request with a Ticket.
	Waiter Holder
}

// Answer is the decision about a request.
type Answer struct {
	Granted bool
	// At is the time of the grant on the backend's clock, in microseconds.
	At time.Time
	// Wait is, without a grant, the estimated time until r can be granted: exact
	// unless tickets are ahead, or units are returned meanwhile.
	Wait time.Duration
	// Again is the time after which a queued request is repeated, as the
	// function Again computes it; 0 if the request is not queued.
	Again time.Duration
	// By is the index of the rate that decides: without a grant the one that
	// makes the request wait longest, else the one with the fewest units left.
	// It is -1 if a pause decides.
	By int
	// Remaining is the number of units that every rate has left, and Reset the
	// time until the log of By is empty if nothing more is granted.
	Remaining int
	Reset     time.Duration
	// Full reports that the key has MaxTickets tickets.
	Full bool
	// Paused is the pause of the key, or nil.
	Paused *Pause
}

// Settlement is the correction of a grant.
type Settlement struct {
	Key          string
	Rates        []Rate
	At           time.Time // of the grant
	Cost, Actual int
}

// Pause is a time in which nothing is granted.
type Pause struct {
	Left   time.Duration `json:"left"` // until its end
	Reason string        `json:"reason,omitempty"`
	By     Holder        `json:"by"`
}

// State is the state of a key at one instant.
type State struct {
	Key     string      `json:"key"`
	Rates   []RateState `json:"rates"`
	Waiters []Waiter    `json:"waiters"` // the tickets, in the order of service
	Paused  *Pause      `json:"paused,omitempty"`
	// Skipped is the reason why the data at Key is not a limit, or empty.
	Skipped string `json:"skipped,omitempty"`
}

// RateState is the state of one rate of a key.
type RateState struct {
	Rate
	Used      int `json:"used"`      // more than N after a debt, or when N has become smaller
	Remaining int `json:"remaining"` // 0 or more
	// NextFree is the time until a unit is free, 0 if one is. After a grant with
	// Smooth it includes the spacing.
	NextFree time.Duration `json:"next_free"`
}

// Waiter is a ticket, seen from outside.
type Waiter struct {
	Holder
	Cost int `json:"cost"`
}

// The types that limits share with locks.
type (
	// Info describes a driver and its limits.
	Info = lock.Info
	// Scope is the set of processes whose grants a driver counts together.
	Scope = lock.Scope
	// Lack is a rule of the contract that a driver does not keep.
	Lack = lock.Lack
	// Holder describes the caller of a request or a pause.
	Holder = lock.Holder
)

// The scopes, from the narrowest.
const (
	Process = lock.Process
	Node    = lock.Node
	Fleet   = lock.Fleet
)

// Tick returns the unit of the times in the log of r, 0 if they are exact. It
// is a whole number of microseconds.
func Tick(r Rate) time.Duration {
	if r.N <= Exact {
		return 0
	}
	return (r.Per / Exact).Truncate(time.Microsecond)
}

// The bounds of the pause between two requests of a ticket.
const (
	minAgain = 3 * time.Millisecond
	maxAgain = time.Second
)

// Again returns when a queued request with an estimated wait is repeated (W5):
// after 0.7 of the wait, 3 ms to 1 s, because it may become shorter, and
// exactly at the end of the last stretch. A wait that has ended is one of
// tickets ahead, which are about to be granted.
func Again(wait time.Duration) time.Duration {
	switch {
	case wait <= 0:
		return minAgain / 3
	case wait <= minAgain:
		return wait
	}
	return min(max(wait/10*7, minAgain), maxAgain) // in this order: a wait may be centuries long
}
