package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/lock/driver"
)

// workerFlag adds --worker to verbs that may call one worker of several.
func workerFlag(c *cobra.Command, worker *int) {
	c.PersistentFlags().Var(positive{of: worker}, "worker", "call the worker with the number `N`")
}

// errNoWorkers is the error of a process without workers.
var errNoWorkers = errors.New("the process has no workers")

// selectWorkers returns the sources to call: the requested worker, or, if worker is
// 0, the worker that the supervisor chooses. If each worker has its own locks, it
// returns all workers.
func selectWorkers(all []source, worker int) (sources []source) {
	for _, s := range all {
		switch {
		case s.err != nil || worker == 0 && s.about.Scope != driver.Process.String():
			sources = append(sources, s)
		case worker == 0:
			sources = append(sources, readyWorkers([]source{s})...)
		case len(s.workers) == 0:
			s.err = errNoWorkers
			sources = append(sources, s)
		default:
			sources = append(sources, s.of(worker))
		}
	}
	return sources
}

// readyWorkers returns all with its ready workers in place of each supervisor that has any.
func readyWorkers(all []source) (sources []source) {
	for _, s := range all {
		ready := admin.Serving(s.workers)
		if len(ready) == 0 || s.about.Worker != 0 {
			sources = append(sources, s)
			continue
		}
		for _, w := range ready {
			sources = append(sources, s.of(w.ID))
		}
	}
	return sources
}

// of returns one worker of a supervisor as a source.
func (s source) of(worker int) source {
	s.locks, s.about.Worker = s.client().Worker(worker), worker
	return s
}

// supervised are the verbs of worker. They call supervisors.
type supervised struct {
	shell *Shell
	find  func(context.Context) ([]source, error)
	pid   int
}

func (l *commandLine) workerVerb() *cobra.Command {
	v := &supervised{shell: l.shell, find: l.processes}
	c := group("worker", "list the workers of a supervisor, and restart them", v.ls(), v.restart())
	c.Long = "It calls the supervisors of this program that run on this machine as this user (serve --workers N)."
	c.PersistentFlags().Var(positive{of: &v.pid}, "pid", "call only the supervisor with the number `PID`")
	return c
}

// supervisors returns the processes that have workers, or may have them.
func (v *supervised) supervisors(ctx context.Context) ([]source, error) {
	all, err := v.find(ctx)
	if err == nil {
		all, err = withPID(all, v.pid)
	}
	if err != nil {
		return nil, err
	}
	with := slices.DeleteFunc(slices.Clone(all), func(s source) bool { return s.err == nil && s.workers == nil })
	if len(with) > 0 {
		return with, nil
	}
	return nil, &failure.Failure{
		Code: "cli.no_workers", Exit: failure.ExitUnavailable, Text: "The program serves in one process, without a supervisor and workers.",
		Facts: thereIs(all), Actions: []string{"start workers: " + failure.Command(v.shell.Name) + " serve --workers 4"},
	}
}

// supervisedWorkers is an element of the document of worker ls --json.
type supervisedWorkers struct {
	Name    string         `json:"name,omitempty"`
	PID     int            `json:"pid,omitempty"`
	Socket  string         `json:"socket,omitempty"`
	Workers []admin.Worker `json:"workers"`
	Error   string         `json:"error,omitempty"`
}

func (v *supervised) ls() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list the workers, with state and age",
		Long: "During a replacement two workers have one number: the starting worker, and the old worker, which serves or\n" +
			"finishes its requests.\n\n" +
			"With --json: a list of {\"name\", \"pid\", \"workers\", \"error\"}, one for each supervisor; a worker is {\"id\", \"pid\",\n" +
			"\"state\", \"generation\", \"restarts\", \"since\"}, and \"ended\" if it cannot be started. \"next\" is the end of the pause\n" +
			"before the next start of a worker that has no process.",
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			sources, err := v.supervisors(c.Context())
			if err != nil {
				return err
			}
			answers, err := askProcesses(c.Context(), sources, func(ctx context.Context, p *admin.Client) ([]admin.Worker, error) { return p.Workers(ctx) })
			all := make([]supervisedWorkers, len(sources))
			for i, s := range sources {
				all[i] = supervisedWorkers{s.about.Name, s.about.PID, s.about.Socket, append([]admin.Worker{}, answers[i]...), s.failed()}
			}
			return errors.Join(v.shell.Print(all, func(w io.Writer) { printWorkers(w, all) }), err)
		},
	}
}

