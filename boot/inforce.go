package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/plan"
)

// Only a start, SIGUSR2 and SIGHUP read files. The supervisor keeps a copy of
// the files for each generation of workers. A worker that replaces another one
// loads its configuration from the copy of its generation. The supervisor keeps
// files rather than values, because workers of a newer build may have keys that
// the supervisor does not know.

// inputs are the configuration files of a generation of workers.
type inputs struct {
	Start *config.Files `json:"start,omitempty"` // read when the generation started
	Live  *config.Files `json:"live,omitempty"`  // read by the last reload; live keys come from there
}

// generations contains the inputs of each generation. Its methods may be called
// concurrently.
type generations struct {
	mu     sync.Mutex // guards the fields below
	all    map[int]inputs
	latest *config.Files // of the last reload
}

// of returns the inputs of a generation. They are empty until the first worker
// of the generation is ready, because that worker reads the files.
func (g *generations) of(generation int) inputs {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[generation]
}

// begin stores the files that the first worker of a generation has read. Only
// the first call for a generation has an effect.
func (g *generations) begin(generation int, start *config.Files) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.all[generation]; known || start == nil {
		return
	}
	if g.all == nil {
		g.all = map[int]inputs{}
	}
	g.all[generation] = inputs{Start: start}
}

// reload stores the files of a reload for all generations.
func (g *generations) reload(live *config.Files) {
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
func (g *generations) live(generation int) *config.Files {
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

// loadConfig is the first stage.
func (b *booting) loadConfig() (*config.Config, error) {
	c, err := b.load()
	if err != nil {
		return nil, err
	}
	b.config = c
	b.inForce.Store(c)
	b.report = plan.NewReport(c)
	b.veil.add(c, b.program.Sections())
	b.counted(c)
	return c, nil
}

// load loads the configuration. A worker gets the configuration in force from
// its supervisor, if the supervisor has one. Otherwise load reads the files and
// keeps a copy for later workers of the generation.
func (b *booting) load() (*config.Config, error) {
	s := b.process.source(b.program)
	if b.member == nil {
		return config.Load(s)
	}
	in, err := b.member.inputs(b.ctx)
	if err != nil {
		return nil, supervisorGone(err)
	}
	if s.Files = in.Start; s.Files == nil {
		s.Files = new(config.Files)
		b.member.read = s.Files
	}
	c, err := config.Load(s)
	s.Files.Keep()
	if err != nil || in.Live == nil {
		return c, err
	}
	s.Files = in.Live
	next, _, err := config.Reload(c, s)
	return next, err
}

// inputs requests the files of this worker's generation from the supervisor.
func (m *membership) inputs(ctx context.Context) (in inputs, err error) {
	ctx, cancel := context.WithTimeout(ctx, hookBudget)
	defer cancel()
	body, err := m.node.Call(ctx, callConfig, nil)
	if _, older := errors.AsType[*cluster.CallError](err); older {
		return in, nil // a supervisor of an older build does not keep files
	}
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	return in, err
}

// reloadFrom decodes the files of a reload that the supervisor has checked, and
// reloads the configuration from them.
func (b *booting) reloadFrom(body []byte) error {
	if len(body) == 0 {
		_, err := b.reload(nil) // a supervisor of an older build sends no files
		return err
	}
	live := new(config.Files)
	if err := json.Unmarshal(body, live); err != nil {
		return fmt.Errorf("decode the files of the configuration: %w", err)
	}
	_, err := b.reload(live)
	return err
}
