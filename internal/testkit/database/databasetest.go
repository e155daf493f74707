// Package databasetest starts real PostgreSQL and MariaDB servers for tests, on
// free loopback ports. A test owns its server: it ends with the test, and does not
// outlive the process that started it.
package databasetest

import (
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// Postgres starts a PostgreSQL server and returns the URL of its database, which
// answers soon. The server refuses to run as root, so root starts it as the user
// postgres.
func Postgres(t *testing.T) (url string) {
	t.Helper()
	dir := serverDir(t, "postgres")
	run(t, "postgres", binary(t, "initdb"), "--auth=trust", "--username=mega", "--no-sync", "--encoding=UTF8", "--locale=C", "-D", filepath.Join(dir, "data"))
	_, port, _ := net.SplitHostPort(redistest.FreeAddr(t))
	start(t, as("postgres", binary(t, "postgres"), "-D", filepath.Join(dir, "data"), "-k", dir, "-p", port, "-c", "listen_addresses=127.0.0.1",
		"-c", "fsync=off"))
	return "postgres://mega@127.0.0.1:" + port + "/postgres?sslmode=disable"
}

// MariaDB starts a MariaDB server, which stands for MySQL, and returns the DSN of
// its database, which answers soon.
func MariaDB(t *testing.T) (dsn string) {
	t.Helper()
	dir := serverDir(t, "mysql")
	data := filepath.Join(dir, "data")
	run(t, "mysql", binary(t, "mariadb-install-db"), "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--datadir="+data)
	_, port, _ := net.SplitHostPort(redistest.FreeAddr(t))
	start(t, as("mysql", binary(t, "mariadbd"), "--no-defaults", "--datadir="+data, "--socket="+filepath.Join(dir, "s"), "--pid-file="+filepath.Join(dir, "pid"),
		"--port="+port, "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0"))
	return "root@tcp(127.0.0.1:" + port + ")/mysql"
}

// serverDir returns a folder that the account of a server can use.
func serverDir(t *testing.T, account string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", account) //nolint:usetesting // its account may not enter t.TempDir
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
