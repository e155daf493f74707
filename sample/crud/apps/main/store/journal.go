package store

import (
	"context"
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
	Text    string    `json:"text"`
}

// InSandbox reports whether the event has a sandbox.
func (e JobEvent) InSandbox() bool { return e.Sandbox != NoSandbox }

// NoSandbox is the sandbox of an event without one.
const NoSandbox = -1

const journalSchema = `CREATE TABLE journal (
	id      INTEGER PRIMARY KEY AUTOINCREMENT,
	job     INTEGER NOT NULL,
	sandbox INTEGER NOT NULL,
	pid     INTEGER NOT NULL,
	at      INTEGER NOT NULL,
	text    TEXT    NOT NULL
) STRICT`

// The numbers of events that are shown, and kept.
const (
	shownEvents = 60
	keptEvents  = 1000
)

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

// Begin records a new job and returns its number.
func (j *Journal) Begin(ctx context.Context) (job int64, err error) {
	row := j.store.db.QueryRowContext(ctx, `INSERT INTO journal (job, sandbox, pid, at, text)
		SELECT COALESCE(MAX(job), 0) + 1, ?, ?, ?, ? FROM journal RETURNING job`,
		NoSandbox, os.Getpid(), time.Now().UnixMilli(), "asks for a sandbox")
	if err := row.Scan(&job); err != nil {
		return 0, fmt.Errorf("begin a job: %w", err)
	}
	if _, err := j.store.db.ExecContext(ctx, "DELETE FROM journal WHERE id <= (SELECT MAX(id) FROM journal) - ?", keptEvents); err != nil {
		return 0, fmt.Errorf("shorten the journal: %w", err)
	}
	return job, nil
}

// Write records an event of the job of ctx. The job continues without its
// journal, also after the end of ctx.
func (j *Journal) Write(ctx context.Context, sandbox int, text string) {
	job := JobOf(ctx)
	_, err := j.store.db.ExecContext(context.WithoutCancel(ctx), "INSERT INTO journal (job, sandbox, pid, at, text) VALUES (?, ?, ?, ?, ?)",
		job, sandbox, os.Getpid(), time.Now().UnixMilli(), text)
	if err != nil {
		j.log.Error("journal not written", "job", job, "text", text, "err", err)
	}
}

// Newest returns the newest events.
func (j *Journal) Newest(ctx context.Context) ([]JobEvent, error) {
	rows, err := j.store.db.QueryContext(ctx, "SELECT job, sandbox, pid, at, text FROM journal ORDER BY id DESC LIMIT ?", shownEvents)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	defer func() { _ = rows.Close() }()
	events := []JobEvent{}
	for rows.Next() {
		var e JobEvent
		var at int64
		if err := rows.Scan(&e.Job, &e.Sandbox, &e.PID, &at, &e.Text); err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		e.At = time.UnixMilli(at).UTC()
		events = append(events, e)
	}
	return events, rows.Err()
}
