package boot

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/workers"
)

// Probes of a supervisor. The supervisor answers for its workers, and asks them
// over their lines, so that they need no socket for probes.

func (w *crew) startupz(out http.ResponseWriter, _ *http.Request) {
	if !w.watch.started.Load() {
		answer(out, http.StatusServiceUnavailable, readiness{Status: "starting"})
		return
	}
	answer(out, http.StatusOK, readiness{Status: "ok"})
}

// readyz answers 200 as long as one worker is ready, since all workers accept
// from the same listeners.
func (w *crew) readyz(out http.ResponseWriter, r *http.Request) {
	is := w.ready(r.Context(), r.URL.Query().Has("verbose"))
	status := http.StatusServiceUnavailable
	if is.Status == "ok" {
		status = http.StatusOK
	}
	answer(out, status, is)
}

func (w *crew) ready(ctx context.Context, verbose bool) readiness {
	workers := w.serving()
	switch {
	case w.workers.Stopping():
		return readiness{Status: "stopping"}
	case !w.watch.started.Load():
		return readiness{Status: "starting"}
	case len(workers) == 0:
		return readiness{Status: "not ready", Reasons: map[string]string{"workers": "none of them is ready"}}
	}
	ctx, cancel := context.WithTimeout(ctx, w.program.LongestCheck()+2*checkGrace)
	defer cancel()
	if verbose {
		return w.degraded(joined(inquire(ctx, workers, nil)))
	}
	is := w.degraded(joined(inquire(ctx, workers, cancel))) // one ready worker is enough
	is.Checks = nil
	return is
}

// degraded adds the workers that fail to start.
func (w *crew) degraded(is readiness) readiness {
	for _, x := range w.seen() {
		if x.State == string(workers.Failing) {
			is.Degraded = append(is.Degraded, fmt.Sprintf("worker %d: failing: %s", x.ID, x.Ended))
		}
	}
	return is
}

// serving returns the workers that are ready, ordered by number.
func (w *crew) serving() (all []*member) {
	workers := admin.Serving(w.seen())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range workers {
		for _, m := range w.members {
			if m.process.PID() == x.PID {
				all = append(all, m)
			}
		}
	}
	return all
}

// inquiry is the result of asking a worker whether it is ready.
type inquiry struct {
	name string
	took time.Duration
	is   readiness
	err  error // why the worker did not answer
}

// inquire asks all workers concurrently. If enough is not nil, inquire calls it
// once a worker is ready, and returns only the result of that worker.
func inquire(ctx context.Context, workers []*member, enough func()) []inquiry {
	all := make([]inquiry, len(workers))
	var asking sync.WaitGroup
	for i, worker := range workers {
		asking.Go(func() {
			all[i] = worker.inquire(ctx)
			if enough != nil && all[i].ok() {
				enough()
			}
		})
	}
	asking.Wait()
	if i := slices.IndexFunc(all, inquiry.ok); enough != nil && i >= 0 {
		return all[i : i+1]
	}
	return all
}

func (m *member) inquire(ctx context.Context) inquiry {
	i := inquiry{name: fmt.Sprintf("worker %d", m.process.ID())}
	began := time.Now()
	body, err := m.peer.Call(ctx, callCheck, nil)
	i.took = time.Since(began)
	switch {
	case err == nil:
		i.err = json.Unmarshal(body, &i.is)
	case ctx.Err() != nil:
		i.err = fmt.Errorf("it has not answered for %v", i.took.Round(time.Millisecond))
	default:
		i.err = err
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

func (i inquiry) checks() (all []checked) {
	if i.err != nil {
		return []checked{{Name: i.name, Status: "failed", Took: i.took.Round(time.Microsecond).String(), Error: i.err.Error()}}
	}
	for _, c := range i.is.Checks {
		c.Name = i.name + ": " + c.Name
		all = append(all, c)
	}
	return all
}

// joined combines the readiness of several workers. The program is ready if one
// worker is ready; workers that are not ready are listed.
func joined(all []inquiry) (is readiness) {
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
