package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/lock/driver"
)

// messages are the verbs of bus. They call the running processes of a program.
type messages struct {
	shell *Shell
	stdin io.Reader
	find  func(context.Context) ([]source, error)

	pid    int
	worker int
}

func (l *commandLine) busVerb() *cobra.Command {
	m := &messages{shell: l.shell, stdin: l.process.Stdin, find: l.finder(busComponent)}
	c := group("bus", "follow messages, publish events and make requests", m.tail(), m.pub(), m.req(), m.topics())
	c.Long = "It calls the processes of this program that run on this machine as this user."
	c.PersistentFlags().Var(positive{of: &m.pid}, "pid", "call only the process with the number `PID`")
	workerFlag(c, &m.worker)
	return c
}

// processes returns the processes to call: all, or the one of --pid.
func (m *messages) processes(ctx context.Context) ([]source, error) {
	all, err := m.find(ctx)
	if err == nil {
		all, err = withPID(all, m.pid)
	}
	return selectWorkers(all, m.worker), err
}

// withPID returns the process with the id pid, or all if pid is 0. It returns a
// failure if no process has that id.
func withPID(all []source, pid int) ([]source, error) {
	if pid == 0 {
		return all, nil
	}
	var numbers []string
	for _, s := range all {
		if s.about.PID == pid {
			return []source{s}, nil
		}
		numbers = append(numbers, fmt.Sprint(s.about.PID))
	}
	return nil, &failure.Failure{
		Code: "cli.no_process", Exit: failure.ExitUnavailable,
		Text:  fmt.Sprintf("No process of this program and user has the number %d on this machine.", pid),
		Facts: []failure.Fact{{Name: "available", Value: strings.Join(numbers, ", ")}},
	}
}

// one returns the process that sends. If several share a bus, it is the first;
// if several have their own bus, the choice is ambiguous and one returns an
// error.
func (m *messages) one(ctx context.Context, c *cobra.Command) (source, error) {
	all, err := m.processes(ctx)
	if err != nil {
		return source{}, err
	}
	apart := distinct(all)
	for _, s := range apart {
		if s.err == nil && (len(apart) == 1 || s.about.Scope != driver.Process.String()) {
			return s, nil
		}
	}
	answers := slices.IndexFunc(apart, func(s source) bool { return s.err == nil })
	if answers < 0 || len(apart) == 1 {
		return source{}, unanswered(apart)
	}
	return source{}, &failure.Failure{
		Code: "cli.which_process", Exit: failure.ExitUsage,
		Text:    "Each of these processes has its own bus: a message that one of them sends reaches no other.",
		Facts:   thereIs(apart),
		Actions: []string{"select a process: " + typed(c) + apart[answers].about.flags()},
	}
}

// flags returns the flags that select this process.
func (a about) flags() string {
	s := fmt.Sprintf(" --pid %d", a.PID)
	if a.Worker != 0 {
		s += fmt.Sprintf(" --worker %d", a.Worker)
	}
	return s
}

// onBus returns the process and its bus as a heading.
func (a about) onBus() string {
	asked := a
	asked.For = nil
	head := asked.short()
	if a.Driver == "" {
		return head
	}
	return plain.Line(fmt.Sprintf("%s: %s, scope %s", head, a.Driver, a.Scope))
}

// headerFlag adds --header to a verb that sends.
func headerFlag(c *cobra.Command, headers *[]string) {
	c.Flags().StringArrayVarP(headers, "header", "H", nil, "send a header, as `'KEY: VALUE'`; repeatable")
}

const dataHelp = "DATA is sent unchanged. @FILE sends the content of a file, and - sends standard input. Without DATA\n" +
	"the message is empty."

// message returns the message to send.
func (m *messages) message(c *cobra.Command, args, headers []string) (admin.Message, error) {
	out := admin.Message{Subject: args[0]}
	for _, h := range headers {
		key, value, ok := strings.Cut(h, ":")
		if !ok {
			return out, usage(c, "cli.wrong_flag", fmt.Sprintf("--header %q is not valid; use 'KEY: VALUE'.", h))
		}
		if out.Headers == nil {
			out.Headers = bus.Headers{}
		}
		out.Headers.Add(strings.TrimSpace(key), strings.TrimSpace(value))
	}
	data, err := m.data(args[1:])
	if err != nil {
		return out, err
	}
	out.Data = admin.Data{Binary: data} // as text, JSON may need six bytes for one
	return out, nil
}

// maxData bounds the size of a file that is read. No bus carries as much.
const maxData = 64 << 20

