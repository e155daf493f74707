package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

// A circle of two is reported within 50 ms of its last wait, with both keys and
// both call sites, however long the waits may last. A busy machine delays some.
func TestACircleOfTwoIsReportedAtOnceWithBothCallSites(t *testing.T) {
	l := newMemoryLocker(t)
	quickest := time.Hour
	for range 20 {
		quickest = min(quickest, circleOfTwo(t, l))
	}
	if quickest > 50*time.Millisecond {
		t.Errorf("the quickest of 20 reports took %v", quickest)
	}
}

// circleOfTwo makes two calls wait for each other and returns how long it took to
// break the circle.
func circleOfTwo(t *testing.T, l *lock.Locker) time.Duration {
	t.Helper()
	var errs [2]error
	var sites [2]string // of the waits
	var began [2]time.Time
	var all, held sync.WaitGroup
	held.Add(2)
	for i, keys := range [][2]string{{"a", "b"}, {"b", "a"}} {
		all.Go(func() {
			errs[i] = l.With(t.Context(), keys[0], func(ctx context.Context) error {
				held.Done()
				held.Wait()
				began[i] = time.Now()
				_, file, line, _ := runtime.Caller(0)
				sites[i] = fmt.Sprintf("%s:%d", file, line+2)
				return l.With(ctx, keys[1], func(context.Context) error { return nil }, lock.Wait(time.Hour))
			})
		})
	}
	all.Wait()
	took := time.Since(slices.MaxFunc(began[:], time.Time.Compare))
	circle, ok := errors.AsType[*lock.DeadlockError](errors.Join(errs[:]...))
	if !ok || len(circle.Circle) != 2 || (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("the calls got %v and %v", errs[0], errs[1])
	}
	for _, w := range circle.Circle {
		if i := slices.Index([]string{"a", "b"}, w.Holds); i < 0 || w.Site != sites[i] || w.Key == w.Holds {
			t.Errorf("the circle has %+v, want one of %q", w, sites)
		}
	}
	return took
}

func TestOfACircleOfThreeTheWaitThatEndsFirstGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newMemoryLocker(t)
		keys := []string{"a", "b", "c"}
		waits := []time.Duration{time.Hour, time.Minute, lock.Forever}
		errs := make([]error, 3)
		start := time.Now()
		var all sync.WaitGroup
		for i := range keys {
			all.Go(func() {
				errs[i] = l.With(t.Context(), keys[i], func(ctx context.Context) error {
					time.Sleep(time.Duration(i+1) * time.Second) // the last one completes the circle
					return l.With(ctx, keys[(i+1)%3], func(context.Context) error { return nil }, lock.Wait(waits[i]))
				})
			})
		}
		all.Wait()
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("the circle was found after %v, want 3s", took)
		}
		if errs[0] != nil || errs[2] != nil {
			t.Errorf("the others got %v and %v", errs[0], errs[2])
		}
		circle, ok := errors.AsType[*lock.DeadlockError](errs[1])
		if !ok || !errors.Is(errs[1], lock.ErrDeadlock) || circle.Code() != "lock.deadlock" {
			t.Fatalf("the second got %v", errs[1])
		}
		var text []string
		for _, w := range circle.Circle {
			text = append(text, w.Holds+" waits for "+w.Key)
			if !strings.Contains(w.Site, "lock/circle_test.go:") {
				t.Errorf("the call site is %s", w.Site)
			}
		}
		if want := []string{"b waits for c", "c waits for a", "a waits for b"}; !slices.Equal(text, want) {
			t.Errorf("the circle is %q, want %q", text, want)
		}
	})
}

// A wait ends with the deadline of its context, too (A5).
func TestOfACircleTheWaitWhoseDeadlineComesFirstGivesUp(t *testing.T) {
	for _, c := range []struct {
		name      string
		deadlines [2]time.Duration // of the calls that hold "a" and "b"; 0 is none
		waits     [2]time.Duration
		victim    int
	}{
		{"a deadline before the end of a Wait", [2]time.Duration{time.Minute, 0}, [2]time.Duration{time.Hour, 30 * time.Minute}, 0},
		{"a deadline without a Wait", [2]time.Duration{time.Minute, 0}, [2]time.Duration{lock.Forever, lock.Forever}, 0},
		{"a deadline after the end of a Wait", [2]time.Duration{time.Hour, 10 * time.Minute}, [2]time.Duration{time.Minute, time.Hour}, 0},
		{"two deadlines", [2]time.Duration{time.Hour, time.Minute}, [2]time.Duration{lock.Forever, lock.Forever}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newMemoryLocker(t)
				keys, errs := []string{"a", "b"}, make([]error, 2)
				var all sync.WaitGroup
				for i := range keys {
					all.Go(func() {
						errs[i] = l.With(t.Context(), keys[i], func(ctx context.Context) error {
							if d := c.deadlines[i]; d > 0 {
								bounded, cancel := context.WithTimeout(ctx, d)
								defer cancel()
								ctx = bounded
							}
							time.Sleep(time.Duration(i+1) * time.Second)
							return l.With(ctx, keys[1-i], func(context.Context) error { return nil }, lock.Wait(c.waits[i]))
						})
					})
				}
				all.Wait()
				if !errors.Is(errs[c.victim], lock.ErrDeadlock) || errs[1-c.victim] != nil {
					t.Errorf("the calls got %v and %v, want that number %d gives up", errs[0], errs[1], c.victim)
				}
			})
		})
	}
}

func newMemoryLocker(t *testing.T) *lock.Locker {
	t.Helper()
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Every circle is broken: calls in any order, which would wait forever, end.
func TestCallsInAnyOrderEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newMemoryLocker(t)
		var done, broken atomic.Int64
		var nest func(ctx context.Context, keys []string) error
		nest = func(ctx context.Context, keys []string) error {
			if len(keys) == 0 {
				time.Sleep(time.Millisecond)
				return nil
			}
			return l.With(ctx, keys[0], func(ctx context.Context) error { return nest(ctx, keys[1:]) }, lock.Wait(lock.Forever))
		}
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for range max(suite.Scaled(500), 20) {
					keys := []string{"a", "b", "c", "d", "e", "f"}
					rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
					switch err := nest(context.Background(), keys[:2+rand.IntN(3)]); {
					case errors.Is(err, lock.ErrDeadlock):
						broken.Add(1)
					case err != nil:
						t.Error(err)
					default:
						done.Add(1)
					}
				}
			})
		}
		all.Wait() // a circle that stays would be a panic of the bubble
		if done.Load() == 0 || broken.Load() == 0 {
			t.Errorf("%d calls went through and %d gave up, want some of both", done.Load(), broken.Load())
		}
		t.Logf("%d calls went through, %d gave up", done.Load(), broken.Load())
	})
}

// Nested calls that take their keys in one order are never reported.
func TestCallsInOneOrderAreNoCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newMemoryLocker(t)
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		var nest func(ctx context.Context, keys []string) error
		nest = func(ctx context.Context, keys []string) error {
			if len(keys) == 0 {
				return nil
			}
			return l.With(ctx, keys[0], func(ctx context.Context) error { return nest(ctx, keys[1:]) }, lock.Wait(lock.Forever))
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range suite.Scaled(5000) { // of two keys each: 100 000 acquisitions
					i := rand.IntN(len(names) - 1)
					j := i + 1 + rand.IntN(len(names)-i-1)
					err := nest(context.Background(), []string{names[i], names[j]})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}
