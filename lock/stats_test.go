package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

func TestStatsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		held := acquire(t, l, "k")
		if _, err := l.TryAcquire(t.Context(), "k"); err == nil {
			t.Fatal("two holders")
		}
		if _, err := l.Acquire(t.Context(), "k", lock.Wait(time.Second)); err == nil {
			t.Fatal("two holders")
		}
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Acquire(ended, "k"); !errors.Is(err, context.DeadlineExceeded) { // its wait has not passed
			t.Fatal(err)
		}
		release(t, held)
		lost := acquire(t, l, "k")
		if _, err := l.ForceRelease(t.Context(), "k", "test"); err != nil {
			t.Fatal(err)
		}
		_ = lost.Stale() // a store has refused its write
		_ = lost.Release()
		s := l.Stats()
		if s.Active != 0 || s.Waiting != 0 || s.Acquired != 2 || s.Contended != 3 || s.TimedOut != 1 || s.Lost != 1 || s.Forced != 1 || s.Stale != 1 {
			t.Errorf("got %+v", s)
		}
		if s.Hold.Count() != 2 || s.Hold.Sum != 2*time.Second || s.Wait.Count() != 2 {
			t.Errorf("histograms: hold %+v, wait %+v", s.Hold, s.Wait)
		}
		if got := s.Hold.Quantile(1); got < 2*time.Second || got > 4*time.Second {
			t.Errorf("longest hold %v, want a bound of 2s", got)
		}
	})
}

// A call that is refused at once has not timed out.
func TestAWithdrawnPoolIsNotATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		p := &lock.Pool{Key: "pool", Size: 1, Strikes: 1, Init: func(context.Context, *lock.Slot) error { return errors.New("broken") }}
		for range 2 {
			if _, err := l.AcquireSlot(t.Context(), p); err == nil {
				t.Fatal("the slot is ready")
			}
		}
		if s := l.Stats(); s.Contended != 1 || s.TimedOut != 0 {
			t.Errorf("%d contended, %d timed out", s.Contended, s.TimedOut)
		}
	})
}

func TestAWriteThatAStoreRefusesIsReported(t *testing.T) {
	var seen recorder
	l := process(t, memory.NewLock(), lock.Config{Observer: &seen})
	plain, slot := acquire(t, l, "k"), acquire(t, l, "pool", lock.Slots(2))
	for _, held := range []*lock.Lease{plain, slot} {
		if err := held.Stale(); !errors.Is(err, lock.ErrStale) || err.Key != held.Key() || err.Fence != held.Fence() || strings.Contains(err.Error(), " slot ") != (held == slot) {
			t.Errorf("got %+v", err)
		}
		release(t, held)
	}
	want := []lock.Stale{{Key: "k", Fence: plain.Fence(), Slot: -1}, {Key: "pool", Fence: slot.Fence(), Slot: slot.Slot()}}
	if got := eventsOf[lock.Stale](&seen); !slices.Equal(got, want) {
		t.Errorf("reported %+v, want %+v", got, want)
	}
}

func TestHeldAreTheKeysThatAreInUse(t *testing.T) {
	for name, l := range map[string]*lock.Locker{
		"process": process(t, memory.NewLock(), lock.Config{}), "fleet": process(t, newFleet(), lock.Config{}),
	} {
		b, a := acquire(t, l, "b"), acquire(t, l, "a")
		if got := l.Held(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%s: got %q", name, got)
		}
		release(t, a)
		release(t, b)
		if got := l.Held(); len(got) != 0 {
			t.Errorf("%s: nothing is held, got %q", name, got)
		}
	}
}

func TestQuantilesAreBoundsOfBuckets(t *testing.T) {
	var h lock.Histogram
	if got := h.Quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	h.Counts[0], h.Counts[10], h.Counts[lock.Buckets-1] = 50, 49, 1
	for q, want := range map[float64]time.Duration{
		0:    time.Microsecond,
		0.49: time.Microsecond,
		0.5:  time.Microsecond << 10,
		0.98: time.Microsecond << 10,
		1:    lock.Forever,
	} {
		if got := h.Quantile(q); got != want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
}

func TestEmptyListsAreLists(t *testing.T) {
	l := process(t, memory.NewLock(), lock.Config{})
	list, err := l.List(t.Context(), "")
	if err != nil || list == nil {
		t.Errorf("no locks are %#v, %v", list, err)
	}
	s, err := l.Inspect(t.Context(), "k")
	if err != nil || s.Holders == nil || s.Waiters == nil {
		t.Errorf("a free lock is %#v, %v", s, err)
	}
}
