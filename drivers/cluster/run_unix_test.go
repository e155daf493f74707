//go:build linux || darwin

package cluster_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// party is the processes at one socket.
type party struct {
	t      *testing.T
	socket string
}

func newParty(t *testing.T) *party {
	t.Helper()
	return &party{t, filepath.Join(shortdir.New(t), "s")}
}

// come adds a process. The first one is the hub. The returned function ends it.
func (p *party) come() (l *lock.Locker, leave func()) {
	p.t.Helper()
	n, err := cluster.Dial(p.t.Context(), cluster.Config{Socket: p.socket})
	if err != nil {
		p.t.Fatal(err)
	}
	l, err = lock.New(n.Locks("shop"), lock.Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	left := false
	leave = func() {
		if left {
			return
		}
		left = true
		if err := l.Close(context.Background()); err != nil {
			p.t.Error(err)
		}
		if err := n.Close(context.Background()); err != nil {
			p.t.Error(err)
		}
	}
	p.t.Cleanup(leave)
	return l, leave
}

func nothing(context.Context) error { return nil }

// A tick that is spent stays so as long as any process lives, also if the hub
// and the process of the run have ended, and also for a process that came after
// the run.
func TestRunsOutliveTheHubAndTheirProcess(t *testing.T) {
	p := newParty(t)
	_, hubLeaves := p.come()
	runs, runnerLeaves := p.come()
	for _, key := range []string{"job", "other"} {
		if ran, err := runs.Once(t.Context(), key, lock.MaxEvery, nothing, lock.Label("nightly")); !ran || err != nil {
			t.Fatalf("ran %v, %v; the first run is due", ran, err)
		}
	}
	late, lateLeaves := p.come()
	runnerLeaves()
	hubLeaves()
	if ran, err := late.Once(t.Context(), "job", lock.MaxEvery, nothing); ran || err != nil {
		t.Errorf("ran %v, %v; the tick is spent", ran, err)
	}
	last, _ := p.come()
	lateLeaves()
	if ran, err := last.Once(t.Context(), "other", lock.MaxEvery, nothing); ran || err != nil {
		t.Errorf("ran %v, %v; the tick is spent", ran, err)
	}
	s, err := last.Inspect(t.Context(), "job")
	if r := s.LastRun; err != nil || r == nil || r.Outcome != driver.Done || r.By.Label != "nightly" || r.Every != lock.MaxEvery || r.End.Before(r.Start) {
		t.Errorf("last run %+v, %v", r, err)
	}
}

// A run that takes longer than two intervals stays in the state of its key, in
// every process.
func TestRunUnderWayIsInTheStateOfEachProcess(t *testing.T) {
	p := newParty(t)
	hub, _ := p.come()
	runs, _ := p.come()
	other, _ := p.come()
	const every = 20 * time.Millisecond
	all := map[string]*lock.Locker{"hub": hub, "its own": runs, "another": other}
	ran, err := runs.Once(t.Context(), "job", every, func(ctx context.Context) error {
		for range 2 { // also after a look has refreshed the copies
			time.Sleep(5 * every / 2)
			for name, l := range all {
				for deadline := time.Now().Add(10 * time.Second); !isUnderWay(ctx, l); { // a copy may expire before it is read
					if time.Now().After(deadline) {
						t.Errorf("%s: the run is not in the state", name)
						break
					}
				}
			}
		}
		return nil
	})
	if !ran || err != nil {
		t.Fatalf("ran %v, %v", ran, err)
	}
	if ran, err := runs.Once(t.Context(), "done", lock.MaxEvery, nothing); !ran || err != nil {
		t.Fatalf("ran %v, %v", ran, err)
	}
	for name, l := range all {
		if s, err := l.Inspect(t.Context(), "done"); err != nil || s.LastRun == nil || s.LastRun.Outcome != driver.Done {
			t.Errorf("%s: last run %+v, %v", name, s.LastRun, err)
		}
	}
}

// isUnderWay reports whether the state and the list of l have the run of the key
// "job", and its outcome is open.
func isUnderWay(ctx context.Context, l *lock.Locker) bool {
	s, err := l.Inspect(ctx, "job")
	if err != nil || s.LastRun == nil || s.LastRun.Outcome != "" {
		return false
	}
	all, err := l.List(ctx, "")
	return err == nil && len(all) == 1 && all[0].LastRun != nil
}

func TestCooldownOutlivesItsProcess(t *testing.T) {
	p := newParty(t)
	hub, _ := p.come()
	other, otherLeaves := p.come()
	if err := other.With(t.Context(), "long", nothing, lock.Cooldown(time.Hour)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := other.With(t.Context(), "short", nothing, lock.Cooldown(time.Second)); err != nil {
		t.Fatal(err)
	}
	otherLeaves()
	if _, err := hub.TryAcquire(t.Context(), "long"); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("%v; want ErrNotAcquired", err)
	}
	if err := hub.With(t.Context(), "short", nothing, lock.Wait(time.Minute)); err != nil || time.Since(begun) < 900*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	if n, err := hub.ForceRelease(t.Context(), "long", "test"); n != 1 || err != nil {
		t.Errorf("force released %d, %v", n, err)
	}
}

// A process that left a key in its cooldown has no lease, so the next hub does not
// wait for one.
func TestACooldownDoesNotDelayTheNextHub(t *testing.T) {
	p := newParty(t)
	_, hubLeaves := p.come()
	other, otherLeaves := p.come()
	last, _ := p.come()
	if err := other.With(t.Context(), "k", nothing, lock.TTL(time.Minute), lock.Cooldown(time.Hour)); err != nil {
		t.Fatal(err)
	}
	otherLeaves()
	hubLeaves()
	begun := time.Now()
	if err := last.With(t.Context(), "another", nothing, lock.Wait(30*time.Second)); err != nil || time.Since(begun) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}
