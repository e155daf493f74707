package enginetest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
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

// postgres starts a PostgreSQL server. It refuses to run as root, so root starts
// it as the user postgres.
func postgres(t *testing.T) engine {
	t.Helper()
	dir := serverDir(t, "postgres")
	run(t, "postgres", binary(t, "initdb"), "--auth=trust", "--username=mega", "--no-sync", "--encoding=UTF8", "--locale=C", "-D", filepath.Join(dir, "data"))
	port := freePort(t)
	start(t, as("postgres", binary(t, "postgres"), "-D", filepath.Join(dir, "data"), "-k", dir, "-p", port, "-c", "listen_addresses=127.0.0.1",
		"-c", "fsync=off"))
	e := engine{"PostgreSQL", "pgx", "postgres://mega@127.0.0.1:" + port + "/postgres?sslmode=disable", guard.Postgres}
	e.waitReady(t)
	e.migrate(t)
	return e
}

// mariadb starts a MariaDB server, which stands for MySQL.
func mariadb(t *testing.T) engine {
	t.Helper()
	dir := serverDir(t, "mysql")
	data := filepath.Join(dir, "data")
	run(t, "mysql", binary(t, "mariadb-install-db"), "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--datadir="+data)
	port := freePort(t)
	start(t, as("mysql", binary(t, "mariadbd"), "--no-defaults", "--datadir="+data, "--socket="+filepath.Join(dir, "s"), "--pid-file="+filepath.Join(dir, "pid"),
		"--port="+port, "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0"))
	e := engine{"MariaDB", "mysql", "root@tcp(127.0.0.1:" + port + ")/mysql", guard.MySQL}
	e.waitReady(t)
	e.migrate(t)
	return e
}

// serverDir returns a folder that the account of a server can use.
func serverDir(t *testing.T, account string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", account)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Getuid() != 0 {
		return dir
	}
	u, err := user.Lookup(account)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid) // of the system
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return dir
}

// as returns a command that root runs as the account of a server. The command
// does not outlive this process.
func as(account string, command ...string) *exec.Cmd {
	if os.Getuid() == 0 {
		command = append([]string{"setpriv", "--reuid=" + account, "--regid=" + account, "--init-groups", "--pdeathsig=KILL"}, command...)
	}
	return exec.Command(command[0], command[1:]...)
}

func run(t *testing.T, account string, command ...string) {
	t.Helper()
	if out, err := as(account, command...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
}

func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(20 * time.Second) })
}

// binary returns the path of a server's program: Debian keeps PostgreSQL's out
// of PATH.
func binary(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s is not installed: make tools installs it", name)
	}
	return found[len(found)-1]
}

// freePort returns a loopback port that nobody uses now. It lies below the range
// from which systems take the ports of outgoing connections, so that none of those
// has it before the server listens.
func freePort(t *testing.T) string {
	t.Helper()
	var l net.Listener
	var err error
	for range 100 {
		if l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
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
