// Package outage watches a backend that has stopped answering, until it answers
// again.
package outage

import (
	"context"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/group"
)

// Backend is a watched backend. A Watch calls its methods from one goroutine at a
// time.
type Backend interface {
	// Probe asks the backend, and returns the cause if it does not answer.
	Probe(ctx context.Context) error
	// Lost is called once for each outage, after its first failed Probe.
	Lost(err error)
	// Returned is called at the end of the outage: when Probe succeeds, or when
	// the group is closed. It must not call the Watch, and returns the function that
	// reports the end, which may run beside the Probe of the next outage.
	Returned(after time.Duration) (report func())
}

// Watch tracks whether a backend answers. A failed call begins a watch, which
// probes the backend again and again until that succeeds. The backend counts as
// lost only if the probe fails too: an error of one key concerns only its caller.
type Watch struct {
	group   *group.Group
	backend Backend

	mu      sync.Mutex // guards the fields below
	running bool
	down    error     // the cause of the outage; nil while the backend answers
	since   time.Time // of down
}

// The pauses between the probes of a lost backend.
const (
	pause    = 100 * time.Millisecond
	pauseMax = time.Second
)

// Init makes w ready. The watches run in g.
func (w *Watch) Init(g *group.Group, b Backend) { w.group, w.backend = g, b }

// Begin begins a watch, unless one is running.
func (w *Watch) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		w.running = w.group.Go(w.run)
	}
}

// Cause returns the cause of the outage, or nil while the backend answers.
func (w *Watch) Cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

// run probes the backend until it answers, and reports the loss and the return
// once each.
func (w *Watch) run(ctx context.Context) {
	defer w.returned()
	for d := pause; ; d = min(2*d, pauseMax) {
		err := w.backend.Probe(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		w.failed(err)
		if !group.Sleep(ctx, group.Jitter(d)) {
			return
		}
	}
}

func (w *Watch) failed(err error) {
	w.mu.Lock()
	first := w.down == nil
	if first {
		w.since = time.Now()
	}
	w.down = err
	w.mu.Unlock()
	if first {
		w.backend.Lost(err)
	}
}

// returned ends the watch.
func (w *Watch) returned() {
	w.mu.Lock()
	report := func() {}
	if w.down != nil {
		report = w.backend.Returned(time.Since(w.since))
	}
	w.running, w.down = false, nil
	w.mu.Unlock()
	report()
}
