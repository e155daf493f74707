package enginetest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

// ErrLost means that nothing is written. A commit whose answer is lost may have
// written, also if the lease ends at the same time.
func TestACommitWithoutAnAnswerIsNotReportedAsALostLease(t *testing.T) {
	e := sqlite(t)
	db := e.open(t)
	lease := acquire(t, t.Context(), "k")
	reset := errors.New("connection reset by peer")
	lossy := sql.OpenDB(lossyCommits{e.dsn, db.Driver(), func() error {
		_ = lease.Release()
		return reset
	}})
	defer func() { _ = lossy.Close() }()
	err := e.save(lossy, lease)
	if !errors.Is(err, reset) || errors.Is(err, lock.ErrLost) {
		t.Errorf("got %v, want the error of the commit alone", err)
	}
	if got := e.ledger(t, db, "k"); !slices.Equal(got, []uint64{lease.Fence()}) {
		t.Errorf("the ledger has %v", got)
	}
	if err := guard.Tx(lease.Context(), db, e.dialect, func(*sql.Tx) error { return nil }); !errors.Is(err, lock.ErrLost) {
		t.Errorf("before the commit: %v, want ErrLost", err)
	}
}

// lossyCommits connects to SQLite; after each commit, answer replaces the
// answer.
type lossyCommits struct {
	dsn    string
	driver driver.Driver
	answer func() error
}

func (c lossyCommits) Driver() driver.Driver { return c.driver }

func (c lossyCommits) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return lossyConn{conn.(sqliteConn), c.answer}, nil
}

type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type lossyConn struct {
	sqliteConn
	answer func() error
}

func (c lossyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.sqliteConn.BeginTx(ctx, opts)
	return lossyTx{tx, c.answer}, err
}

type lossyTx struct {
	driver.Tx
	answer func() error
}

func (tx lossyTx) Commit() error { return errors.Join(tx.Tx.Commit(), tx.answer()) }