func printWorkers(w io.Writer, all []supervisedWorkers) {
	for i, c := range all {
		if c.Error != "" {
			continue // reported on standard error
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s, pid %d: %s\n", c.Name, c.PID, count(len(admin.Numbers(c.Workers)), "worker"))
		t := plain.Table{Indent: "  "}
		t.Add("ID", "PID", "STATE", "FOR", "GENERATION", "RESTARTS")
		for _, x := range c.Workers {
			pid, state := fmt.Sprint(x.PID), x.State
			if x.Ended != "" {
				pid, state = "-", fmt.Sprintf("%s (%s)", x.State, x.Ended)
			}
			if !x.Next.IsZero() {
				state += ", next start in " + plain.Short(max(0, time.Until(x.Next)))
			}
			if x.Ended == "" && x.PID == 0 {
				t.Add(fmt.Sprint(x.ID), "-", state, "-", fmt.Sprint(x.Generation), fmt.Sprint(x.Restarts))
				continue
			}
			t.Add(fmt.Sprint(x.ID), pid, state, plain.Short(max(0, time.Since(x.Since))), fmt.Sprint(x.Generation), fmt.Sprint(x.Restarts))
		}
		t.Print(w)
	}
}

// restarted is the document of worker restart --json.
type restarted struct {
	Name      string `json:"name"`
	PID       int    `json:"pid"`
	Restarted int    `json:"restarted"`
}

func (v *supervised) restart() *cobra.Command {
	return &cobra.Command{
		Use: "restart [ID]", Short: "replace all workers one after the other, or only the worker with the number ID",
		Long: "The old process ends after the new one is ready, and the next replacement begins after the old process exited. No\n" +
			"connection is refused. The verb returns after the last replacement; if it is interrupted, the supervisor continues.\n" +
			"Without ID, the new workers read the configuration again; with ID, the new one has the configuration of the others.\n\n" +
			"With --json: {\"name\", \"pid\", \"restarted\"}; name and pid identify the supervisor.",
		Args: arguments(0, "the number of a worker"),
		RunE: func(c *cobra.Command, args []string) error {
			id := 0
			if len(args) > 0 {
				n, err := strconv.Atoi(args[0])
				if err != nil || n < 1 {
					return usage(c, "cli.wrong_flag", fmt.Sprintf("%q is not a worker number. Worker numbers begin at 1.", args[0]))
				}
				id = n
			}
			s, err := v.one(c)
			if err != nil {
				return err
			}
			n, err := s.client().Restart(c.Context(), id)
			if err != nil {
				return v.notRestarted(s, err)
			}
			return v.shell.Print(restarted{s.about.Name, s.about.PID, n}, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %s restarted\n", s.about.short(), count(n, "worker"))
			})
		},
	}
}

// one returns the selected supervisor, or a failure if there are several.
func (v *supervised) one(c *cobra.Command) (source, error) {
	all, err := v.supervisors(c.Context())
	switch {
	case err != nil:
		return source{}, err
	case len(all) == 1 && all[0].err == nil:
		return all[0], nil
	case len(all) == 1:
		return source{}, unanswered(all)
	}
	return source{}, &failure.Failure{
		Code: "cli.which_process", Exit: failure.ExitUsage, Text: "Several supervisors of this program run on this machine.",
		Facts: thereIs(all), Actions: []string{fmt.Sprintf("select one: %s --pid %d", typed(c), all[0].about.PID)},
	}
}

// notRestarted returns the reason why a supervisor has not replaced its
// workers.
func (v *supervised) notRestarted(s source, err error) error {
	no, ok := errors.AsType[*admin.Error](err)
	if !ok || no.Code() == "worker.unknown" {
		s.err = err
		return unanswered([]source{s})
	}
	return &failure.Failure{
		Code: "cli.not_restarted", Exit: failure.ExitUnavailable, Text: "The workers of " + s.about.short() + " were not all replaced.",
		Facts:   []failure.Fact{{Name: "cause", Value: no.Text}},
		Actions: []string{"list the workers: " + failure.Command(v.shell.Name) + " worker ls", "read the log"},
	}
}
