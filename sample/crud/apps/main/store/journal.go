package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Journal records what happens in the sandboxes. It is in the database, so that
// every worker shows the events of all.
type Journal struct {
	store *Store
	log   *slog.Logger
}

// NewJournal returns the journal in the database of the shop.
func NewJournal(s *Store, log *slog.Logger) *Journal { return &Journal{s, log} }

// JobEvent is an event of a job.
type JobEvent struct {
	Job     int64     `json:"job"`
	Sandbox int       `json:"sandbox"` // NoSandbox for none
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
	Event   string    `json:"event"`
	Details []any     `json:"-"`    // of the text of the event: names and values
	Text    string    `json:"text"` // in the language of the reader, who fills it in
}

// InSandbox reports whether the event has a sandbox.
func (e JobEvent) InSandbox() bool { return e.Sandbox != NoSandbox }

// NoSandbox is the sandbox of an event without one.
const NoSandbox = -1

// The numbers of events that are shown, and kept.
const (
	shownEvents = 60
	keptEvents  = 1000
)

// journalWait bounds the wait of a job for its journal.
const journalWait = 5 * time.Second

type jobKey struct{}

// WithJob returns a context that carries the number of a job, also to Init and
// Cleanup.
func WithJob(ctx context.Context, job int64) context.Context {
	return context.WithValue(ctx, jobKey{}, job)
}

// JobOf returns the number of the job of ctx, or 0.
func JobOf(ctx context.Context) int64 {
	job, _ := ctx.Value(jobKey{}).(int64)
	return job
}

// Begin records a new job and returns its number, which is the number of its
// first event.
func (j *Journal) Begin(ctx context.Context) (job int64, err error) {
	tx, err := j.store.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("begin a job: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after a commit
	row := tx.QueryRowContext(ctx, "INSERT INTO journal (job, sandbox, pid, at, event, details) VALUES (0, $1, $2, $3, $4, '[]') RETURNING id",
		NoSandbox, os.Getpid(), time.Now().UnixMilli(), "begin")
	if err := row.Scan(&job); err != nil {
		return 0, fmt.Errorf("begin a job: %w", err)
	}
	if _, err := tx.ExecContext(ctx, "UPDATE journal SET job = id WHERE id = $1", job); err != nil {
		return 0, fmt.Errorf("begin job %d: %w", job, err)
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM journal WHERE id <= $1", job-keptEvents); err != nil {
		return 0, fmt.Errorf("shorten the journal: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("begin job %d: %w", job, err)
	}
	return job, nil
}

// Write records an event of the job of ctx with the names and values of its text.
// The job continues without its journal. Write also works after the end of ctx.
func (j *Journal) Write(ctx context.Context, sandbox int, event string, details ...any) {
	job := JobOf(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalWait)
	defer cancel()
	text, err := json.Marshal(append([]any{}, details...))
	if err == nil {
		_, err = j.store.db.ExecContext(ctx, "INSERT INTO journal (job, sandbox, pid, at, event, details) VALUES ($1, $2, $3, $4, $5, $6)",
			job, sandbox, os.Getpid(), time.Now().UnixMilli(), event, string(text))
	}
	if err != nil {
		j.log.Error("journal not written", "job", job, "event", event, "err", err)
	}
}

// Newest returns the newest events.
func (j *Journal) Newest(ctx context.Context) ([]JobEvent, error) {
	return list(ctx, j.store.db, "events", func(rows *sql.Rows, e *JobEvent) error {
		var at int64
		var details []byte
		if err := rows.Scan(&e.Job, &e.Sandbox, &e.PID, &at, &e.Event, &details); err != nil {
			return err
		}
		e.At = time.UnixMilli(at).UTC()
		return json.Unmarshal(details, &e.Details)
	}, "SELECT job, sandbox, pid, at, event, details FROM journal ORDER BY id DESC LIMIT $1", shownEvents)
}
