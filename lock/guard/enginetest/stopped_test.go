package enginetest

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
	"github.com/megaframework/mega/lock/guard/redisguard"
)

// ttl is short, since each round waits for the end of one.
const ttl = 400 * time.Millisecond

// rounds is the number of holders that are stopped: 200 at scale 20.
func rounds() int {
	scale, err := strconv.ParseFloat(os.Getenv("MEGA_TEST_SCALE"), 64)
	if err != nil {
		scale = 1
	}
	return max(1, int(10*scale))
}

func TestMain(m *testing.M) {
	if os.Getenv("GUARD_CHILD") != "" {
		if err := child(); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// inRounds runs a test for each round. Its connections end with the round: a
// server accepts about a hundred.
func inRounds(t *testing.T, test func(t *testing.T, round string)) {
	t.Helper()
	for round := range rounds() {
		t.Run(strconv.Itoa(round), func(t *testing.T) { test(t, strconv.Itoa(round)) })
	}
}

// The moments at which a holder is stopped.
const (
	beforeCheck  = "before the check" // its own look at the lease has passed
	beforeCommit = "before the commit"
)

// child is a holder. It acquires a key and writes under the guard. At the moment
// of its stop it prints "stop" and waits for a line; at the end it prints the
// outcome.
func child() error {
	ctx := context.Background()
	l, err := locker(ctx, os.Getenv("GUARD_LOCKS"))
	if err != nil {
		return err
	}
	lease, err := l.Acquire(ctx, os.Getenv("GUARD_KEY"), lock.TTL(ttl))
	if err != nil {
		return err
	}
	moment := os.Getenv("GUARD_MOMENT")
	e := engine{driver: os.Getenv("GUARD_DRIVER"), dsn: os.Getenv("GUARD_DSN")}
	if e.driver == "redis" {
		err = saveInRedis(lease, e.dsn, os.Getenv("GUARD_KEY"), pause)
	} else {
		dialect, _ := strconv.Atoi(os.Getenv("GUARD_DIALECT"))
		e.dialect = guard.Dialect(dialect)
		var db *sql.DB
		if db, err = sql.Open(e.driver, e.dsn); err != nil {
			return err
		}
		err = e.saveStopped(lease, db, moment)
	}
	switch {
	case errors.Is(err, lock.ErrStale):
		fmt.Println("stale")
	case err != nil:
		fmt.Println("refused:", strings.ReplaceAll(err.Error(), "\n", " "))
	default:
		fmt.Println("committed")
	}
	return nil
}

// pause is where the parent stops this process.
func pause() {
	fmt.Println("stop")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// saveStopped writes a line, with a stop at the moment. A request that has left
// the process is not cancelled by the loss of the lease, so neither is this one.
func (e engine) saveStopped(lease *lock.Lease, db *sql.DB, moment string) error {
	if moment == beforeCommit {
		return guard.Tx(lease.Context(), db, e.dialect, func(tx *sql.Tx) error {
			if err := e.write(context.Background(), tx, lease.Key(), lease.Fence()); err != nil {
				return err
			}
			pause()
			return nil
		})
	}
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := guard.SQL(lease.Context(), &stopped{Tx: tx}, e.dialect); err != nil {
		return err
	}
	if err := e.write(ctx, tx, lease.Key(), lease.Fence()); err != nil {
		return err
	}
	return tx.Commit()
}

// stopped pauses before the first statement.
type stopped struct {
	*sql.Tx
	was bool
}

func (s *stopped) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	if !s.was {
		s.was = true
		pause()
	}
	return s.Tx.ExecContext(context.Background(), query, args...)
}

func (s *stopped) QueryRowContext(_ context.Context, query string, args ...any) *sql.Row {
	return s.Tx.QueryRowContext(context.Background(), query, args...)
}

// saveInRedis appends the fence to a list. before runs when the script is about
// to be sent.
func saveInRedis(lease *lock.Lease, url, key string, before func()) error {
	o, err := goredis.ParseURL(url)
	if err != nil {
		return err
	}
	client := goredis.NewClient(o)
	defer func() { _ = client.Close() }()
	client.AddHook(&hook{before: before})
	_, err = redisguard.Redis(lease.Context(), client, "return redis.call('RPUSH', KEYS[1], ARGV[1])", []string{"ledger:" + key}, lease.Fence())
	return err
}

// hook pauses before the first script.
type hook struct {
	before func()
	was    bool
}

func (h *hook) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h *hook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (h *hook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		if !h.was {
			h.was = true
			h.before()
		}
		return next(context.WithoutCancel(ctx), cmd)
	}
}

// locker returns a Locker on a Redis server, which stands for the fleet's.
func locker(ctx context.Context, url string) (*lock.Locker, error) {
	d, err := redis.OpenLock(ctx, redis.Config{URL: url})
	if err != nil {
		return nil, err
	}
	return lock.New(d, lock.Config{})
}

// holder is a child process.
type holder struct {
	t       *testing.T
	process *redistest.Process
	in      io.Writer
	out     *bufio.Reader
}

func newHolder(t *testing.T, locks string, e engine, key, moment string) *holder {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "GUARD_CHILD=1", "GUARD_LOCKS="+locks, "GUARD_KEY="+key, "GUARD_MOMENT="+moment,
		"GUARD_DRIVER="+e.driver, "GUARD_DSN="+e.dsn, "GUARD_DIALECT="+strconv.Itoa(int(e.dialect)))
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = childOut
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	_ = childOut.Close() // the child has its own
	t.Cleanup(func() {
		_ = p.Kill()
		_ = out.Close()
	})
	return &holder{t, p, in, bufio.NewReader(out)}
}

