package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/plan"
)

// routesVerb lists the routes of the apps.
func (l *commandLine) routesVerb() *cobra.Command {
	c := &cobra.Command{
		Use: "routes", Short: "list the routes of every app",
		Long: "It starts nothing and calls no constructor. If the routes depend on a value of a constructor, a running\n" +
			"process of this program lists its routes.\n\n" +
			"With --json: a list of {\"app\", \"host\", \"method\", \"pattern\", \"handler\"}; the method * stands for every method.",
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			routes, from, err := l.routes(c.Context())
			if err != nil {
				return err
			}
			return l.shell.Print(routes, func(w io.Writer) { printRoutes(w, routes, from) })
		},
	}
	l.onlyFlag(c)
	return c
}

// routes returns the routes that the program declares, or else the routes of
// one of its running processes, which from names.
func (l *commandLine) routes(ctx context.Context) (routes []plan.Route, from string, err error) {
	made, err := l.plan()
	if err != nil {
		return nil, "", err
	}
	routes, err = made.Routes()
	f, failed := errors.AsType[*failure.Failure](err)
	if !failed || f.Code != "boot.routes_unknown" {
		return routes, "", err
	}
	sources, none := l.processes(ctx)
	if none != nil {
		return nil, "", err // the program's own error describes the correction
	}
	answers, _ := askProcesses(ctx, sources, func(ctx context.Context, p *admin.Client) (all []plan.Route, err error) {
		err = p.Get(ctx, "/routes", &all)
		return all, err
	})
	for i, s := range sources {
		if s.err == nil {
			return answers[i], s.about.short(), nil
		}
	}
	return nil, "", err
}

func printRoutes(w io.Writer, routes []plan.Route, from string) {
	t := plain.Table{}
	t.Add("APP", "METHOD", "PATTERN", "HANDLER")
	for _, r := range routes {
		t.Add(r.App, r.Method, r.Host+r.Pattern, r.Handler)
	}
	t.Print(w)
	if from != "" {
		fmt.Fprintf(w, "\nreported by %s\n", from)
	}
}
