package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

// A holder looks at its lease, is paused, and writes when the next holder has
// written.
func lateWriteIsRefused(t *testing.T, url string) {
	t.Helper()
	trail := NewTrail(opened(t, url))
	early, next := lease(t, 7), lease(t, 7)
	if err := trail.WriteLate(early, Step{What: "early"}, func() {}); err != nil {
		t.Fatalf("a write that nobody overtakes: %v", err)
	}
	err := trail.WriteLate(early, Step{What: "late"}, func() {
		if err := trail.Write(next, Step{What: "next", Fence: 1 << 52, Millis: 1.5, Text: "x"}); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, lock.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
	steps, err := trail.Newest(t.Context())
	if err != nil || len(steps) != 2 || steps[0].What != "next" || steps[0].Fence != 1<<52 || steps[0].Millis != 1.5 || steps[0].Text != "x" || steps[1].What != "early" {
		t.Errorf("the trail is %+v, %v", steps, err)
	}
}

func trailIsBounded(t *testing.T, url string) {
	t.Helper()
	trail := NewTrail(opened(t, url))
	for range shownSteps + 5 {
		if err := trail.Add(t.Context(), Step{What: "acquired"}); err != nil {
			t.Fatal(err)
		}
	}
	if steps, err := trail.Newest(t.Context()); err != nil || len(steps) != shownSteps || steps[0].ID < steps[1].ID {
		t.Errorf("%d steps, %v; want the %d newest, the newest first", len(steps), err, shownSteps)
	}
}

// The reason of a forced release is any text of an operator.
func stepHasAnyText(t *testing.T, url string) {
	t.Helper()
	trail := NewTrail(opened(t, url))
	if err := trail.Add(t.Context(), Step{What: "lost", Text: "a\x00b\xffc"}); err != nil {
		t.Fatal(err)
	}
	steps, err := trail.Newest(t.Context())
	if err != nil || len(steps) != 1 || !utf8.ValidString(steps[0].Text) || !strings.HasSuffix(steps[0].Text, "c") {
		t.Errorf("the trail is %+v, %v", steps, err)
	}
}

// holderDoesNotWaitForItsTrail has a database that does not answer.
func holderDoesNotWaitForItsTrail(t *testing.T, url string) {
	t.Helper()
	s := opened(t, url)
	if s.dialect == guard.SQLite {
		return // its busy_timeout bounds each wait
	}
	holder := lease(t, 7)
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE trail"); err != nil {
		t.Fatal(err)
	}
	trail, failed := NewTrail(s), make(chan error, 2)
	go func() { failed <- trail.Add(context.WithoutCancel(t.Context()), Step{What: "lost"}) }()
	go func() { failed <- trail.WriteLate(holder, Step{What: "wrote"}, func() {}) }()
	for range 2 {
		select {
		case err := <-failed:
			if err == nil {
				t.Error("a step was recorded in a table that is locked")
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a holder waits for its trail")
		}
	}
}
