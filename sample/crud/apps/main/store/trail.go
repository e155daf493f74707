package store

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/guard"
)

// Trail records what happens to the lock of the page of locks. It is in the
// database, so that every worker shows the steps of all.
type Trail struct{ store *Store }

// NewTrail returns the trail in the database of the shop.
func NewTrail(s *Store) *Trail { return &Trail{s} }

// Step is an event of a holder.
type Step struct {
	ID     int64     `json:"id"`
	At     time.Time `json:"at"`
	PID    int       `json:"pid"`
	What   string    `json:"what"`
	Fence  uint64    `json:"fence,omitempty"`
	Millis float64   `json:"millis,omitempty"` // the duration that was measured
	Text   string    `json:"text,omitempty"`   // a code or a reason
}

// The numbers of steps that are shown, and kept.
const (
	shownSteps = 20
	keptSteps  = 500
)

// trailWait bounds the wait of a holder for its trail.
const trailWait = 5 * time.Second

const insertStep = "INSERT INTO trail (at, pid, what, fence, millis, text) VALUES ($1, $2, $3, $4, $5, $6)"

// row returns the values of insertStep for a step of this process. The text may be any
// reason; PostgreSQL refuses a zero byte and what is not UTF-8.
func (s Step) row() []any {
	text := strings.ToValidUTF8(strings.ReplaceAll(s.Text, "\x00", "\uFFFD"), "\uFFFD")
	return []any{time.Now().UnixMilli(), os.Getpid(), s.What, int64(s.Fence), s.Millis, text}
}

// Add records a step of this process.
func (t *Trail) Add(ctx context.Context, s Step) error {
	ctx, cancel := context.WithTimeout(ctx, trailWait)
	defer cancel()
	if _, err := t.store.db.ExecContext(ctx, insertStep, s.row()...); err != nil {
		return fmt.Errorf("add to the trail: %w", err)
	}
	if _, err := t.store.db.ExecContext(ctx, "DELETE FROM trail WHERE id <= (SELECT MAX(id) FROM trail) - $1", keptSteps); err != nil {
		return fmt.Errorf("shorten the trail: %w", err)
	}
	return nil
}

// Write records a step under the leases of ctx. It is refused if a later holder
// has written.
func (t *Trail) Write(ctx context.Context, s Step) error {
	return guard.Tx(ctx, t.store.db, t.store.dialect, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, insertStep, s.row()...)
		return err
	})
}

// WriteLate is Write with a pause between the last look at the leases of ctx and
// the transaction. A lease that is lost meanwhile is found by the database alone.
func (t *Trail) WriteLate(ctx context.Context, s Step, pause func()) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	late := &lateTx{db: t.store.db, pause: func() {
		pause()
		time.AfterFunc(trailWait, cancel)
	}}
	err := guard.SQL(ctx, late, t.store.dialect)
	if late.tx == nil {
		return err
	}
	defer func() { _ = late.tx.Rollback() }() // has no effect after a commit
	if err != nil {
		return err
	}
	if _, err := late.tx.ExecContext(ctx, insertStep, s.row()...); err != nil {
		return fmt.Errorf("write late: %w", err)
	}
	return late.tx.Commit()
}

// lateTx is a transaction that pauses before it begins, at its first statement.
type lateTx struct {
	db    *sql.DB
	tx    *sql.Tx
	pause func()
}

func (l *lateTx) begin(ctx context.Context) (err error) {
	if l.tx == nil {
		l.pause()
		l.tx, err = l.db.BeginTx(ctx, nil)
	}
	return err
}

// ExecContext executes a statement of the transaction.
func (l *lateTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	return l.tx.ExecContext(ctx, query, args...)
}

// QueryRowContext queries a row in the transaction.
func (l *lateTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := l.begin(ctx); err != nil {
		return l.db.QueryRowContext(ctx, query, args...) // fails like the begin
	}
	return l.tx.QueryRowContext(ctx, query, args...)
}

// Newest returns the newest steps, the newest first.
func (t *Trail) Newest(ctx context.Context) ([]Step, error) {
	return list(ctx, t.store.db, "steps", func(rows *sql.Rows, s *Step) error {
		var at, fence int64
		err := rows.Scan(&s.ID, &at, &s.PID, &s.What, &fence, &s.Millis, &s.Text)
		s.At, s.Fence = time.UnixMilli(at).UTC(), uint64(fence)
		return err
	}, "SELECT id, at, pid, what, fence, millis, text FROM trail ORDER BY id DESC LIMIT $1", shownSteps)
}
