package history_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// campaigns records what run does with a client of d.
func campaigns(t *testing.T, d driver.Driver, run func(ctx context.Context, c *history.Client)) history.History {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	recorder, err := history.NewRecorder(path, "p")
	if err != nil {
		t.Fatal(err)
	}
	l, err := lock.New(d, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	run(t.Context(), history.NewClient("p/1", l, recorder))
	h, read := history.Read(path)
	if err := errors.Join(l.Close(context.Background()), recorder.Close(), read); err != nil {
		t.Fatal(err)
	}
	return h
}

func count(h history.History, k history.Kind, o history.Outcome) (n int) {
	for _, op := range h.Ops {
		if op.Kind == k && op.Outcome == o {
			n++
		}
	}
	return n
}

func TestTermsAreRecordedAsLeases(t *testing.T) {
	h := campaigns(t, memory.NewLock(), func(ctx context.Context, c *history.Client) {
		for range 2 {
			if err := c.Lead(ctx, "k", func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		}
	})
	if got := count(h, history.Acquire, history.OK); got != 2 || len(h.Beliefs) != 2 || count(h, history.Release, history.OK) != 2 {
		t.Errorf("two terms are recorded as %v", h.Ops)
	}
	if err := h.CheckBeliefs(0); err != nil {
		t.Error(err)
	}
}

// repeating is a driver on which each run is due.
type repeating struct {
	*memory.Lock
	last driver.Run
}

func (d *repeating) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	r, err := d.Lock.BeginRun(ctx, g, every, spend)
	r.Due, r.Left, r.Fence = true, time.Millisecond, g.Fence
	d.last = r
	return r, err
}

func (d *repeating) Inspect(ctx context.Context, key string) (driver.State, error) {
	s, err := d.Lock.Inspect(ctx, key)
	s.LastRun = &d.last
	return s, err
}

func TestSecondRunOfATickIsFound(t *testing.T) {
	threeRuns := func(ctx context.Context, c *history.Client) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		runs := 0
		err := c.Every(ctx, "k", 20*time.Millisecond, func(context.Context) error {
			if runs++; runs == 3 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	h := campaigns(t, memory.NewLock(), threeRuns)
	if err := h.CheckRuns(); err != nil || count(h, history.Run, history.OK) != 3 {
		t.Errorf("three runs: %v, %v", err, h.Ops)
	}
	h = campaigns(t, &repeating{Lock: memory.NewLock()}, func(ctx context.Context, c *history.Client) {
		for range 3 {
			threeRuns(ctx, c)
		}
	})
	if err := h.CheckRuns(); err == nil {
		t.Errorf("a tick ran again, and is not found in %v", h.Ops)
	}
}
