package locks

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

// The contestants of the guard: the same transaction with and without it.
const (
	unguarded = "without the guard"
	guarded   = "with the guard"
)

// GuardSQL runs a transaction that updates a row of a SQLite file, and counts the
// statements of the guard.
func GuardSQL(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	dir, err := os.MkdirTemp("", "bench-guard-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, statement := range []string{guard.Schema(guard.SQLite), "CREATE TABLE products (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL)", "INSERT INTO products VALUES (42, 0)"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	err = locks.With(ctx, "product:42", func(ctx context.Context) error {
		var statements float64
		times, err := measure.Alternately(l.Scale, map[string]func() error{
			unguarded: func() error { return restock(ctx, db, nil) },
			guarded:   func() error { return restock(ctx, db, &statements) },
		}, unguarded, guarded)
		if err != nil {
			return err
		}
		perTx := statements / float64(l.Reps(7)*l.Scaled(1000))
		claims = []measure.Claim{
			times.Beside(guarded, unguarded).Ratio("a transaction, p50", "µs", unguarded, unguarded).AtMost(1.3),
			measure.Samples{measure.Mega: {perTx}}.Absolute("statements of the guard", "").AtMost(1),
		}
		return nil
	})
	return claims, err
}

// restock is the transaction. It checks the fence unless statements is nil.
func restock(ctx context.Context, db *sql.DB, statements *float64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if statements != nil {
		if err := guard.SQL(ctx, counting{tx, statements}, guard.SQLite); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE products SET stock = stock + 1 WHERE id = ?", 42); err != nil {
		return err
	}
	return tx.Commit()
}

// counting counts the statements of a transaction.
type counting struct {
	*sql.Tx
	n *float64
}

func (c counting) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	*c.n++
	return c.Tx.ExecContext(ctx, query, args...)
}

func (c counting) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	*c.n++
	return c.Tx.QueryRowContext(ctx, query, args...)
}
