package guard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/megaframework/mega/lock"
)

// Dialect is the SQL dialect of a database.
type Dialect int

// The supported dialects. Postgres is right for databases that speak
// PostgreSQL's protocol and its ON CONFLICT; MySQL is right for MariaDB.
const (
	SQLite Dialect = iota + 1
	Postgres
	MySQL
)

func (d Dialect) String() string {
	switch d {
	case SQLite:
		return "SQLite"
	case Postgres:
		return "Postgres"
	case MySQL:
		return "MySQL"
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

// Execer is a running transaction: *sql.Tx, or *sql.Conn after BEGIN.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// statements are the texts of a dialect. The column is lock_key because KEY is
// a reserved word.
type statements struct{ schema, upsert, highest, reset string }

// statements returns the texts of d, or an error for an unknown dialect.
func (d Dialect) statements() (statements, error) {
	const upsert = "INSERT INTO mega_fences (lock_key, slot, fence) VALUES (%s) " +
		"ON CONFLICT (lock_key, slot) DO UPDATE SET fence = excluded.fence WHERE mega_fences.fence <= excluded.fence"
	switch d {
	case SQLite:
		return statements{
			schema: "CREATE TABLE IF NOT EXISTS mega_fences (\n\tlock_key TEXT NOT NULL,\n\tslot INTEGER NOT NULL,\n\tfence INTEGER NOT NULL,\n\tPRIMARY KEY (lock_key, slot)\n) WITHOUT ROWID",
			upsert: fmt.Sprintf(upsert, "?, ?, ?"),
			reset:  "DELETE FROM mega_fences WHERE lock_key = ?",
		}, nil
	case Postgres:
		return statements{
			schema: "CREATE TABLE IF NOT EXISTS mega_fences (\n\tlock_key TEXT COLLATE \"C\" NOT NULL,\n\tslot INTEGER NOT NULL,\n\tfence BIGINT NOT NULL,\n\tPRIMARY KEY (lock_key, slot)\n)",
			upsert: fmt.Sprintf(upsert, "$1, $2, $3"),
			reset:  "DELETE FROM mega_fences WHERE lock_key = $1",
		}, nil
	case MySQL:
		return statements{
			// VARBINARY compares bytes; a text collation would make keys equal
			// that differ in case or in trailing spaces.
			schema: "CREATE TABLE IF NOT EXISTS mega_fences (\n\tlock_key VARBINARY(512) NOT NULL,\n\tslot INTEGER NOT NULL,\n\tfence BIGINT NOT NULL,\n\tPRIMARY KEY (lock_key, slot)\n) ENGINE=InnoDB",
			upsert: "INSERT INTO mega_fences (lock_key, slot, fence) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))",
			// G4: FOR UPDATE reads the committed row. A plain SELECT under
			// REPEATABLE READ reads the transaction's snapshot, which may be
			// older than the successor's fence. The order is for a table that has
			// lost its primary key: there each check inserts a row.
			highest: "SELECT fence FROM mega_fences WHERE lock_key = ? AND slot = ? ORDER BY fence DESC LIMIT 1 FOR UPDATE",
			reset:   "DELETE FROM mega_fences WHERE lock_key = ?",
		}, nil
	}
	return statements{}, fmt.Errorf("guard: %v is not a dialect: use SQLite, Postgres or MySQL: %w", d, lock.ErrInvalid)
}

// Schema returns the statement that creates the table mega_fences, for the
// application's own migrations. The guard never creates it. The table has a row
// for each key that was ever written under its lock; a row may be deleted when
// no earlier holder of its key can write any more. Without the table, each check
// is an error that names Schema. Schema panics for an unknown
// dialect.
func Schema(d Dialect) string {
	s, err := d.statements()
	if err != nil {
		panic(err)
	}
	return s.schema
}

// explain adds the correction to the error of a database that lacks the table, or
// of a session that is another one than the driver expects.
func (d Dialect) explain(err error) error {
	if err == nil {
		return nil
	}
	switch state := sqlState(err); {
	case lacksTable(err, state):
		return fmt.Errorf("the table mega_fences is missing; create it in a migration, with the statement of guard.Schema(guard.%v): %w", d, err)
	case state == "26000" || state == "42P05":
		return fmt.Errorf("the driver's prepared statements are in another session, as behind PgBouncer; with pgx, add default_query_exec_mode=exec to the URL: %w", err)
	}
	return err
}

// sqlState returns the code of a PostgreSQL driver's error, or "". PostgreSQL
// translates its texts.
func sqlState(err error) string {
	coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return ""
	}
	return coded.SQLState()
}

// lacksTable reports whether err is the database's answer to a statement on a
// table that does not exist.
func lacksTable(err error, state string) bool {
	if state != "" {
		return state == "42P01"
	}
	text := err.Error()
	return strings.Contains(text, "no such table") || strings.Contains(text, "Error 1146")
}

// Tx runs fn in a transaction that writes under the leases on ctx. It begins the
// transaction, checks the fences, calls fn and commits. The check locks the rows
// of the keys, so the transactions of one key are serial even where the lock
// has been lost; READ COMMITTED suffices.
//
// The transaction is rolled back, and nothing is written, if a fence is stale
// (lock.ErrStale), a lease ends before the commit (lock.ErrLost), ctx ends (its error,
// beside the database's), or fn returns an error or panics. An error of the commit itself
// may leave the outcome unknown, as with any transaction; it is never lock.ErrLost.
//
// fn reads what its writes depend on. The commit of an earlier holder may still be
// under way when the lock is granted: the check waits for it, so a read in fn sees
// it, and a read before Tx may not.
//
// fn returns the first error of a statement: after some errors, such as a
// deadlock on MySQL, the database has rolled back, and later statements would
// run outside the transaction. fn does not end the transaction, by COMMIT or by a
// statement that commits by itself, such as CREATE TABLE on MySQL: the writes
// before it would stay, also if Tx returns an error. fn does not call Tx for the same key:
// the inner transaction would wait for the outer one until ctx ends.
//
// The check waits for an open transaction of an earlier holder, also if that process
// is frozen or cut off. Its end is a matter of the database: on PostgreSQL
// idle_in_transaction_session_timeout, and tcp_user_timeout for a process that is
// frozen while it reads many rows, on MariaDB idle_transaction_timeout, on MySQL
// wait_timeout. SQLite has none: a frozen writer holds up the writers of all keys.
//
// Where transactions overlap, Tx may end with an error of the database after which
// nothing is written and Tx can be called again: on MySQL, for a new key, with a
// deadlock (error 1213), and for any key when innodb_lock_wait_timeout has passed
// (1205, after 50 s by default); on MariaDB with innodb_snapshot_isolation, which is
// on by default in 11.8, with error 1020 of a statement of fn, under SERIALIZABLE
// also of the check; on PostgreSQL, if its default_transaction_isolation is
// above READ COMMITTED, with a serialization failure (40001), of the check, of a
// statement of fn or of the commit, and when lock_timeout has passed (55P03); on
// SQLite, for any key, with SQLITE_BUSY when busy_timeout has passed, also of the
// commit.
//
// With github.com/go-sql-driver/mysql, a commit and a rollback wait for the answer
// of the server also after ctx has ended. The parameter readTimeout of its DSN bounds
// each wait.
func Tx(ctx context.Context, db *sql.DB, d Dialect, fn func(*sql.Tx) error) error {
	all, err := claims(ctx)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("guard: begin: %w", ended(ctx, all, err))
	}
	// After the commit this does nothing. It also runs when fn panics.
	defer func() { _ = tx.Rollback() }()
	if err := check(ctx, tx, d, all); err != nil {
		return ended(ctx, all, err)
	}
	if err := fn(tx); err != nil {
		return ended(ctx, all, err)
	}
	if err := lost(all); err != nil { // L4: not after the deadline, even if ctx's timer is late
		return err
	}
	if err := ctx.Err(); err != nil { // database/sql has rolled back, and its Commit would return ErrTxDone
		return fmt.Errorf("guard: %w", err)
	}
	if err := tx.Commit(); err != nil {
		// Not ErrLost, even if a lease has ended meanwhile: ErrLost means that
		// nothing is written, and this transaction may be committed.
		return fmt.Errorf("guard: commit: %w", err)
	}
	return nil
}

