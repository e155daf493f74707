//go:build linux || darwin

package admin_test

import (
	"testing"
	"time"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

func TestViewsHaveDurationsAsTextAndHistogramsWithTheirBounds(t *testing.T) {
	p, _ := process(t)
	c := admin.Dial(open(t, p, folders(shortdir.New(t))).Path())
	lease, err := p.Locks.Acquire(t.Context(), "order:1", lock.TTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Key     string
		Waiters []any
		Holders []struct {
			Fence uint64
			Left  time.Duration
			Text  string `json:"left_text"`
		}
	}
	var one entry
	var list struct{ Locks []entry }
	var stats struct {
		Active int
		Wait   struct {
			Counts     []uint64
			SumText    string          `json:"sum_text"`
			Bounds     []time.Duration `json:"bounds"`
			BoundsText []string        `json:"bounds_text"`
		}
	}
	for path, v := range map[string]any{"/lock?key=order:1": &one, "/locks": &list, "/stats": &stats} {
		if err := c.Get(t.Context(), path, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range append(list.Locks, one) {
		h := e.Holders[0]
		if e.Key != "order:1" || e.Waiters == nil || h.Fence != lease.Fence() || h.Text != h.Left.Round(time.Millisecond).String() {
			t.Errorf("got %+v", e)
		}
	}
	if w := stats.Wait; stats.Active != 1 || len(w.Counts) != lock.Buckets || len(w.Bounds) != lock.Buckets-1 || w.Bounds[1] != 2*time.Microsecond || w.BoundsText[10] != "1.024ms" || w.SumText == "" {
		t.Errorf("got %+v", stats)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}
