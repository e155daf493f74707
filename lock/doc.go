// Package lock gives named, fenced leases: mutual exclusion between goroutines,
// processes or machines, as far as the driver under it reaches.
//
//	locker, err := lock.New(memory.NewLock(), lock.Config{})
//	…
//	err = locker.With(ctx, "product:42", func(ctx context.Context) error {
//		return store.TakeOne(ctx, 42) // ctx ends if the lease is lost
//	})
//
// # Leases
//
// A lease renews itself until it is released. Its TTL is not a guess of how
// long the work takes but how long others wait if its process dies. A lease
// that is lost before it is released ends its context, and context.Cause says
// why; as long as the process runs, that happens before anyone else can be
// granted the key, unless it was taken away on purpose.
//
// No lock can stop a process that was paused between looking at its lease and
// writing to a store. Where that matters, store the lease's fence beside the
// data and refuse a write that carries a smaller one: fences of a key grow
// with every lease.
//
// # Waiting
//
// Waiting is first come, first served, without polling. Processes take turns
// on a contended key; within its turn, up to 16 waiters of one process may be
// served in a row unless FIFO is asked for.
//
// # Concurrency
//
// A [Locker] and a [Lease] may be used by any number of goroutines. A Locker is
// made with [New] over a driver and ended by [Locker.Close].
package lock
