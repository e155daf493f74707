//go:build linux || darwin

package ticks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/internal/testkit/wallclock"
	"github.com/megaframework/mega/lock/driver"
)

const (
	every     = 200 * time.Millisecond
	processes = 20
	namespace = "ticks" // of the locks on the hub
	key       = "job"
)

// shifted are the packages between Every and the connection to a backend.
var shifted = []string{
	"lock", "lock/driver", "drivers/redis", "drivers/internal/table",
	"drivers/cluster", "drivers/cluster/internal/hub", "drivers/cluster/internal/protocol", "drivers/cluster/internal/rendezvous",
}

func TestNoTickRunsTwiceWhateverTheClocksOfTheProcesses(t *testing.T) {
	bin := wallclock.Build(t, shifted...)
	ticks := max(5, suite.Scaled(150))
	for name, backend := range map[string]func(*testing.T) (orders, driver.Driver){"redis": onRedis, "cluster": onCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, looker := backend(t)
			runs := runEvery(t, bin, o, processes, ticks)
			if err := check(runs); err != nil {
				t.Error(err)
			}
			wantShifted(t, looker)
			t.Logf("%d processes ran %d of %d ticks", processes, len(runs), runs[len(runs)-1].Tick-runs[0].Tick+1)
		})
	}
	t.Run("the check notices ticks of the processes' own clocks", func(t *testing.T) {
		t.Parallel()
		o, _ := onCluster(t)
		o.OwnClock = true
		if err := check(runEvery(t, bin, o, 2, 3)); err == nil {
			t.Error("the check noticed nothing")
		}
	})
}

func TestCheckNoticesASecondRun(t *testing.T) {
	now := time.Now()
	tick := now.UnixNano() / int64(every)
	if err := check([]run{{Tick: tick, Start: now}, {Tick: tick, Start: now}}); err == nil {
		t.Error("the check noticed nothing")
	}
}

func onRedis(t *testing.T) (orders, driver.Driver) {
	t.Helper()
	o := orders{URL: redistest.Start(t, redistest.Options{}).URL()}
	d, err := o.open(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return o, d
}

// onCluster returns a hub in this process, whose clock is the machine's.
func onCluster(t *testing.T) (orders, driver.Driver) {
	t.Helper()
	socket := filepath.Join(shortdir.New(t), "s")
	n, err := cluster.Dial(t.Context(), cluster.Config{Socket: socket})
	must(t, err)
	t.Cleanup(func() { _ = n.Close(context.Background()) })
	return orders{Socket: socket}, n.Locks(namespace)
}

// wantShifted checks that the clock of the process of the last run was shifted.
func wantShifted(t *testing.T, looker driver.Driver) {
	t.Helper()
	s, err := looker.Inspect(t.Context(), key)
	must(t, err)
	if s.LastRun == nil {
		t.Fatal("the backend has recorded no run")
	}
	if ahead := s.LastRun.By.Since.Sub(s.LastRun.Start); ahead.Abs() < halfHour/2 {
		t.Errorf("the clock of the last process is only %v ahead", ahead)
	}
}

// halfHour is the shift of the clock that is nearest to the machine's.
const halfHour = 30 * time.Minute

// runEvery runs Every in processes whose clocks are an hour apart until a number
// of runs is over, and returns all runs.
func runEvery(t *testing.T, bin string, o orders, processes, ticks int) (all []run) {
	t.Helper()
	runs := make(chan run)
	var stdins []io.Closer
	over := make(chan struct{})
	var children []<-chan struct{}
	for i := range processes {
		stdin, ended := spawn(t, bin, o, time.Duration(i-processes/2)*time.Hour+halfHour, runs)
		stdins, children = append(stdins, stdin), append(children, ended)
	}
	go func() {
		defer close(over)
		for _, ended := range children {
			<-ended
		}
	}()
	var failed error
	leave := func() {
		for _, stdin := range stdins {
			_ = stdin.Close()
		}
		stdins = nil
	}
	late := time.After(2*time.Minute + 10*every*time.Duration(ticks))
	for {
		select {
		case r := <-runs:
			if r.err != nil {
				failed = errors.Join(failed, r.err)
				leave()
			} else if all = append(all, r); len(all) >= ticks {
				leave()
			}
		case <-late:
			failed = errors.Join(failed, fmt.Errorf("only %d of %d ticks have run", len(all), ticks))
			leave()
		case <-over:
			must(t, failed)
			return all
		}
	}
}

// check returns the first tick that was run twice, or that is not the tick of
// the machine's clock. A run may begin late, but not before its tick.
func check(runs []run) error {
	seen := map[int64]bool{}
	for _, r := range runs {
		if seen[r.Tick] {
			return fmt.Errorf("tick %d was run twice", r.Tick)
		}
		seen[r.Tick] = true
		begin := time.Unix(0, r.Tick*int64(every))
		if late := r.Start.Sub(begin); late < -time.Second || late > 10*time.Minute {
			return fmt.Errorf("tick %d was run %v after its beginning", r.Tick, late)
		}
	}
	return nil
}
