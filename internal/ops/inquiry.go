package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/megaframework/mega/internal/workers"
)

// Probes of a supervisor. The supervisor answers for its workers, and asks them
// over their lines, so that they need no socket for probes.

func (s *Supervisor) startupz(out http.ResponseWriter, _ *http.Request) {
	if !s.Workers.Ready() {
		WriteJSON(out, http.StatusServiceUnavailable, Readiness{Status: "starting"})
		return
	}
	WriteJSON(out, http.StatusOK, Readiness{Status: "ok"})
}

// readyz answers 200 as long as one worker is ready, since all workers accept
// from the same listeners.
func (s *Supervisor) readyz(out http.ResponseWriter, r *http.Request) {
	is := s.ready(r.Context(), r.URL.Query().Has("verbose"))
	status := http.StatusServiceUnavailable
	if is.Status == "ok" {
		status = http.StatusOK
	}
	WriteJSON(out, status, is)
}

func (s *Supervisor) ready(ctx context.Context, verbose bool) Readiness {
	switch {
	case s.Workers.Stopping():
		return Readiness{Status: "stopping"}
	case !s.Workers.Ready():
		return Readiness{Status: "starting"}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Longest+2*CheckGrace)
	defer cancel()
	enough := inquiry.ok // one ready worker is enough
	if verbose {
		enough = func(inquiry) bool { return false }
	}
	all := s.inquire(ctx, enough)
	if len(all) == 0 {
		return Readiness{Status: "not ready", Reasons: map[string]string{"workers": "none of them is ready"}}
	}
	is := s.degraded(joined(all))
	if !verbose {
		is.Checks = nil
	}
	return is
}

// degraded adds the workers that fail to start.
func (s *Supervisor) degraded(is Readiness) Readiness {
	for _, x := range s.Seen() {
		if x.State == string(workers.Failing) {
			is.Degraded = append(is.Degraded, fmt.Sprintf("worker %d: failing: %s", x.ID, x.Ended))
		}
	}
	return is
}

// inquiry is the result of asking a worker whether it is ready.
type inquiry struct {
	name string
	took time.Duration
	is   Readiness
	err  error // why the worker did not answer
}

// inquire asks all ready workers concurrently, until enough reports true for one
// of the results; then it returns that result alone.
func (s *Supervisor) inquire(ctx context.Context, enough func(inquiry) bool) (all []inquiry) {
	for _, a := range s.Workers.Check(ctx, func(a workers.Answer) bool { return enough(newInquiry(a)) }) {
		all = append(all, newInquiry(a))
	}
	return all
}

func newInquiry(a workers.Answer) inquiry {
	i := inquiry{name: fmt.Sprintf("worker %d", a.Worker), took: a.Took, err: a.Err}
	if i.err == nil {
		i.err = json.Unmarshal(a.Body, &i.is)
	}
	return i
}

func (i inquiry) ok() bool { return i.err == nil && i.is.Status == "ok" }

// reasons returns why the worker is not ready.
func (i inquiry) reasons() map[string]string {
	switch {
	case i.ok():
		return nil
	case i.err != nil:
		return map[string]string{i.name: i.err.Error()}
	case len(i.is.Reasons) == 0:
		return map[string]string{i.name: i.is.Status}
	}
	all := map[string]string{}
	for check, why := range i.is.Reasons {
		all[i.name+": "+check] = why
	}
	return all
}

func (i inquiry) checks() (all []Result) {
	if i.err != nil {
		return []Result{{Name: i.name, Status: "failed", Took: i.took.Round(time.Microsecond).String(), Error: i.err.Error()}}
	}
	for _, c := range i.is.Checks {
		c.Name = i.name + ": " + c.Name
		all = append(all, c)
	}
	return all
}

// joined combines the readiness of several workers. The program is ready if one
// worker is ready; workers that are not ready are listed.
func joined(all []inquiry) (is Readiness) {
	reasons, degraded := map[string]string{}, map[string]bool{}
	for _, i := range all {
		maps.Copy(reasons, i.reasons())
		is.Checks = append(is.Checks, i.checks()...)
		for _, what := range i.is.Degraded {
			degraded[what] = true
		}
	}
	is.Status, is.Degraded = "ok", slices.Sorted(maps.Keys(degraded))
	if !slices.ContainsFunc(all, inquiry.ok) {
		is.Status, is.Reasons = "not ready", reasons
		return is
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		is.Degraded = append(is.Degraded, name+": "+reasons[name])
	}
	return is
}