// SQL checks the fences of the leases on ctx inside tx, with one statement for
// each lease (two on MySQL). Call it first in the transaction: a read before it
// may miss the commit of an earlier holder, see [Tx]. Roll back if it
// returns an error: it is lock.ErrStale for a stale fence, lock.ErrNoLease or
// lock.ErrLost before any I/O, lock.ErrInvalid for a *sql.DB, or a type that embeds
// one, instead of a transaction, or the database's error.
//
// A rollback to a savepoint before the check undoes the check. Call SQL again
// then, before further writes.
func SQL(ctx context.Context, tx Execer, d Dialect) error {
	if _, ok := tx.(database); ok {
		// G1: on a *sql.DB the check would commit by itself.
		return fmt.Errorf("guard: SQL needs a *sql.Tx, not a %T, so that check and write are one transaction: %w", tx, lock.ErrInvalid)
	}
	all, err := claims(ctx)
	if err != nil {
		return err
	}
	return check(ctx, tx, d, all)
}

// database is a *sql.DB, or a type that embeds one.
type database interface{ SetMaxOpenConns(n int) }

// Reset deletes the fences of key, so that the next write passes with any fence
// (G7). Call it only when no earlier holder can write any more.
func Reset(ctx context.Context, tx Execer, d Dialect, key string) error {
	s, err := d.statements()
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, s.reset, key); err != nil {
		return fmt.Errorf("guard: reset %q: %w", key, d.explain(err))
	}
	return nil
}

