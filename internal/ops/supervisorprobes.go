package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/megaframework/mega/internal/workers"
)

// Probes of a supervisor. The supervisor answers for its workers, and asks them
// over their lines, so that they need no socket for probes.

// ready returns the readiness of the program, which is ready as long as one worker is,
// since all workers accept from the same listeners. With verbose it waits for all workers
// and lists their checks; otherwise one ready worker is enough.
func (s *Supervisor) ready(ctx context.Context, verbose bool) Readiness {
	switch {
	case s.Workers.Stopping():
		return Readiness{Status: "stopping"}
	case !s.Workers.Ready():
		return Readiness{Status: "starting"}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Longest+2*checkGrace)
	defer cancel()
	enough := workerAnswer.ok // one ready worker is enough
	if verbose {
		enough = func(workerAnswer) bool { return false }
	}
	all := s.askWorkers(ctx, enough)
	if len(all) == 0 {
		return Readiness{Status: "not ready", Reasons: map[string]string{"workers": "none of them is ready"}}
	}
	ready := s.withFailing(combined(all))
	if !verbose {
		ready.Checks = nil
	}
	return ready
}

// withFailing returns r with the workers that fail to start as limitations.
func (s *Supervisor) withFailing(r Readiness) Readiness {
	for _, w := range s.WorkerStates() {
		if w.State == string(workers.Failing) {
			r.Degraded = append(r.Degraded, fmt.Sprintf("worker %d: failing: %s", w.ID, w.Ended))
		}
	}
	return r
}

// workerAnswer is the readiness of a worker, as the worker has reported it.
type workerAnswer struct {
	name      string
	took      time.Duration
	readiness Readiness
	err       error // why the worker did not answer
}

// askWorkers asks all ready workers concurrently. If enough reports true for one of
// the answers, askWorkers returns that answer alone, without waiting for the others.
func (s *Supervisor) askWorkers(ctx context.Context, enough func(workerAnswer) bool) (all []workerAnswer) {
	for _, a := range s.Workers.Check(ctx, func(a workers.Answer) bool { return enough(newWorkerAnswer(a)) }) {
		all = append(all, newWorkerAnswer(a))
	}
	return all
}

func newWorkerAnswer(from workers.Answer) workerAnswer {
	a := workerAnswer{name: fmt.Sprintf("worker %d", from.Worker), took: from.Took, err: from.Err}
	if a.err == nil {
		a.err = json.Unmarshal(from.Body, &a.readiness)
	}
	return a
}

func (a workerAnswer) ok() bool { return a.err == nil && a.readiness.Status == "ok" }

// reasons returns why the worker is not ready.
func (a workerAnswer) reasons() map[string]string {
	switch {
	case a.ok():
		return nil
	case a.err != nil:
		return map[string]string{a.name: a.err.Error()}
	case len(a.readiness.Reasons) == 0:
		return map[string]string{a.name: a.readiness.Status}
	}
	all := map[string]string{}
	for check, why := range a.readiness.Reasons {
		all[a.name+": "+check] = why
	}
	return all
}

// checks returns the results of the worker's checks, with the worker in their names.
func (a workerAnswer) checks() (all []Result) {
	if a.err != nil {
		return []Result{{Name: a.name, Status: "failed", Took: a.took.Round(time.Microsecond).String(), Error: a.err.Error()}}
	}
	for _, c := range a.readiness.Checks {
		c.Name = a.name + ": " + c.Name
		all = append(all, c)
	}
	return all
}

// combined returns the readiness of the program, which is ready if one worker is
// ready. The reasons of other workers are then limitations.
func combined(all []workerAnswer) (r Readiness) {
	reasons, degraded := map[string]string{}, map[string]bool{}
	for _, a := range all {
		maps.Copy(reasons, a.reasons())
		r.Checks = append(r.Checks, a.checks()...)
		for _, what := range a.readiness.Degraded {
			degraded[what] = true
		}
	}
	r.Status, r.Degraded = "ok", slices.Sorted(maps.Keys(degraded))
	if !slices.ContainsFunc(all, workerAnswer.ok) {
		r.Status, r.Reasons = "not ready", reasons
		return r
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		r.Degraded = append(r.Degraded, name+": "+reasons[name])
	}
	return r
}
