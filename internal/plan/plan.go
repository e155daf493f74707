package plan

import (
	"fmt"
	"time"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/settings"
)

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

// ReturnBudget returns the time that a function of the program without a context has to
// return: the time in which a server may start, plus the budget of a hook.
func (p *Plan) ReturnBudget() time.Duration { return p.Config.Boot.WaitFor + HookBudget }

// Overrun returns the Failure for such a function that did not return in its time.
func (p *Plan) Overrun(kind string, facts []failure.Fact) error {
	return &failure.Failure{
		Code: "boot.constructor_overrun", Exit: failure.ExitOverrun, Text: fmt.Sprintf("%s did not return within %v.", kind, p.ReturnBudget()),
		Facts: facts, Actions: failure.Actions("Do what takes long later", "mega.OnStart, mega.Run", "Wait longer for servers", "MEGA_BOOT_WAIT_FOR=60s"),
	}
}
