package shell

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// Elsewhere a holder does not notice the end of a command whose launcher is stopped.

// A tenth of the scripts is killed, another tenth is stopped: never more than 3
// commands run at once, all other commands run, and nothing is left.
func TestNeverMoreCommandsThanSlots(t *testing.T) { // X4, X5, X7
	p := newPlace(t)
	n := max(suite.Scaled(60), 3)
	all := make([]*script, n)
	for i := range all {
		all[i] = p.start("exec k --slots 3 --wait 1h --ttl 5s --grace 1s -- "+os.Args[0]+" work", p.dir, fmt.Sprint(20+rand.N(40), "ms"))
	}
	struck := rand.Perm(n)
	killed, stopped := struck[:n/10], struck[n/10:n/10*2]
	for i := range killed {
		time.Sleep(rand.N(100 * time.Millisecond)) // any moment will do
		if err := all[killed[i]].Kill(); err != nil {
			t.Error(err)
		}
		if err := all[stopped[i]].Pause(); err != nil && !all[stopped[i]].ended() {
			t.Error(err)
		}
	}
	for _, i := range struck[n/10*2:] {
		if out, status := all[i].rest(); status != 0 {
			t.Errorf("script %d: exit status %d: %s", i, status, out)
		}
	}
	for _, i := range stopped {
		_ = all[i].Continue() // it may have ended
		out, status := all[i].rest()
		// Who is stopped between the permission and the report of its group is killed.
		if killed := 128 + int(syscall.SIGKILL); status != 0 && status != ExitLost && status != killed {
			t.Errorf("stopped script %d: exit status %d: %s", i, status, out)
		}
	}
	p.whole()
	p.unused(p.locks(), "k")
}

func (s *script) ended() bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// A stopped launcher delays others by its TTL while it waits, and not at all once
// its command has ended.
func TestStoppedLauncherDelaysNobodyForLong(t *testing.T) { // X7
	p := newPlace(t)
	holds := p.start("exec k -- "+os.Args[0]+" work", p.dir, "1h")
	pid := holds.runs()
	stopped := p.start("exec k --wait 1h --ttl 2s --grace 100ms -- echo never")
	l := p.locks()
	p.waiters(l, 1)
	for _, s := range []*script{stopped, holds} {
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	if err := redistest.Signal(pid, syscall.SIGINT); err != nil { // the command, whose launcher is stopped
		t.Fatal(err)
	}
	lease, err := l.Acquire(t.Context(), "k", lock.Wait(longTime))
	if err != nil {
		t.Fatal(err)
	}
	p.until("the holder of the stopped script has ended", func() bool { return childrenEnded(t, stopped.PID()) })
	for _, s := range []*script{stopped, holds} {
		if err := s.Continue(); err != nil {
			t.Fatal(err)
		}
	}
	if out, status := stopped.rest(); status != ExitLost || !strings.Contains(out, "its process was stopped") || strings.Contains(out, "never\n") {
		t.Errorf("exit status %d: %s", status, out)
	}
	if out, status := holds.rest(); status != 130 {
		t.Errorf("exit status %d: %s", status, out)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

// childrenEnded reports whether all children of a process have ended, though it
// does not wait for them.
func childrenEnded(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("the threads of process %d: %q, %v", pid, threads, err)
	}
	for _, thread := range threads {
		children, err := os.ReadFile(thread)
		if err != nil {
			t.Fatal(err)
		}
		for child := range strings.FieldsSeq(string(children)) {
			stat, err := os.ReadFile("/proc/" + child + "/stat")
			if err == nil && !strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
	}
	return true
}
