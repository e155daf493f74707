package boot

import (
	"slices"
	"strconv"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
)

// decide selects the drivers of a process. The returned decisions are complete
// even if decide returns an error.
func (p Process) decide(program *plan.Program, c *config.Config) (d plan.Decisions, err error) {
	s := selection.Surroundings{Worker: p.isWorker(), LeftOut: program.LeftOut(), Requirements: program.Requirements()}
	if p.Offline == nil {
		return selection.Decide(c, s)
	}
	d.Lock = p.Offline.lock()
	if p.Offline.Bus != nil {
		d.Bus = p.Offline.bus()
		return d, nil
	}
	d.Bus, err = selection.Bus(c, s)
	return d, err
}

// supervisorMissing returns the failure for several workers without a
// supervisor: the program was not started as a whole, or the system cannot
// share listeners.
func supervisorMissing(c *config.Config, cause error) error {
	return &Failure{
		Code: "cluster.no_supervisor", Exit: ExitConfig, Cause: cause,
		Text:    "Several workers are configured, but this process has no supervisor for them.",
		Facts:   []Fact{failure.Setting(c, "cluster.workers")},
		Actions: failure.Actions("Run one process", failure.Unset(c, "cluster.workers")),
	}
}

// worker returns the number of a worker, from 1, or 0 in a process that is no
// worker.
func (p Process) worker() int {
	n := 0
	for _, kv := range p.Environ {
		if text, ok := strings.CutPrefix(kv, "MEGA_WORKER_ID="); ok {
			n, _ = strconv.Atoi(text) // the supervisor has written it
		}
	}
	return max(n, 0)
}

// Supervised reports whether a supervisor started the process and passed it a
// line.
func (p Process) Supervised() bool {
	return slices.ContainsFunc(p.Environ, func(kv string) bool { return strings.HasPrefix(kv, "MEGA_WORKER_FD=") })
}

// isWorker reports whether a supervisor started the process. The supervisor
// sets MEGA_WORKER_ variables for its workers.
func (p Process) isWorker() bool {
	return slices.ContainsFunc(p.Environ, func(kv string) bool { return strings.HasPrefix(kv, "MEGA_WORKER_") })
}