func (m *messages) data(args []string) ([]byte, error) {
	if len(args) == 0 {
		return nil, nil
	}
	from, name := io.Reader(strings.NewReader(args[0])), "the data"
	switch path, isFile := strings.CutPrefix(args[0], "@"); {
	case isFile:
		f, err := os.Open(path)
		if err != nil {
			return nil, unreadable(path, err)
		}
		defer func() { _ = f.Close() }() // it was opened for reading
		from, name = f, path
	case args[0] == "-" && m.stdin == nil:
		from, name = strings.NewReader(""), "standard input"
	case args[0] == "-":
		from, name = m.stdin, "standard input"
	}
	data, err := io.ReadAll(io.LimitReader(from, maxData+1))
	if err == nil && len(data) > maxData {
		err = fmt.Errorf("larger than %d MiB", maxData>>20)
	}
	if err != nil {
		return nil, unreadable(name, err)
	}
	return data, nil
}

func unreadable(what string, err error) error {
	return &failure.Failure{Code: "cli.no_data", Exit: failure.ExitUsage, Text: "Cannot read the data to send from " + what + ".", Cause: err}
}

// sent is the document of bus pub --json.
type sent struct {
	about
	Subject string `json:"subject"`
	Bytes   int    `json:"bytes"`
}

func (m *messages) pub() *cobra.Command {
	var headers []string
	c := &cobra.Command{
		Use: "pub SUBJECT [DATA]", Short: "publish an event",
		Long: "A running process publishes it to the subscribers of SUBJECT.\n\n" + dataHelp + "\n\n" +
			"With --json: {\"name\", \"pid\", \"worker\", \"driver\", \"scope\", \"subject\", \"bytes\"}; name and pid identify the process.",
		Args:              arguments(1, "a subject", "data"),
		ValidArgsFunction: m.completeTopic(false),
		RunE: func(c *cobra.Command, args []string) error {
			out, err := m.message(c, args, headers)
			if err != nil {
				return err
			}
			s, err := m.one(c.Context(), c)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), askTime)
			defer cancel()
			if err := s.client().Publish(ctx, out); err != nil {
				return s.refused(err)
			}
			n := len(out.Bytes())
			return m.shell.Print(sent{s.about, out.Subject, n}, func(w io.Writer) {
				fmt.Fprintf(w, "%s: published, %s  (%s)\n", out.Subject, count(n, "byte"), s.about.short())
			})
		},
	}
	headerFlag(c, &headers)
	return c
}

// answered is the document of bus req --json.
type answered struct {
	about
	Subject string `json:"subject"`
	admin.Reply
}

func (m *messages) req() *cobra.Command {
	var headers []string
	var timeout time.Duration
	c := &cobra.Command{
		Use: "req SUBJECT [DATA]", Short: "make a request and show the answer",
		Long: "A running process sends a request to a responder of SUBJECT.\n\n" + dataHelp + "\n\n" +
			"With --json: {\"name\", \"pid\", \"worker\", \"driver\", \"scope\", \"subject\", \"headers\", \"took\"} and the answer, as\n" +
			"\"json\", as \"data\" if it is text, or as \"base64\".",
		Args:              arguments(1, "a subject", "data"),
		ValidArgsFunction: m.completeTopic(true),
		RunE: func(c *cobra.Command, args []string) error {
			if timeout <= 0 || timeout > time.Hour {
				return usage(c, "cli.wrong_flag", fmt.Sprintf("--timeout %v is not valid; it must be more than 0 and at most 1h.", timeout))
			}
			out, err := m.message(c, args, headers)
			if err != nil {
				return err
			}
			out.Timeout = timeout.String()
			s, err := m.one(c.Context(), c)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout+askTime)
			defer cancel()
			reply, err := s.client().Request(ctx, out)
			if err != nil {
				return s.refused(err)
			}
			if m.shell.JSON {
				return m.shell.printJSON(answered{s.about, out.Subject, reply})
			}
			return m.shell.write(m.shown(reply.Data) + "\n")
		},
	}
	headerFlag(c, &headers)
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "wait at most `DURATION` for the answer")
	return c
}

// refused returns the reason why a process did not do what a verb requested:
// the request was wrong, or it failed.
func (s source) refused(err error) error {
	no, ok := errors.AsType[*admin.Error](err)
	if !ok || no.Status < 500 || no.Status == http.StatusInternalServerError {
		s.err = err
		return unanswered([]source{s})
	}
	return &failure.Failure{
		Code: "cli.message_failed", Exit: failure.ExitUnavailable, Text: "The publish or request failed at " + s.about.short() + ".",
		Facts: []failure.Fact{{Name: "code", Value: no.Code()}, {Name: "cause", Value: no.Text}},
	}
}