func (h *holder) line() string {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("the holder has ended: %v", err)
	}
	return strings.TrimSpace(line)
}

// newStopped returns a holder that is stopped at the moment. On a busy machine the
// lease of a holder may end earlier, as may its idle transaction, and a server of locks
// may not answer in time; then another one takes its place.
func newStopped(t *testing.T, locks string, e engine, key, moment string) *holder {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		h := newHolder(t, locks, e, key, moment)
		switch got := h.line(); {
		case got == "stop":
			if err := h.process.Pause(); err != nil {
				t.Fatal(err)
			}
			return h
		case !strings.HasPrefix(got, "refused:") && !strings.Contains(got, lock.ErrUnavailable.Error()), time.Now().After(end):
			t.Fatalf("the holder says %q", got)
		}
	}
}

// resume lets the holder go on, and returns the outcome of its write.
func (h *holder) resume() string {
	h.t.Helper()
	if err := h.process.Continue(); err != nil {
		h.t.Fatal(err)
	}
	if _, err := io.WriteString(h.in, "\n"); err != nil {
		h.t.Fatal(err)
	}
	return h.line()
}

func TestAHolderThatWasStoppedBeforeTheCheckIsRefusedByTheStore(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	all := append(engines(t), engine{name: "Redis", driver: "redis", dsn: server.URL()})
	l := openLocker(t, server.URL())
	for _, e := range all {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			inRounds(t, func(t *testing.T, round string) {
				key := e.driver + ":check:" + round
				h := newStopped(t, server.URL(), e, key, beforeCheck)
				successor := take(t, l, key)
				e.mustSave(t, successor)
				if got := h.resume(); got != "stale" {
					t.Errorf("the write of the stopped holder: %s, want stale", got)
				}
				e.wantOnly(t, key, successor.Fence())
			})
		})
	}
}

func TestAHolderThatWasStoppedBeforeTheCommitWritesNothingAfterItsSuccessor(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	l := openLocker(t, server.URL())
	for _, e := range engines(t) {
		switch e.dialect { // the holder's sessions end when their transaction idles
		case guard.Postgres:
			e.dsn += "&options=-c%20idle_in_transaction_session_timeout%3D500"
		case guard.MySQL:
			e.dsn += "?idle_transaction_timeout=1"
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			inRounds(t, func(t *testing.T, round string) {
				key := e.driver + ":commit:" + round
				h := newStopped(t, server.URL(), e, key, beforeCommit)
				successor := take(t, l, key)
				// The stopped transaction keeps its rows. PostgreSQL and MariaDB
				// end its session; SQLite has no such thing, and the successor
				// waits for the holder.
				saved := make(chan error, 1)
				go func() { saved <- e.save(e.open(t), successor) }()
				if e.dialect != guard.SQLite {
					if err := <-saved; err != nil {
						t.Fatalf("the successor: %v", err)
					}
				}
				if got := h.resume(); !strings.HasPrefix(got, "refused:") {
					t.Errorf("the commit of the stopped holder: %s, want it refused", got)
				}
				if e.dialect == guard.SQLite {
					if err := <-saved; err != nil {
						t.Fatalf("the successor: %v", err)
					}
				}
				e.wantOnly(t, key, successor.Fence())
			})
		})
	}
}

func openLocker(t *testing.T, url string) *lock.Locker {
	t.Helper()
	l, err := answered(func() (*lock.Locker, error) { return locker(t.Context(), url) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// answered returns the result of call, and repeats it for a while: on a busy machine a
// server may get no processor for the second that a call has.
func answered[T any](call func() (T, error)) (result T, err error) {
	for end := time.Now().Add(20 * time.Second); ; {
		if result, err = call(); !errors.Is(err, lock.ErrUnavailable) || time.Now().After(end) {
			return result, err
		}
	}
}

// take acquires a key when the lease of its holder has run out.
func take(t *testing.T, l *lock.Locker, key string) *lock.Lease {
	t.Helper()
	lease, err := answered(func() (*lock.Lease, error) {
		return l.Acquire(t.Context(), key, lock.TTL(time.Minute), lock.Wait(time.Minute))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release() })
	return lease
}

func (e engine) mustSave(t *testing.T, lease *lock.Lease) {
	t.Helper()
	err := error(nil)
	if e.driver == "redis" {
		err = saveInRedis(lease, e.dsn, lease.Key(), func() {})
	} else {
		err = e.save(e.open(t), lease)
	}
	if err != nil {
		t.Fatalf("the successor: %v", err)
	}
}

// wantOnly checks that one write of key was kept.
func (e engine) wantOnly(t *testing.T, key string, fence uint64) {
	t.Helper()
	var got []uint64
	if e.driver != "redis" {
		got = e.ledger(t, e.open(t), key)
	} else {
		o, err := goredis.ParseURL(e.dsn)
		if err != nil {
			t.Fatal(err)
		}
		client := goredis.NewClient(o)
		defer func() { _ = client.Close() }()
		if err := client.LRange(t.Context(), "ledger:"+key, 0, -1).ScanSlice(&got); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []uint64{fence}) {
		t.Errorf("the ledger of %s has %v, want %d only", key, got, fence)
	}
}
