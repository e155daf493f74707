package boot

import (
	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
)

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
	if b.line == nil {
		return config.Load(s)
	}
	in, err := b.line.Inputs(b.ctx)
	if err != nil {
		return nil, selection.NoSupervisor(err)
	}
	s.Files = in.Start
	c, err := config.Load(s)
	s.Files.Keep()
	if err != nil || in.Live == nil {
		return c, err
	}
	s.Files = in.Live
	next, _, err := config.Reload(c, s)
	return next, err
}
