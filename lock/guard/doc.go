// Package guard makes stores check the fences of leases, so that a write of a
// holder that has lost its lease without noticing (a paused process, a stalled
// network) is refused.
//
// A lock alone cannot prevent such a write: the holder was stopped between its
// last look at the lease and the write. The store can, because the fence of
// every later lease of the key is greater (L2): it keeps the greatest fence
// that it has seen, and refuses a smaller one.
//
//	err := locker.With(ctx, "account:7", func(ctx context.Context) error {
//		return guard.Tx(ctx, db, guard.Postgres, func(tx *sql.Tx) error {
//			_, err := tx.ExecContext(ctx, "UPDATE accounts SET …")
//			return err
//		})
//	})
//
// # Which guard
//
//   - A database/sql database: [Tx] runs a guarded transaction, [SQL] adds the
//     check to one of yours. [Schema] is the table for your migrations.
//   - Redis: package redisguard runs a script together with the check.
//   - Another service over HTTP: [Transport] sends the fences, [Handler] refuses
//     stale ones on arrival.
//   - A consumer of messages: [Fenced] sends the fences, [Middleware] refuses
//     stale ones on arrival.
//
// Tx, SQL and redisguard.Redis check and write in one transaction. Handler and
// Middleware check on arrival only: a request that passes may
// become stale before the write behind them, so the write still needs Tx.
//
// # What is checked
//
// All leases on the context are checked, in byte order of their keys. Without a
// lease the error is lock.ErrNoLease; with a lease that has ended it is
// lock.ErrLost, before any I/O. A fence below the greatest one that the store
// has seen for the key is lock.ErrStale, an equal one passes, and a greater one
// passes and is recorded.
//
// A pool has a fence for each slot, also a pool of one: a lock.Pool of size 1, and
// a call with lock.Slots(1), have slot 0. So a pool may grow and shrink while
// holders write. Before a key changes from a plain lock to a pool, or back, wait
// until no earlier holder can write any more: the fence of a plain key, locked
// without Slots, is not compared with the fences of slots.
//
// A store must keep the fences that it has acknowledged, and compare them at one
// place: a database with several writers that resolve conflicts later (MariaDB
// Galera), a PostgreSQL whose asynchronous standby is promoted, a database that
// acknowledges commits before they are on disk and crashes (synchronous_commit off in
// PostgreSQL, innodb_flush_log_at_trx_commit 0 or 2 in MySQL), or a Redis that
// evicts keys or fails over to a replica that lacks them can accept a stale write.
//
// # A change of the lock driver
//
// The fences of all drivers have one scale, the time in microseconds, so no
// reset is necessary when the driver changes. If the clock of the new driver is
// behind, the store refuses writes for the difference. [Reset] ends that for a
// key, once no earlier holder can write any more. Every refusal of a lease is
// counted in lock.Stats.Stale and reported as a lock.Stale event.
package guard
