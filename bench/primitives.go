package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

// The contestants among mega's own primitives: a pool and several keys are
// compared with With on one key.
const (
	plainLock = "a plain lock"
	poolCycle = "a pool"
	threeKeys = "3 keys"
)

// cycles returns the cycles of the contestants.
func cycles(ctx context.Context, locks *lock.Locker) map[string]func() error {
	keys := []string{"order:1", "stock:2", "user:3"}
	fn := func(context.Context) error { return nil }
	prepare := func(context.Context, *lock.Slot) error { return nil }
	pool := &lock.Pool{Key: "sandbox", Size: 10, Init: prepare, Cleanup: prepare}
	return map[string]func() error{
		plainLock: func() error { return locks.With(ctx, "product:42", fn) },
		poolCycle: func() error { return locks.WithSlot(ctx, pool, prepare) },
		threeKeys: func() error { return locks.WithAll(ctx, keys, fn) },
	}
}

// beside returns the figures of two contestants, the first one as mega's.
func (s samples) beside(name, other string) samples { return samples{mega: s[name], other: s[other]} }

// primitiveClaims are the promises about a cycle of a pool and of three keys.
func primitiveClaims(times samples, unit string) []claim {
	return []claim{
		times.beside(poolCycle, plainLock).ratio("a cycle of a pool", unit, plainLock, plainLock).atMost(1.2),
		times.beside(threeKeys, plainLock).ratio("WithAll of 3 keys", unit, plainLock, plainLock).atMost(3.2),
	}
}

// memoryPrimitives runs batches of the contestants in turn.
func memoryPrimitives(ctx context.Context, l *lab) ([]claim, error) {
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		return nil, err
	}
	batches := map[string]batch{}
	for name, cycle := range cycles(ctx, locks) {
		batches[name] = each(cycle)
	}
	times, allocs := samples{}, samples{}
	for range l.reps(9) {
		if err := memoryRep(l, batches, times, allocs); err != nil {
			return nil, errors.Join(err, locks.Close(ctx))
		}
	}
	plain := allocs.beside(plainLock, poolCycle)
	plain[threeKeys] = allocs[threeKeys]
	return append(primitiveClaims(times, "ns"),
		plain.absolute("allocations of a plain lock", "", poolCycle, threeKeys).atMost(3),
	), locks.Close(ctx)
}

// redisPrimitives runs the contestants operation by operation in turn.
func redisPrimitives(ctx context.Context, l *lab) ([]claim, error) {
	server, err := l.redis()
	if err != nil {
		return nil, err
	}
	d, err := redis.OpenLock(ctx, redis.Config{URL: server.URL()})
	if err != nil {
		return nil, err
	}
	locks, err := lock.New(d, lock.Config{TTL: ttl})
	if err != nil {
		return nil, err
	}
	times, err := alternately(l, cycles(ctx, locks), plainLock, poolCycle, threeKeys)
	return primitiveClaims(times, "µs"), errors.Join(err, locks.Close(ctx))
}

// alternately returns the median time of each operation in each repetition.
func alternately(l *lab, ops map[string]func() error, names ...string) (samples, error) {
	return inTurn(l, l.scaled(1000), ops, names...)
}

// inTurn is alternately with another number of rounds in each repetition.
func inTurn(l *lab, rounds int, ops map[string]func() error, names ...string) (samples, error) {
	times := samples{}
	for range l.reps(7) {
		took := make([][]time.Duration, len(names))
		for round := range rounds {
			for _, i := range turn(len(names), round) {
				start := time.Now()
				if err := ops[names[i]](); err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				took[i] = append(took[i], time.Since(start))
			}
		}
		for i, name := range names {
			times.add(name, micros(median(took[i])))
		}
	}
	return times, nil
}

// The contestants of the guard: the same transaction with and without it.
const (
	unguarded = "without the guard"
	guarded   = "with the guard"
)

// guardSQL runs a transaction that updates a row of a SQLite file, and counts the
// statements of the guard.
func guardSQL(ctx context.Context, l *lab) (claims []claim, err error) {
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
		times, err := alternately(l, map[string]func() error{
			unguarded: func() error { return restock(ctx, db, nil) },
			guarded:   func() error { return restock(ctx, db, &statements) },
		}, unguarded, guarded)
		if err != nil {
			return err
		}
		perTx := statements / float64(l.reps(7)*l.scaled(1000))
		claims = []claim{
			times.beside(guarded, unguarded).ratio("a transaction, p50", "µs", unguarded, unguarded).atMost(1.3),
			samples{mega: {perTx}}.absolute("statements of the guard", "").atMost(1),
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
