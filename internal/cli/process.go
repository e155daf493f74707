package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/variable"
)

func (l *commandLine) lockVerb() *cobra.Command {
	c := (&locks{shell: l.shell, find: l.finder(lockComponent), environ: l.process.Environ}).verb()
	c.Long = "It calls the processes of this program that run on this machine as this user."
	return c
}

// component is the part of a process that a group of verbs is about.
type component struct {
	running func(admin.Info) admin.DriverScope // of a process
	// configured returns the decision of a configuration. It is complete, even if
	// it is refused. Verbs about a whole process have none.
	configured func(*settings.Config) (plan.Decision, error)
}

var (
	lockComponent = component{
		func(i admin.Info) admin.DriverScope { return admin.DriverScope{Driver: i.Driver, Scope: i.Scope} },
		func(c *settings.Config) (plan.Decision, error) { return selection.Lock(c, selection.Surroundings{}) },
	}
	limitComponent = component{
		func(i admin.Info) admin.DriverScope { return i.Limit },
		func(c *settings.Config) (plan.Decision, error) {
			locks, _ := lockComponent.configured(c)
			return selection.Limit(c, selection.Surroundings{}, locks)
		},
	}
	busComponent = component{
		func(i admin.Info) admin.DriverScope { return i.Bus },
		func(c *settings.Config) (plan.Decision, error) { return selection.Bus(c, selection.Surroundings{}) },
	}
)

// finder returns the function that finds the running processes of this program,
// for verbs about a component.
func (l *commandLine) finder(of component) func(context.Context) ([]source, error) {
	return func(ctx context.Context) ([]source, error) {
		c, err := l.load()
		if err != nil {
			return l.unconfigured(ctx, of, err)
		}
		sources, err := running(ctx, l.process.Environ, c.Name, of)
		if err == nil && len(sources) == 0 {
			var d plan.Decision
			if of.configured != nil {
				d, _ = of.configured(c)
			}
			err = l.noProcess(c.Name, d)
		}
		return sources, err
	}
}

// processes returns the running processes of this program.
func (l *commandLine) processes(ctx context.Context) ([]source, error) {
	return l.finder(component{running: lockComponent.running})(ctx)
}

// unconfigured returns the processes that run under the name that the program
// has without its files. They are most useful while the files cannot be read.
// If there is none, it returns refused.
func (l *commandLine) unconfigured(ctx context.Context, of component, refused error) ([]source, error) {
	f, ok := errors.AsType[*failure.Failure](refused)
	if !ok || !strings.HasPrefix(f.Code, "config.") {
		return nil, refused
	}
	name := l.unreadName()
	sources, err := running(ctx, l.process.Environ, name, of)
	if err != nil || len(sources) == 0 {
		return nil, refused
	}
	fmt.Fprintf(l.shell.Stderr, "%s: cannot read the configuration (%s); calling the process with the name %q. See: %s config check\n", l.shell.Name, f.Code, name, failure.Command(l.shell.Name))
	return sources, nil
}

// unreadName returns the program's name if no file can set it.
func (l *commandLine) unreadName() string {
	return cmp.Or(variable.Get(l.flags.set, "name"), variable.Get(l.process.Environ, "MEGA_NAME"), l.shell.Name)
}

// noProcess returns the failure for a program without a running process, with the
// consequence for the component that d is about. d is zero for a whole process.
func (l *commandLine) noProcess(name string, d plan.Decision) error {
	f := &failure.Failure{
		Code: "cli.no_process", Exit: failure.ExitUnavailable,
		Text:    fmt.Sprintf("No process of this user with the name %q runs on this machine.", name),
		Actions: []string{"start it: " + failure.Command(l.shell.Name) + " serve"},
	}
	if d.Component != "" {
		f.Facts = []failure.Fact{{Name: d.Subject(), Value: fmt.Sprintf("%s: %s", d.Chosen, d.Why)}}
	}
	left := leftOut(l.process.Environ)
	f.Facts = append(f.Facts, left...)
	switch ended := d.Scope == "process" && len(left) == 0; {
	case d.Chosen == "redis":
		f.Actions = append(f.Actions, fmt.Sprintf("show the %s of the Redis: mega %s ls --url %s", d.Subject(), d.Component, cmp.Or(d.Server, "redis://HOST:6379/0")))
	case ended && d.Component == "limit":
		f.Actions = append(f.Actions, "limits in the memory of a process end with it: while no process runs, no unit is in use")
	case ended && d.Component == "lock":
		f.Actions = append(f.Actions, noProcessNoLock)
	}
	return f
}

const noProcessNoLock = "locks in the memory of a process end with it: while no process runs, no lock is held"

// leftOut returns the folders of sockets that a search leaves out. The log of a
// process that could not use one has a warning.
func leftOut(environ []string) (all []failure.Fact) {
	for _, err := range admin.Untrusted(admin.Folders(environ)) {
		all = append(all, failure.Fact{Name: "left out", Value: err.Error()})
	}
	return all
}
