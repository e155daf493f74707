package plan

import "github.com/megaframework/mega/internal/settings"

// Plan is a program with its configuration and the selected drivers. It is
// computed once, before anything is opened, and computing it has no effect: the
// process that serves, the supervisor, the dry run and doctor work from the same
// values.
type Plan struct {
	Program *Program
	Config  *settings.Config
	Files   *settings.Files // the copy of what Config was loaded from; it contains secrets

	Decisions
	Refused error // why the program cannot start with these drivers; nil if it can
}

// Report returns a boot report with the contents of the plan.
func (p *Plan) Report() Report {
	r := newReport(p.Config)
	r.Lock, r.Bus, r.Limit, r.LeftOut = p.Lock, p.Bus, p.Limit, p.Program.LeftOut()
	return r
}
