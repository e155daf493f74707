package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/plain"
)

// described is an element of the document of bus topics --json.
type described struct {
	envelope
	Topics []admin.Topic `json:"topics"`
}

func (m *messages) topics() *cobra.Command {
	return &cobra.Command{
		Use: "topics", Short: "list the subscriptions and responders, with their message counts",
		Long: "With --json: a list of {\"name\", \"pid\", \"worker\", \"driver\", \"scope\", \"topics\", \"error\"}, one for each process; a topic is\n" +
			"{\"pattern\", \"answers\", \"subscriptions\", \"groups\", \"received\", \"handled\", \"failed\", \"dropped\", \"missed\", \"pending\"}.",
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := m.described(c.Context())
			if all == nil {
				return err
			}
			return errors.Join(m.shell.Print(all, func(w io.Writer) { printTopics(w, all) }), err)
		},
	}
}

func (m *messages) described(ctx context.Context) ([]described, error) {
	sources, err := m.processes(ctx)
	if err != nil {
		return nil, err
	}
	if m.worker == 0 {
		sources = readyWorkers(sources) // every worker counts its own messages
	}
	answers, err := askProcesses(ctx, sources, func(ctx context.Context, p *admin.Client) ([]admin.Topic, error) { return p.Topics(ctx) })
	all := make([]described, len(sources))
	for i, s := range sources {
		all[i] = described{s.envelope(), append([]admin.Topic{}, answers[i]...)}
	}
	return all, err
}

// printTopics writes the processes, and the topics of all of them as one table.
func printTopics(w io.Writer, all []described) {
	t := plain.Table{Indent: "  "}
	pids := map[int]bool{}
	for _, d := range all {
		if d.Error == "" && !pids[d.PID] { // an error is reported on standard error
			pids[d.PID] = true
			d.about.Worker = 0
			fmt.Fprintln(w, d.about.onBus())
		}
	}
	row := func(pid, worker string, cells ...string) {
		cells = append([]string{worker}, cells...)
		if len(pids) > 1 {
			cells = append([]string{pid}, cells...)
		}
		t.Add(cells...)
	}
	row("PID", "WORKER", "PATTERN", "FOR", "SUBSCRIPTIONS", "GROUPS", "HANDLED", "FAILED", "DROPPED", "MISSED", "WAITING")
	for _, d := range all {
		worker := "-"
		if d.Worker != 0 {
			worker = fmt.Sprint(d.Worker)
		}
		for _, x := range d.Topics {
			row(fmt.Sprint(d.PID), worker, topicCells(x)...)
		}
	}
	switch {
	case len(t.Rows) > 1:
		t.Print(w)
	case len(pids) > 0:
		fmt.Fprintln(w, "  no subscriptions or responders")
	}
}

func topicCells(x admin.Topic) []string {
	cells := []string{x.Pattern, x.Kind(), fmt.Sprint(x.Subscriptions), cmp.Or(strings.Join(x.Groups, ", "), "-")}
	for _, n := range []uint64{x.Handled, x.Failed, x.Dropped, x.Missed} {
		cells = append(cells, fmt.Sprint(n))
	}
	return append(cells, fmt.Sprint(x.Pending))
}

// completeTopic completes the patterns in use, of requests or of events.
func (m *messages) completeTopic(answers bool) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // a file, perhaps
		}
		all, _ := m.described(c.Context())
		var patterns []string
		for _, d := range all {
			for _, t := range d.Topics {
				if t.Answers == answers {
					patterns = append(patterns, t.Pattern)
				}
			}
		}
		return completing(prefix, patterns)
	}
}
