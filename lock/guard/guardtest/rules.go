// Package guardtest is the contract of guarded stores as a suite. It is for
// authors of guards: a guard of a further store passes [Run] too. Package
// enginetest runs it on SQLite, PostgreSQL, MariaDB and Redis.
package guardtest

// Rule is a numbered promise of guarded stores.
type Rule struct {
	ID       string
	Sentence string
}

// Rules returns the rules of docs/contract.md for guards, in order.
func Rules() []Rule { return append([]Rule(nil), rules...) }

var rules = []Rule{
	{"G1", "With Tx, SQL and redisguard.Redis the check and the write are one transaction. The check locks the key's row, so that writers of one key are serial even without the lock. Handler and Middleware check on arrival only: they refuse what is stale then; the write behind them still needs Tx."},
	{"G2", "A fence below the greatest one seen for the key is refused (ErrStale); an equal one is accepted; a greater one is accepted and recorded."},
	{"G3", "All live leases on the context chain are checked, in byte order of their keys. Without any: ErrNoLease, never a pass. With an ended one: ErrLost, before any I/O. ErrLost and ErrStale mean that nothing is written; a commit without an answer is neither."},
	{"G4", "READ COMMITTED is enough; stricter levels refuse too. A refused transaction is rolled back."},
	{"G5", "One statement for each lease: INSERT … ON CONFLICT(key) DO UPDATE SET fence = excluded.fence WHERE fence <= excluded.fence; zero rows means stale (MySQL: the upsert with GREATEST, then SELECT fence … FOR UPDATE in the same transaction; greater than ours means stale). The table is created by the user's migration, never by the guard."},
	{"G6", "The slot of a pool is a column of its own (-1 for a plain key)."},
	{"G7", "All drivers use one scale of fences (L2), so a change of driver needs no reset; drivers whose clocks differ refuse for as long as the difference. `guard.Reset(key)` and a counter of refusals help then."},
}
