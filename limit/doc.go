// Package limit allows at most N units in every interval of a length, for
// named keys: per process, machine or fleet, as far as the scope of the driver
// reaches.
//
//	limiter, err := limit.New(memory.NewLimit(), limit.Config{})
//	…
//	partner := limit.Limit{Rates: []limit.Rate{{N: 5, Per: 800 * time.Millisecond}, limit.PerDay(10_000)}}
//	err = limiter.With(ctx, "partner:acme", partner, func(ctx context.Context, _ *limit.Permit) error {
//		return acme.Call(ctx) // never more than 5 calls in any 800 ms
//	})
//
// # Windows
//
// A rate holds for every interval of its length, wherever the interval begins.
// That is more than a token bucket does: a bucket of N that fills in Per lets
// nearly 2N units through in one Per, half of them at its end and the others at
// the beginning of the next one. For N up to 128 a window is exact. Above that,
// grants count for up to 1/128 of Per longer than they would have to, so the
// rate is never exceeded, and at most that part of it stays unused.
//
// The time of a window is the backend's. The clocks of the callers do not
// matter, nor their number, nor their crashes.
//
// # Calls
//
// [Limiter.Allow] decides at once, for what can be refused: a request of a
// client. [Limiter.Wait] and [Limiter.With] wait for their turn, for what has to
// be done: a call of a partner. Where the cost is known only afterwards, a call
// takes what it will need at most, and [Permit.Settle] returns the rest.
//
// # Concurrency
//
// A [Limiter] and a [Permit] may be used by any number of goroutines. [New]
// returns a Limiter over a driver, and [Limiter.Close] ends it.
//
// # How it works
//
// The driver makes one decision per call, for all rates together. Everything
// else is done here, once for all drivers.
//
//	Allow ───────────── refusals ───────────────────┐
//	                                                ├── outage ── driver
//	Wait ── slot ── queue ── ticket ── ask, sleep ──┘
//
//	options.go     arguments and their bounds
//	limiter.go     Allow, Pause and Reset
//	inspect.go     Peek, Inspect and List
//	refusals.go    what the backend has refused is refused here for a while (W12)
//	wait.go        Wait and With
//	turn.go        one call of Wait: its slot, its queue and its requests
//	slot.go        the slot of Concurrent
//	queue.go       the waiting calls of this process, in their order
//	permit.go      what a Wait has, and its settlement
//	outage.go      the policies while the backend does not answer (W11)
//	http.go        limits for inbound requests; transport.go for outbound ones
//
// Of the waiting calls of a key only the first asks the backend, with the ticket
// of this process. The answer contains the time after which it asks again: most
// of the estimated wait, and at the end exactly the rest (W5). A call that gives
// up leaves its ticket to the next one, or withdraws it.
//
// The mutexes of the queues, the refusals, the health and the shares are never
// held together, nor during a call of the driver or of the Observer.
package limit
