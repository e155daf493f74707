package plan

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/megaframework/mega/internal/failure"
)

// Verbs returns the verbs that every program has. A command has another name.
func Verbs() []string {
	return []string{"boot", "bus", "completion", "config", "doctor", "explain", "help", "limit", "lock", "routes", "serve", "version", "worker"}
}

// Commands returns the commands in options, without checking anything.
func Commands(options []Option) (all []Hook) {
	for _, o := range options {
		switch o := o.(type) {
		case appOption:
			all = append(all, Commands(o.options)...)
		case moduleOption:
			all = append(all, Commands(o.options)...)
		case Hook:
			if o.Kind == KindCommand {
				all = append(all, o)
			}
		}
	}
	return all
}

var commandRule = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// checkCommands returns an error for a command with a name that no verb can have, or
// that another verb has.
func (p *Program) checkCommands() error {
	sites := map[string]string{}
	for _, part := range p.parts() {
		for _, h := range part.Hooks {
			if h.Kind != KindCommand {
				continue
			}
			if fault := commandFault(h.Name, sites[h.Name]); fault != "" {
				return &failure.Failure{
					Code: "boot.command_name", Exit: failure.ExitInternal, Text: fmt.Sprintf("A command cannot be called %q. %s", h.Name, fault),
					Facts: []failure.Fact{{Name: "given at", Value: h.Fn.Site}},
				}
			}
			sites[h.Name] = h.Fn.Site
		}
	}
	return nil
}

// commandFault returns why a command cannot have the name, or "". first is the call
// site of an earlier command with the name, or "".
func commandFault(name, first string) string {
	switch {
	case !commandRule.MatchString(name):
		return "A name has lower-case letters, digits and dashes."
	case slices.Contains(Verbs(), name):
		return "Every program has this verb."
	case first != "":
		return "The program has this command: " + first + "."
	}
	return ""
}
