// Package lock gives named, fenced leases: mutual exclusion between goroutines,
// processes or machines. The scope of the driver limits how far the exclusion
// reaches.
//
//	locker, err := lock.New(memory.NewLock(), lock.Config{})
//	…
//	err = locker.With(ctx, "product:42", func(ctx context.Context) error {
//		return store.TakeOne(ctx, 42) // ctx ends if the lease is lost
//	})
//
// # Leases
//
// A key is 1 to 512 bytes of UTF-8 without white space, control and format
// characters; any other key is ErrInvalid.
//
// A lease renews itself until it is released. Its TTL does not have to cover
// the duration of the work: it is the time that others wait if the process of
// the lease dies. A lease that is lost before its release ends its context, and
// context.Cause returns the reason. While the process runs, the context ends
// before another lease of the key can be granted, unless an operator forced the
// release.
//
// No lock can stop a process that was paused between the check of its lease and
// a write to a store. Where that matters, store the lease's fence beside the
// data and refuse a write that carries a smaller fence: the fence of a key
// grows with every lease.
//
// # Waiting
//
// Waiters are served first come, first served, without polling. Processes take
// turns on a contended key. Within a turn, up to 16 waiters of one process may
// be served in a row, unless FIFO is set.
//
// # Concurrency
//
// A [Locker] and a [Lease] may be used by any number of goroutines. [New]
// returns a Locker over a driver, and [Locker.Close] ends it.
//
// # How it works
//
// A call passes the gate, waits in the queue of its key (wait.go), and gets a hold. The
// driver below does one thing per call; everything else is done here, once for
// all drivers.
//
//	call ── gate ── queue ── ticket ── driver          acquire.go, gate.go, queue.go, ticket.go
//	                  │                   │
//	                  └──── hold ◄────────┘ grant      hold.go
//	                         │
//	                       lease ── context            lease.go, context.go
//
// The gate counts waiting calls and leases; Close shuts it and waits until it is
// empty. The queue of a key has the waiters of this process and at most one
// ticket, which is the request at the backend. Without Wait or under FIFO a call
// has a request of its own. In front of a driver of scope Process there is no
// queue.
//
// A hold is one grant in this process. Leases share it one after another: a
// release hands the hold on to the next waiter without a call to the backend,
// until the turn of the process is over. The hold knows its deadline, at which
// its lease ends, even if a call is in flight (L4, schedule.go).
//
// The schedule orders all holds by their next renewal or end, with one timer,
// and renews those that are due and have the same TTL in one call of the driver
// (schedule.go, renewal.go). The cleaner retries releases that failed or whose
// grant is unknown (cleaning.go, internal/cleaner). The health watches a backend
// that has stopped answering (health.go, internal/outage).
//
// Calls of several keys are in several.go, and circles of waits in circle.go and
// internal/circle. A pool's Init and Cleanup are in pool.go, slot.go and phase.go. Once and
// Cooldown are in once.go, Lead and Every in campaign.go, and ForceRelease is in
// force.go. A Locker begins in locker.go, and ends in close.go.
//
// The mutexes are taken in this order: the circles' or the queues' (each one for
// all keys of a Locker), a hold's, then the schedule's or the stragglers'. None
// is held during a call of the driver or of the Observer. The cleaner and the
// health have their own.
package lock
