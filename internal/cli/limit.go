package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/limit"
)

// limits are the verbs of limit. They call running processes.
type limits struct {
	shell  *Shell
	find   func(context.Context) ([]source, error)
	worker int
}

func (l *commandLine) limitVerb() *cobra.Command {
	m := &limits{shell: l.shell, find: l.finder(limitComponent)}
	c := group("limit", "run commands under limits, show the use of limits, pause and reset them", limited("exec", l.shell, l.process.Environ), m.ls(), m.show(), m.pause(), m.reset())
	c.Long = "Except exec, it calls the processes of this program that run on this machine as this user."
	workerFlag(c, &m.worker)
	return c
}

// askLimits calls do for every set of limits.
func askLimits[T any](ctx context.Context, l *limits, do func(context.Context, *admin.Client) (T, error)) ([]source, []T, error) {
	sources, err := l.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	sources = distinct(selectWorkers(sources, l.worker))
	answers, err := askProcesses(ctx, sources, do)
	return sources, answers, err
}

// listedLimits is an element of the document of limit ls --json.
type listedLimits struct {
	envelope
	admin.LimitListing
}

func (l *limits) ls() *cobra.Command {
	most := 100
	c := &cobra.Command{
		Use: "ls [PREFIX]", Aliases: []string{"list"}, Short: "list the limits in use whose keys begin with PREFIX",
		Long: "It lists every limit of which units are in use, that has waiters, or that is paused.\n\n" +
			"With --json: a list of {\"name\", \"pid\", \"worker\", \"for\", \"driver\", \"scope\", \"error\", \"limits\", \"total\",\n" +
			"\"truncated\"}, one for each set of limits; a limit is {\"key\", \"rates\", \"waiters\", \"waiting\", \"paused\"}.",
		Args: arguments(0, "a prefix"),
		RunE: func(c *cobra.Command, args []string) error {
			sources, answers, err := askLimits(c.Context(), l, func(ctx context.Context, p *admin.Client) (admin.LimitListing, error) {
				return p.Limits(ctx, strings.Join(args, ""), most)
			})
			if sources == nil {
				return err
			}
			all := make([]listedLimits, len(sources))
			for i, s := range sources {
				answers[i].Limits = append([]admin.LimitEntry{}, answers[i].Limits...)
				all[i] = listedLimits{s.envelope(), answers[i]}
			}
			return errors.Join(l.shell.Print(all, func(w io.Writer) { printListedLimits(w, all) }), err)
		},
	}
	c.Flags().Var(positive{&most, admin.MaxListed}, "limit", "list at most `N` limits of each process")
	return c
}

// shownLimit is an element of the document of limit show --json.
type shownLimit struct {
	envelope
	admin.LimitEntry
}

func (l *limits) show() *cobra.Command {
	return &cobra.Command{
		Use: "show KEY", Short: "show the use of a limit by rate, and the waiters in order",
		Long: "With --json: a list of {\"name\", \"pid\", \"worker\", \"for\", \"driver\", \"scope\", \"key\", \"rates\", \"waiters\",\n" +
			"\"waiting\", \"paused\", \"error\"}, one for each set of limits.",
		Args:              arguments(1, "the key of a limit"),
		ValidArgsFunction: l.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			sources, answers, err := askLimits(c.Context(), l, func(ctx context.Context, p *admin.Client) (admin.LimitEntry, error) { return p.Limit(ctx, args[0]) })
			if sources == nil {
				return err
			}
			all := make([]shownLimit, len(sources))
			for i, s := range sources {
				all[i] = shownLimit{s.envelope(), answers[i]}
			}
			return errors.Join(l.shell.Print(all, func(w io.Writer) { printShownLimits(w, all) }), err)
		},
	}
}

// change calls do for every set of limits, and prints done for each that succeeded.
func (l *limits) change(ctx context.Context, done string, do func(context.Context, *admin.Client) error) error {
	sources, _, err := askLimits(ctx, l, func(ctx context.Context, p *admin.Client) (struct{}, error) { return struct{}{}, do(ctx, p) })
	if sources == nil {
		return err
	}
	all := make([]envelope, len(sources))
	for i, s := range sources {
		all[i] = s.envelope()
	}
	return errors.Join(l.shell.Print(all, func(w io.Writer) {
		for _, a := range all {
			if a.Error == "" {
				fmt.Fprintf(w, "%s  (%s)\n", plain.Line(done), a.short())
			}
		}
	}), err)
}

const documentOfChange = "With --json: a list of {\"name\", \"pid\", \"worker\", \"for\", \"driver\", \"scope\", \"error\"}, one for each set of\n" +
	"limits."

