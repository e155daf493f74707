package boot

import (
	"slices"
	"strconv"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock/driver"
)

// decisions contains the selected lock driver and bus driver.
type decisions struct{ lock, bus Decision }

// decide selects the drivers of a process, and checks that this build includes
// them. The returned decisions are complete even if decide returns an error.
func (p Process) decide(program *plan.Program, c *config.Config) (decisions, error) {
	s := Surroundings{Worker: p.isWorker(), LeftOut: program.LeftOut(), Requirements: program.Requirements()}
	lock, lockErr := SelectLock(c, s)
	if p.Offline != nil {
		lock, lockErr = p.Offline.lock(), nil
	}
	bus, busErr := SelectBus(c, s)
	if p.Offline != nil && p.Offline.Bus != nil {
		bus, busErr = p.Offline.bus(), nil
	}
	d := decisions{lock, bus}
	switch { // only the first error, because its remedy may also fix the second
	case lockErr != nil:
		return d, lockErr
	case busErr != nil:
		return d, busErr
	case p.Offline != nil:
		return d, nil
	}
	return d, missing(c, d)
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

// lacking returns a sentence for each guarantee that a driver does not give.
func lacking(lacks []driver.Lack) (all []string) {
	for _, l := range lacks {
		all = append(all, "without "+l.Rule+": "+l.Why)
	}
	return all
}
