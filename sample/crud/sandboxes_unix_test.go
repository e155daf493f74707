//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// A worker that is killed leaves its folder. The next holder, in another
// process, removes it before it makes its own.
func TestTheNextHolderCleansTheSandboxOfAKilledWorker(t *testing.T) {
	executable, err := build()
	if err != nil {
		t.Fatal(err)
	}
	s, err := start(executable, []string{"MEGA_ENV=dev", "MEGA_DATABASE_URL=sqlite://" + filepath.Join(t.TempDir(), "shop.db")}, "serve", "--workers", "2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
	for way, die := range map[string]func() (job int64){
		"by the button": func() (job int64) {
			_, _ = s.send("POST", "/sandboxes", `{"end":"killed"}`, asJSON) // the worker may die before it answers
			s.until(t, "a job kills its worker", func(p sandboxesPage) bool {
				i := slices.IndexFunc(p.Events, func(e store.JobEvent) bool { return e.Text == "kills its worker" })
				if i >= 0 {
					job = p.Events[i].Job
				}
				return i >= 0
			})
			return job
		},
		"by kill -9": func() int64 {
			job := s.job(t, longest, services.EndsWell)
			p := s.until(t, "the job works", func(p sandboxesPage) bool { return p.has(job, "works") })
			pid := p.Sandboxes[0].LastHolder.PID
			if pid <= 1 || pid == os.Getpid() || pid == s.cmd.Process.Pid {
				t.Fatalf("the holder is process %d", pid)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return job
		},
	} {
		dead := die()
		p := s.until(t, "the sandbox is left dirty", func(p sandboxesPage) bool {
			return p.Sandboxes[0].Status == lock.SlotDirty && p.Sandboxes[0].Reason == lock.LeftDied
		})
		victim := p.Sandboxes[0].LastHolder.PID
		next := s.job(t, 0, services.EndsWell)
		p = s.until(t, "the next job ends", ended(next))
		got := p.texts(next)
		if len(got) < 3 || !strings.HasPrefix(got[1], fmt.Sprintf("Cleanup: removes the folder of job %d, left by ", dead)) || !strings.Contains(got[1], "(died)") || !strings.HasPrefix(got[2], "Init: ") || got[len(got)-1] != "done" {
			t.Errorf("%s: the next job did %q", way, got)
		}
		for _, e := range p.Events {
			if e.Job == next && e.PID == victim && e.InSandbox() || e.Job == dead && ended(dead)(p) {
				t.Errorf("%s: after its death worker %d wrote %+v", way, victim, e)
			}
		}
	}
}