func (l *limits) pause() *cobra.Command {
	var reason string
	var length time.Duration
	c := &cobra.Command{
		Use: "pause KEY --for TIME --reason TEXT", Short: "refuse all calls for a limit for a time",
		Long: "Waiting calls wait until the pause ends. If the limit is already paused, the longer pause counts.\n" +
			"limit reset ends a pause.\n\n" + documentOfChange,
		Args:              arguments(1, "the key of a limit"),
		ValidArgsFunction: l.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case !c.Flags().Changed("for"):
				return usage(c, "cli.missing_argument", "A pause needs a length.", "give the length: --for 30s")
			case length <= 0 || length > limit.MaxPause:
				return usage(c, "cli.wrong_flag", fmt.Sprintf("--for %s is not valid; it must be more than 0s and at most %s.", plain.Exact(length), plain.Exact(limit.MaxPause)), "give the length: --for 30s")
			case strings.TrimSpace(reason) == "":
				return usage(c, "cli.no_reason", "A pause needs a reason. The callers that are refused receive it.", `give the reason: --reason "TEXT"`)
			}
			return l.change(c.Context(), fmt.Sprintf("%s: paused for %s", args[0], plain.Exact(length)), func(ctx context.Context, p *admin.Client) error {
				return p.PauseLimit(ctx, args[0], length, reason)
			})
		},
	}
	c.Flags().DurationVar(&length, "for", 0, "the length of the pause, a `TIME` such as 30s")
	c.Flags().StringVar(&reason, "reason", "", "the reason, a `TEXT` for the callers that are refused and for the log")
	return c
}

func (l *limits) reset() *cobra.Command {
	return &cobra.Command{
		Use: "reset KEY", Short: "make all units of a limit free, and end its pause",
		Long: "Earlier grants no longer count: until the windows have passed, more than the rates may be\n" +
			"used.\n\n" + documentOfChange,
		Args:              arguments(1, "the key of a limit"),
		ValidArgsFunction: l.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			return l.change(c.Context(), args[0]+": reset", func(ctx context.Context, p *admin.Client) error { return p.ResetLimit(ctx, args[0]) })
		},
	}
}

// completeKey completes the keys in use.
func (l *limits) completeKey(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	_, answers, err := askLimits(c.Context(), l, func(ctx context.Context, p *admin.Client) (admin.LimitListing, error) {
		return p.Limits(ctx, prefix, 100)
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var keys []string
	for _, a := range answers {
		for _, s := range a.Limits {
			keys = append(keys, s.Key)
		}
	}
	return completing(prefix, keys)
}

// printListedLimits writes the limits of each source as a table.
func printListedLimits(w io.Writer, all []listedLimits) {
	for i, l := range all {
		if !l.begin(w, i) {
			continue
		}
		var rows []shell.LimitRow
		for _, e := range l.Limits {
			rows = append(rows, shell.LimitRow{State: e.State, Waiting: e.Waiting})
		}
		shell.PrintLimits(w, rows)
		if l.Truncated {
			fmt.Fprintf(w, "  %d of %d: --limit shows more, a prefix selects fewer\n", len(l.Limits), l.Total)
		}
	}
}

// printShownLimits writes the rates and waiters of a limit, for each source.
func printShownLimits(w io.Writer, all []shownLimit) {
	for i, s := range all {
		if s.begin(w, i) {
			printLimitState(w, s.State, s.Waiting)
		}
	}
}

func printLimitState(w io.Writer, s limit.State, waiting int) {
	if s.Skipped != "" {
		fmt.Fprintf(w, "  this is not a limit: %s\n", plain.Line(s.Skipped))
		return
	}
	if p := s.Paused; p != nil {
		fmt.Fprintln(w, "  "+plain.Line(fmt.Sprintf("paused for %s by %s: %s", plain.Short(p.Left), shell.HolderName(p.By), p.Reason)))
	}
	if len(s.Rates)+len(s.Waiters) == 0 {
		fmt.Fprintln(w, "  no unit is in use and nobody waits")
		return
	}
	t := plain.Table{Indent: "  "}
	t.Add("RATE", "USED", "LEFT", "NEXT FREE")
	for _, r := range s.Rates {
		t.Add(shell.RateText(r.Rate), fmt.Sprint(r.Used), fmt.Sprint(r.Remaining), shell.FreeText(r.NextFree))
	}
	if len(s.Rates) > 0 {
		t.Print(w)
	}
	if len(s.Waiters) == 0 {
		return
	}
	t = plain.Table{Indent: "  "}
	t.Add("", "WHO", "AGE", "COST", "REQUEST")
	for i, x := range s.Waiters {
		t.Add(fmt.Sprintf("waits %d", i+1), shell.HolderName(x.Holder), shell.Age(x.Holder), fmt.Sprint(x.Cost), x.Request)
	}
	t.Print(w)
	if more := waiting - len(s.Waiters); more > 0 {
		fmt.Fprintf(w, "  and %d more waiters\n", more)
	}
}
