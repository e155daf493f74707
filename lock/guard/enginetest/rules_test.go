package enginetest

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/memory"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
	"github.com/megaframework/mega/lock/guard/guardtest"
	"github.com/megaframework/mega/lock/guard/redisguard"
)

// acquire acquires a key with a Locker of its own, which stands for a process
// that does not know of the other holders.
func acquire(t *testing.T, ctx context.Context, key string, opts ...lock.Option) *lock.Lease {
	t.Helper()
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release() })
	return lease
}

func TestGuardsKeepTheirRules(t *testing.T) {
	for _, e := range engines(t) {
		t.Run(e.name, func(t *testing.T) {
			guardtest.Run(t, e.target(e.open(t)))
			for name, rule := range map[string]func(*testing.T, engine){
				"G1 a check needs a transaction":               needsTransaction,
				"G1 a writer reads what the one before wrote":  serialWriters,
				"G1 a wait has the bound of the database":      boundedWait,
				"G4 an old snapshot does not hide a fence":     oldSnapshot,
				"G4 stricter levels lose no write":             stricterLevels,
				"G3 no order of keys is a deadlock":            twoKeys,
				"G3 the end of ctx is no error of the commit":  endedInside,
				"G5 a lease costs one statement, two on MySQL": oneStatement,
				"G5 the table is the user's":                   noTable,
				"G5 a table that was altered passes no fence":  alteredTable,
				"a guard leaves nothing in its session":        leavesNoSession,
				"a session of another client is explained":     otherSession,
				"G6 a slot is a column":                        slots,
				"a store shares the fences":                    store,
			} {
				t.Run(name, func(t *testing.T) { rule(t, e) })
			}
		})
	}
}

// save writes one line under lease.
func (e engine) save(db *sql.DB, lease *lock.Lease) error {
	return e.target(db).Save(lease.Context(), lease.Key(), lease.Fence(), nil)
}

// target returns the ledger of the engine.
func (e engine) target(db *sql.DB) guardtest.Target {
	return guardtest.Target{
		Save: func(ctx context.Context, key string, fence uint64, inside func() error) error {
			return guard.Tx(ctx, db, e.dialect, func(tx *sql.Tx) error {
				if err := e.write(ctx, tx, key, fence); err != nil || inside == nil {
					return err
				}
				return inside()
			})
		},
		Ledger: func(ctx context.Context, key string) ([]uint64, error) { return e.readLedger(ctx, db, key) },
		Reset:  func(ctx context.Context, key string) error { return guard.Reset(ctx, db, e.dialect, key) },
	}
}

func TestRedisKeepsTheRulesOfGuards(t *testing.T) {
	o, err := goredis.ParseURL(redistest.Start(t, redistest.Options{}).URL())
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(o)
	defer func() { _ = client.Close() }()
	guardtest.Run(t, guardtest.Target{
		Save: func(ctx context.Context, key string, fence uint64, _ func() error) error {
			_, err := redisguard.Redis(ctx, client, "return redis.call('RPUSH', KEYS[1], ARGV[1])", []string{"ledger:" + key}, fence)
			return err
		},
		Ledger: func(ctx context.Context, key string) (fences []uint64, err error) {
			err = client.LRange(ctx, "ledger:"+key, 0, -1).ScanSlice(&fences)
			return fences, err
		},
		Reset:  redisguard.Fences{Client: client}.Reset,
		Script: true,
	})
}

