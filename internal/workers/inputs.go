package workers

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/settings"
)

// Only a start, SIGUSR2 and SIGHUP read files. The supervisor keeps a copy of
// the files for each generation of workers. A worker that replaces another one
// loads its configuration from the copy of its generation. The supervisor keeps
// files rather than values, because workers of a newer build may have keys that
// the supervisor does not know.

// Inputs are the configuration files of a generation of workers. Both are nil
// if the worker has to read the files itself.
type Inputs struct {
	Start *settings.Files `json:"start,omitempty"` // read when the generation started
	Live  *settings.Files `json:"live,omitempty"`  // read by the last reload; live keys come from there
}

// generations contains the inputs of each generation. Its methods may be called
// concurrently.
type generations struct {
	mu     sync.Mutex // guards the fields below
	all    map[int]Inputs
	latest *settings.Files // of the last reload
}

// of returns the inputs of a generation. They are empty until the first worker
// of the generation is ready, because that worker reads the files.
func (g *generations) of(generation int) Inputs {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[generation]
}

// begin stores the files that the first worker of a generation has read. Only
// the first call for a generation has an effect.
func (g *generations) begin(generation int, start *settings.Files) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.all[generation]; known || start == nil {
		return
	}
	if g.all == nil {
		g.all = map[int]Inputs{}
	}
	g.all[generation] = Inputs{Start: start}
}

// reload stores the files of a reload for all generations.
func (g *generations) reload(live *settings.Files) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latest = live
	for generation, in := range g.all {
		in.Live = live
		g.all[generation] = in
	}
}

// live returns the files of the last reload for a worker that has missed it,
// and stores them for its generation.
func (g *generations) live(generation int) *settings.Files {
	g.mu.Lock()
	defer g.mu.Unlock()
	in := g.all[generation]
	if in.Live == nil && in.Start != nil {
		in.Live = g.latest
		g.all[generation] = in
	}
	return in.Live
}

// forget drops the generations before oldest, in which no worker is started any
// more.
func (g *generations) forget(oldest int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for generation := range g.all {
		if generation < oldest {
			delete(g.all, generation)
		}
	}
}

// Inputs requests the files of this worker's generation from the supervisor. If
// the supervisor has no copy, Start is a new set of files, which the worker
// fills by reading them; Ready passes them on.
func (l *Line) Inputs(ctx context.Context) (in Inputs, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	body, err := l.node.Call(ctx, callConfig, nil)
	if _, older := errors.AsType[*cluster.CallError](err); older {
		err = nil // a supervisor of an older build does not keep files
	} else if err == nil {
		err = json.Unmarshal(body, &in)
	}
	if err == nil && in.Start == nil {
		in.Start = new(settings.Files)
		l.read = in.Start
	}
	return in, err
}
