package enginetest

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	databasetest "github.com/megaframework/mega/internal/testkit/database"
	"github.com/megaframework/mega/lock/guard"
)

// engine is a database that a test owns.
type engine struct {
	name    string
	driver  string // of database/sql
	dsn     string
	dialect guard.Dialect
}

// engines starts one server of each kind.
func engines(t *testing.T) []engine {
	t.Helper()
	return []engine{sqlite(t), postgres(t), mariadb(t)}
}

func (e engine) open(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open(e.driver, e.dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// bind returns the i-th placeholder of the dialect, from 1.
func (e engine) bind(i int) string {
	if e.dialect == guard.Postgres {
		return "$" + strconv.Itoa(i)
	}
	return "?"
}

func sqlite(t *testing.T) engine {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.db")
	e := engine{"SQLite", "sqlite", "file:" + file + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(20000)", guard.SQLite}
	e.migrate(t)
	return e
}

func postgres(t *testing.T) engine {
	t.Helper()
	return served(t, engine{"PostgreSQL", "pgx", databasetest.Postgres(t), guard.Postgres})
}

func mariadb(t *testing.T) engine {
	t.Helper()
	return served(t, engine{"MariaDB", "mysql", databasetest.MariaDB(t), guard.MySQL})
}

// served returns the engine of a server once it answers.
func served(t *testing.T, e engine) engine {
	t.Helper()
	e.waitReady(t)
	e.migrate(t)
	return e
}

func (e engine) waitReady(t *testing.T) {
	t.Helper()
	db := e.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s does not answer: %v", e.name, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// migrate creates the guard's table and a ledger of writes.
func (e engine) migrate(t *testing.T) {
	t.Helper()
	db := e.open(t)
	id := map[guard.Dialect]string{
		guard.SQLite:   "INTEGER PRIMARY KEY AUTOINCREMENT",
		guard.Postgres: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
		guard.MySQL:    "BIGINT AUTO_INCREMENT PRIMARY KEY",
	}[e.dialect]
	for _, statement := range []string{
		guard.Schema(e.dialect),
		guard.Schema(e.dialect), // a migration may run again
		fmt.Sprintf("CREATE TABLE ledger (id %s, lock_key VARCHAR(100) NOT NULL, fence BIGINT NOT NULL)", id),
		"CREATE TABLE counter (n BIGINT NOT NULL)",
		"INSERT INTO counter (n) VALUES (0)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// write adds a line to the ledger.
func (e engine) write(ctx context.Context, tx guard.Execer, key string, fence uint64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger (lock_key, fence) VALUES ("+e.bind(1)+", "+e.bind(2)+")", key, int64(fence))
	return err
}

// ledger returns the fences of the committed writes of a key.
func (e engine) ledger(t *testing.T, db *sql.DB, key string) []uint64 {
	t.Helper()
	fences, err := e.readLedger(t.Context(), db, key)
	if err != nil {
		t.Fatal(err)
	}
	return fences
}

func (e engine) readLedger(ctx context.Context, db *sql.DB, key string) (fences []uint64, err error) {
	rows, err := db.QueryContext(ctx, "SELECT fence FROM ledger WHERE lock_key = "+e.bind(1)+" ORDER BY id", key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var fence uint64
		if err := rows.Scan(&fence); err != nil {
			return nil, err
		}
		fences = append(fences, fence)
	}
	return fences, rows.Err()
}