// check records the fences of all claims, in their order (G3).
func check(ctx context.Context, tx Execer, d Dialect, all []claim) error {
	s, err := d.statements()
	if err != nil {
		return err
	}
	for _, c := range all {
		ok, err := s.advance(ctx, tx, c)
		if err != nil {
			return fmt.Errorf("guard: check the fence of %q: %w", c.key, d.explain(err))
		}
		if !ok { // G2
			return fmt.Errorf("guard: %w", c.stale())
		}
	}
	return nil
}

// advance reports whether the fence of c is at least the greatest one seen, and
// records it (G5).
func (s statements) advance(ctx context.Context, tx Execer, c claim) (bool, error) {
	result, err := tx.ExecContext(ctx, s.upsert, c.key, c.slot, int64(c.fence))
	if err != nil {
		return false, err
	}
	if s.highest != "" {
		var highest int64
		err := tx.QueryRowContext(ctx, s.highest, c.key, c.slot).Scan(&highest)
		if err == nil && highest < int64(c.fence) { // it would refuse nothing
			err = fmt.Errorf("the table mega_fences holds %d after the fence %d was written: it differs from guard.Schema(guard.MySQL)", highest, c.fence)
		}
		return highest <= int64(c.fence), err
	}
	rows, err := result.RowsAffected()
	return rows > 0, err
}

// lost returns ErrLost if a lease of the claims has ended.
func lost(all []claim) error {
	for _, c := range all {
		if err := c.lease.Err(); err != nil {
			return fmt.Errorf("guard %q: %w", c.key, err)
		}
	}
	return nil
}

// ended adds the loss of a lease, or the end of ctx, to err: both end the transaction,
// and the database then reports a cancelled context, a finished transaction or a broken
// connection only.
func ended(ctx context.Context, all []claim, err error) error {
	if errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrStale) {
		return err
	}
	if loss := lost(all); loss != nil {
		return fmt.Errorf("%w: %w", loss, err)
	}
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("guard: %w: %w", end, err)
	}
	return err
}

// Fences is a [Store] in a database, in the table of [Schema]. It shares its
// rows with [Tx] and [SQL]. Any number of goroutines may use it.
type Fences struct {
	DB      *sql.DB
	Dialect Dialect
}

// maxFence is above every fence (L2). The databases store signed numbers.
const maxFence = 1 << 53

// Advance implements [Store].
func (f Fences) Advance(ctx context.Context, key string, fence uint64) (ok bool, err error) {
	c := claim{fence: fence}
	if fence >= maxFence {
		return false, fmt.Errorf("guard: the fence %d is not below 2^53: %w", fence, lock.ErrInvalid)
	}
	if c.key, c.slot, err = parseID(key); err != nil {
		return false, err
	}
	s, err := f.Dialect.statements()
	if err != nil {
		return false, err
	}
	tx, err := f.DB.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	if ok, err = s.advance(ctx, tx, c); err != nil || !ok {
		return false, f.Dialect.explain(err)
	}
	return true, tx.Commit()
}
