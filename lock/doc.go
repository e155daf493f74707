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
package lock