func needsTransaction(t *testing.T, e engine) {
	db := e.open(t)
	lease := acquire(t, t.Context(), "one")
	for name, tx := range map[string]guard.Execer{"a *sql.DB": db, "a type that embeds one": struct{ *sql.DB }{db}} {
		if err := guard.SQL(lease.Context(), tx, e.dialect); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s instead of a transaction: %v", name, err)
		}
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := guard.SQL(lease.Context(), conn, e.dialect); err != nil {
		t.Errorf("a connection in a transaction: %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
}

// serialWriters has many writers with one fence, as if the lock had been lost
// by all of them: the row of the fence keeps them apart.
func serialWriters(t *testing.T, e engine) {
	db := e.open(t)
	lease := acquire(t, t.Context(), "serial")
	before := counted(t, db)
	const writers, rounds = 8, 10
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range rounds {
				if err := e.increment(db, lease); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if kept := counted(t, db) - before; kept != writers*rounds {
		t.Errorf("%d of %d increments were kept", kept, writers*rounds)
	}
}

// boundedWait has a writer that waits for an open transaction for longer than the
// database allows.
func boundedWait(t *testing.T, e engine) {
	db := e.open(t)
	switch e.dialect {
	case guard.SQLite:
		e.dsn = strings.Replace(e.dsn, "busy_timeout(20000)", "busy_timeout(100)", 1)
	case guard.Postgres:
		e.dsn += "&options=-c%20lock_timeout%3D100"
	case guard.MySQL:
		e.dsn += "?innodb_lock_wait_timeout=1"
	}
	impatient := e.open(t)
	early, late := acquire(t, t.Context(), "bounded"), acquire(t, t.Context(), "bounded")
	err := guard.Tx(early.Context(), db, e.dialect, func(*sql.Tx) error {
		if err := e.save(impatient, late); err == nil || errors.Is(err, lock.ErrStale) || errors.Is(err, lock.ErrLost) {
			t.Errorf("while another transaction is open: %v, want the database's error", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := e.save(impatient, late); err != nil {
		t.Errorf("again: %v", err)
	}
	if got := e.ledger(t, db, "bounded"); len(got) != 1 {
		t.Errorf("the ledger has %v", got)
	}
}

// counted returns the counter, which the rules of an engine share.
func counted(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// stricterLevels has many writers with one fence in a database whose default
// level is stricter. They call Tx again after a refusal.
func stricterLevels(t *testing.T, e engine) {
	defaults := map[guard.Dialect][]string{ // SQLite has one level
		guard.Postgres: {"&options=-c%20default_transaction_isolation%3Drepeatable%5C%20read", "&options=-c%20default_transaction_isolation%3Dserializable"},
		guard.MySQL:    {"?tx_isolation=%27SERIALIZABLE%27", "?innodb_snapshot_isolation=1", "?innodb_snapshot_isolation=1&tx_isolation=%27SERIALIZABLE%27"},
	}
	for _, level := range defaults[e.dialect] {
		e := e
		e.dsn += level
		db := e.open(t)
		lease := acquire(t, t.Context(), "strict")
		before := counted(t, db)
		const writers, rounds = 4, 5
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for range rounds {
					err := e.increment(db, lease)
					for refused(err) {
						err = e.increment(db, lease)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if kept := counted(t, db) - before; kept != writers*rounds {
			t.Errorf("%s: %d of %d increments were kept", level, kept, writers*rounds)
		}
	}
}

// increment adds 1 to the counter, as a value that it has read.
func (e engine) increment(db *sql.DB, lease *lock.Lease) error {
	ctx := lease.Context()
	return guard.Tx(ctx, db, e.dialect, func(tx *sql.Tx) error {
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE counter SET n = "+e.bind(1), n+1)
		return err
	})
}

// refused reports whether a database has refused a transaction that overlaps with
// another one.
func refused(err error) bool {
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok {
		return failure.Code == "40001"
	}
	failure, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && (failure.Number == 1020 || failure.Number == 1213)
}

// endedInside has a context that ends behind the last statement of fn. Nothing is
// written then, which an error of the commit would leave open. Without the error of ctx,
// the error of a later statement would look like a mistake of fn.
func endedInside(t *testing.T, e engine) {
	db := e.open(t)
	lease := acquire(t, t.Context(), "ended")
	for _, returned := range []error{nil, sql.ErrTxDone} {
		ctx, cancel := context.WithCancel(lease.Context())
		defer cancel()
		err := guard.Tx(ctx, db, e.dialect, func(tx *sql.Tx) error {
			if err := e.write(ctx, tx, "ended", lease.Fence()); err != nil {
				return err
			}
			cancel()
			for err, n := error(nil), 0; !errors.Is(err, sql.ErrTxDone); { // until database/sql has rolled back
				err = tx.QueryRowContext(t.Context(), "SELECT 1").Scan(&n)
			}
			return returned
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, returned) && returned != nil || strings.Contains(err.Error(), "guard: commit") {
			t.Errorf("fn returns %v: got %v, want the error of ctx beside it", returned, err)
		}
	}
	if got := e.ledger(t, db, "ended"); len(got) != 0 {
		t.Errorf("the ledger has %v", got)
	}
}

// oldSnapshot checks inside a transaction that read the table before the
// successor committed. Under REPEATABLE READ, the default of MySQL, a plain
// SELECT would not see the successor's fence.
func oldSnapshot(t *testing.T, e engine) {
	levels := map[guard.Dialect][]sql.IsolationLevel{
		guard.SQLite:   {sql.LevelDefault},
		guard.Postgres: {sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
		guard.MySQL:    {sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead}, // a reader under SERIALIZABLE keeps writers out
	}
	for _, level := range levels[e.dialect] {
		t.Run(level.String(), func(t *testing.T) { e.writeBehindASnapshot(t, level) })
	}
	if e.dialect == guard.MySQL {
		e.dsn += "?innodb_snapshot_isolation=1" // the default of a later MariaDB
		t.Run("snapshot isolation", func(t *testing.T) { e.writeBehindASnapshot(t, sql.LevelRepeatableRead) })
	}
}

func (e engine) writeBehindASnapshot(t *testing.T, level sql.IsolationLevel) {
	t.Helper()
	db := e.open(t)
	key := "snapshot:" + strconv.Itoa(int(level))
	early, late := acquire(t, t.Context(), key), acquire(t, t.Context(), key)
	if err := e.save(db, early); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var fence uint64
	if err := tx.QueryRowContext(t.Context(), "SELECT fence FROM mega_fences WHERE lock_key = "+e.bind(1), key).Scan(&fence); err != nil || fence != early.Fence() {
		t.Fatal(fence, err)
	}
	if err := e.save(db, late); err != nil {
		t.Fatal(err)
	}
	err = guard.SQL(early.Context(), tx, e.dialect)
	// SQLite, PostgreSQL from REPEATABLE READ on, and MariaDB with its snapshot
	// isolation refuse with an error of their own to write behind an old snapshot.
	ownError := e.dialect == guard.SQLite || e.dialect == guard.Postgres && level >= sql.LevelRepeatableRead || refused(err)
	if err == nil || !ownError && !errors.Is(err, lock.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
}

// twoKeys has holders of the same two keys, which acquired them in different
// orders, write at once.
func twoKeys(t *testing.T, e engine) {
	db := e.open(t)
	for range 20 {
		both := func(outer, inner string) *lock.Lease {
			return acquire(t, acquire(t, t.Context(), outer).Context(), inner)
		}
		if err := e.save(db, both("left", "right")); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, lease := range []*lock.Lease{both("left", "right"), both("right", "left"), both("left", "right")} {
			all.Go(func() {
				if err := e.save(db, lease); err != nil && !errors.Is(err, lock.ErrStale) {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

// oneStatement counts the statements of a check.
func oneStatement(t *testing.T, e engine) {
	db := e.open(t)
	for leases, ctx := 1, t.Context(); leases <= 3; leases++ {
		ctx = acquire(t, ctx, strconv.Itoa(leases)).Context()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		counted := &counter{Tx: tx}
		err = guard.SQL(ctx, counted, e.dialect)
		_ = tx.Rollback()
		want := leases
		if e.dialect == guard.MySQL {
			want *= 2
		}
		if err != nil || counted.statements != want {
			t.Errorf("%d leases: %d statements, %v, want %d", leases, counted.statements, err, want)
		}
	}
}

type counter struct {
	*sql.Tx
	statements int
}

func (c *counter) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.statements++
	return c.Tx.ExecContext(ctx, query, args...)
}

func (c *counter) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	c.statements++
	return c.Tx.QueryRowContext(ctx, query, args...)
}

// leavesNoSession writes through the driver's mode for a pooler that gives each
// transaction another session. What a guard left there would meet the next client.
func leavesNoSession(t *testing.T, e engine) {
	if e.dialect != guard.Postgres {
		return
	}
	e.dsn += "&default_query_exec_mode=exec"
	db := e.open(t)
	db.SetMaxOpenConns(1) // what is read below is of the guard's session
	lease := acquire(t, acquire(t, t.Context(), "outer").Context(), `o'd$1\"d`)
	for range 2 {
		if err := e.save(db, lease); err != nil {
			t.Fatal(err)
		}
	}
	for what, query := range map[string]string{
		"prepared statements": "SELECT count(*) FROM pg_prepared_statements",
		"advisory locks":      "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
		"temporary tables":    "SELECT count(*) FROM pg_class WHERE relpersistence = 't'",
		"settings":            "SELECT count(*) FROM pg_settings WHERE source = 'session' AND name LIKE '%transaction%'",
	} {
		var n int
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d %s are left, %v", n, what, err)
		}
	}
	if got := e.ledger(t, db, lease.Key()); len(got) != 2 {
		t.Errorf("the ledger has %v", got)
	}
}

// otherSession has a driver that prepares its statements, behind a pooler that gives
// each transaction another session: here the statements end between two of them.
func otherSession(t *testing.T, e engine) {
	if e.dialect != guard.Postgres {
		return
	}
	db := e.open(t)
	db.SetMaxOpenConns(1)
	lease := acquire(t, t.Context(), "session")
	if err := e.save(db, lease); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "DEALLOCATE ALL"); err != nil {
		t.Fatal(err)
	}
	if err := e.save(db, lease); err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("got %v, want default_query_exec_mode=exec in it", err)
	}
}

// noTable writes without the table, which only a migration creates.
func noTable(t *testing.T, e engine) {
	db := e.open(t)
	lease := acquire(t, t.Context(), "no-table")
	if _, err := db.ExecContext(t.Context(), "ALTER TABLE mega_fences RENAME TO moved"); err != nil {
		t.Fatal(err)
	}
	_, advance := guard.Fences{DB: db, Dialect: e.dialect}.Advance(t.Context(), "k", lease.Fence())
	for i, err := range []error{e.save(db, lease), e.save(db, lease), advance, guard.Reset(t.Context(), db, e.dialect, "k")} {
		if want := "guard.Schema(guard." + e.dialect.String() + ")"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("call %d without the table: %v, want %q in it", i, err, want)
		}
	}
	if _, err := db.ExecContext(t.Context(), "ALTER TABLE moved RENAME TO mega_fences"); err != nil { // it fails if there is a new table
		t.Error(err)
	}
}

// alteredTable has tables that do not keep what Schema promises: a later
// fence that is not seen would let a stale writer pass.
func alteredTable(t *testing.T, e engine) {
	db := e.open(t)
	if e.dialect == guard.MySQL {
		e.dsn += "?sql_mode=''" // a number that is too great is cut
	}
	must := func(statement string) {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	must("ALTER TABLE mega_fences RENAME TO moved")
	for name, columns := range map[string]string{
		"no-primary-key": "lock_key VARCHAR(512), slot INTEGER, fence BIGINT",
		"small-fences":   "lock_key VARCHAR(512), slot INTEGER, fence INT4 NOT NULL, PRIMARY KEY (lock_key, slot)",
	} {
		must("CREATE TABLE mega_fences (" + columns + ")")
		early, late := acquire(t, t.Context(), name), acquire(t, t.Context(), name)
		loose := e.open(t)
		for _, lease := range []*lock.Lease{early, late} {
			if err := e.save(loose, lease); errors.Is(err, lock.ErrStale) {
				t.Errorf("%s: a current write is refused as stale", name)
			}
		}
		saved := e.ledger(t, db, name)
		if err := e.save(loose, early); err == nil {
			t.Errorf("%s: a stale write has passed", name)
		}
		if got := e.ledger(t, db, name); len(got) != len(saved) {
			t.Errorf("%s: the ledger has %v after %v", name, got, saved)
		}
		must("DROP TABLE mega_fences")
	}
	must("ALTER TABLE moved RENAME TO mega_fences")
}

func slots(t *testing.T, e engine) {
	db := e.open(t)
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	plain := acquire(t, t.Context(), "pool")
	var leases []*lock.Lease
	for range 2 {
		lease, err := l.Acquire(t.Context(), "pool", lock.Slots(2))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lease.Release() })
		leases = append(leases, lease)
	}
	for _, lease := range []*lock.Lease{leases[1], leases[0], plain} { // the fences descend
		if err := e.save(db, lease); err != nil {
			t.Errorf("slot %d of %d: %v", lease.Slot(), lease.Slots(), err)
		}
	}
	rows := map[int]uint64{}
	for _, lease := range leases {
		rows[lease.Slot()] = lease.Fence()
	}
	rows[-1] = plain.Fence()
	for slot, want := range rows {
		var fence uint64
		err := db.QueryRowContext(t.Context(), "SELECT fence FROM mega_fences WHERE lock_key = 'pool' AND slot = "+e.bind(1), slot).Scan(&fence)
		if err != nil || fence != want {
			t.Errorf("slot %d has the fence %d, %v, want %d", slot, fence, err, want)
		}
	}
}

func store(t *testing.T, e engine) {
	db := e.open(t)
	s := guard.Fences{DB: db, Dialect: e.dialect}
	lease := acquire(t, t.Context(), "a/b;ü")
	if err := e.save(db, lease); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		fence uint64
		want  bool
	}{{lease.Fence() - 1, false}, {lease.Fence(), true}, {lease.Fence() + 1, true}, {lease.Fence(), false}} {
		if got, err := s.Advance(t.Context(), guard.ID(lease), step.fence); err != nil || got != step.want {
			t.Errorf("fence %d: %v, %v, want %v", step.fence, got, err, step.want)
		}
	}
	if _, err := s.Advance(t.Context(), "no%zz", 1); err == nil {
		t.Error("a key that is not encoded is accepted")
	}
	for _, fence := range []uint64{1 << 53, 1 << 63, 1<<64 - 1} { // a signed number would be negative
		if ok, err := s.Advance(t.Context(), "new", fence); ok || !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("fence %d: %v, %v, want ErrInvalid", fence, ok, err)
		}
	}
	if err := e.save(db, lease); !errors.Is(err, lock.ErrStale) {
		t.Errorf("after a greater fence at the store: %v", err)
	}
}
