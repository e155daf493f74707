//go:build linux || darwin

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/sample/crud/apps/main/handlers"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// Three workers share the buyers of a race, and the jobs of a group. One of them is killed while it holds
// the lock, and another one is frozen before a write: the next holder follows, and
// the late write is refused.
func TestWorkersShareWorkAndFollowHoldersThatFail(t *testing.T) {
	executable, err := build()
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{"MEGA_ENV=dev", "MEGA_DATABASE_URL=sqlite://" + filepath.Join(t.TempDir(), "shop.db")}
	s, err := start(executable, environ, "serve", "--workers", "3")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
	t.Run("race", func(t *testing.T) { raceIsOverWorkers(t, s) })
	t.Run("jobs", func(t *testing.T) { jobsAreShared(t, s) })
	t.Run("kill", func(t *testing.T) {
		victim, p := strike(t, s, "kill", "next")
		if next := newest(p, "next"); next.Fence <= victim || next.Millis <= 0 || next.Text != "kill" || !has(p, "killed", victim) {
			t.Errorf("the next holder of %d is %+v in %+v", victim, next, p.Steps)
		}
	})
	t.Run("freeze", func(t *testing.T) {
		victim, p := strike(t, s, "freeze", "refused")
		refused, next, frozen := newest(p, "refused"), newest(p, "next"), newest(p, "frozen")
		// A slow machine may notice the loss before the look at the lease.
		if refused.Text != "lock.stale" && !strings.HasPrefix(refused.Text, "lock.lost") {
			t.Errorf("the write of %d was refused with %+v", victim, refused)
		}
		if frozen.Fence != victim || next.Fence <= victim || next.Text != "freeze" || !has(p, "wrote", next.Fence) || refused.PID == next.PID || refused.PID != frozen.PID {
			t.Errorf("the next holder of %d is %+v in %+v", victim, next, p.Steps)
		}
	})
}

// strike has a holder fail, and returns its fence, and the page that shows a step.
func strike(t *testing.T, s *shop, how, step string) (victim uint64, p handlers.LocksPage) {
	t.Helper()
	victim = s.hold(t).Fence
	_, _ = s.send("POST", "/locks/"+how, "", asJSON) // the worker that answers may be the one that fails
	return victim, s.awaitLocks(t, "there is the step "+step, func(p handlers.LocksPage) bool {
		return newest(p, step).Fence >= victim && len(p.Holders) == 0
	})
}

// newest returns the newest step of a kind, or the zero Step.
func newest(p handlers.LocksPage, what string) store.Step {
	if i := slices.IndexFunc(p.Steps, func(s store.Step) bool { return s.What == what }); i >= 0 {
		return p.Steps[i]
	}
	return store.Step{}
}

// raceIsOverWorkers has the workers share the buyers of a race: the lock excludes
// all of them.
func raceIsOverWorkers(t *testing.T, s *shop) {
	t.Helper()
	for _, way := range []string{services.RaceLock, services.RaceFIFO} {
		r := s.race(t, 60, way)
		buyers, workers := 0, 0
		for _, p := range r.Processes {
			buyers += p.Buyers
			if p.Worker > 0 {
				workers++
			}
		}
		if buyers != 60 || workers < 2 || r.Peak != 1 || r.Sold != 30 || r.Failed != 0 {
			t.Errorf("%s: %d buyers in %d workers: %+v", way, buyers, workers, r)
		}
	}
}

func jobsAreShared(t *testing.T, s *shop) {
	t.Helper()
	const jobs = 24
	if a, err := s.send("POST", "/bus/jobs", "{}", asJSON); err != nil || a.status != 202 {
		t.Fatalf("publish the jobs: %d %s, %v", a.status, a.body, err)
	}
	var got []int
	for began := time.Now(); len(got) < jobs; time.Sleep(10 * time.Millisecond) {
		got = nil
		for _, w := range s.batch(t).Workers {
			got = append(got, w.Jobs...)
		}
		if time.Since(began) > startTime {
			t.Fatalf("the workers received %v", got)
		}
	}
	slices.Sort(got)
	for i, n := range got {
		if len(got) != jobs || n != i+1 {
			t.Fatalf("the workers received %v, want each of %d jobs once", got, jobs)
		}
	}
}
