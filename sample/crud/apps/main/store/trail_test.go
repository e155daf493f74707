package store

import (
	"errors"
	"testing"

	"github.com/megaframework/mega/lock"
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
