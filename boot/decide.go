package boot

import (
	"slices"
	"strconv"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/lock/driver"
)

// decisions are all that is decided at boot.
type decisions struct{ lock, bus Decision }

// decide makes every decision of a process, and checks that this build can
// carry them out. They are there also where one of them must not be.
func (p *program) decide(c *config.Config, in Process) (decisions, error) {
	s := Surroundings{Worker: in.isWorker(), LeftOut: p.leftOut(), Requirements: p.requirements()}
	lock, lockErr := SelectLock(c, s)
	if in.Offline != nil {
		lock, lockErr = in.Offline.lock(), nil
	}
	bus, busErr := SelectBus(c, s)
	if in.Offline != nil && in.Offline.Bus != nil {
		bus, busErr = in.Offline.bus(), nil
	}
	d := decisions{lock, bus}
	switch { // one at a time: what mends the first may mend the next
	case lockErr != nil:
		return d, lockErr
	case busErr != nil:
		return d, busErr
	case in.Offline != nil:
		return d, nil
	}
	return d, missing(c, d)
}

// worker is the number of a worker, from 1, or 0 where the process is none.
func (p Process) worker() int {
	n := 0
	for _, kv := range p.Environ {
		if text, ok := strings.CutPrefix(kv, "MEGA_WORKER_ID="); ok {
			n, _ = strconv.Atoi(text) // its supervisor wrote it
		}
	}
	return max(n, 0)
}

// Supervised reports whether a supervisor started the process, and is at the
// other end of the line that it has passed.
func (p Process) Supervised() bool {
	return slices.ContainsFunc(p.Environ, func(kv string) bool { return strings.HasPrefix(kv, "MEGA_WORKER_FD=") })
}

// isWorker reports whether a supervisor started the process: it tells its
// workers what they are by variables.
func (p Process) isWorker() bool {
	return slices.ContainsFunc(p.Environ, func(kv string) bool { return strings.HasPrefix(kv, "MEGA_WORKER_") })
}

// opened adds what a driver says of itself once it is open.
func (d *Decision) opened(info driver.Info) {
	d.Format = info.Format
	for _, l := range info.Lacks {
		d.Lacks = append(d.Lacks, Lack{l.Rule, l.Why})
	}
	for _, warning := range info.Warnings {
		d.Warnings = append(d.Warnings, mask.Text(warning))
	}
}

// carriedOut adds what the driver says of itself that a worker has opened.
func (d *Decision) carriedOut(by Decision) {
	d.Format, d.Lacks, d.Warnings = by.Format, by.Lacks, by.Warnings
}

// lacking are sentences about what a driver does not promise.
func lacking(lacks []driver.Lack) (all []string) {
	for _, l := range lacks {
		all = append(all, "without "+l.Rule+": "+l.Why)
	}
	return all
}
