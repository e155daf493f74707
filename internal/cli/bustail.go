package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/plain"
)

// tailed is a line of bus tail --json.
type tailed struct {
	Name   string `json:"name"`
	PID    int    `json:"pid"`
	Worker int    `json:"worker,omitempty"` // the worker that is followed, if there are several
	Error  string `json:"error,omitempty"`  // the process has ended
	admin.Event
}

func (m *messages) tail() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "tail PATTERN", Short: "follow the events whose subjects match PATTERN",
		Long: "It shows events as they arrive, until SIGINT. It follows every process that has its own bus, and one of\n" +
			"the processes that share a bus. In PATTERN, * stands for one token of a subject and > for the rest. Requests\n" +
			"are not events. It never slows the program: a slow reader misses events, and the output has their number.\n\n" +
			"With --json: {\"name\", \"pid\", \"worker\", \"at\", \"subject\", \"headers\", \"missed\"}, one object per line, and the\n" +
			"data of the event, as \"json\", as \"data\" if it is text, or as \"base64\". A line without a subject has the number\n" +
			"of missed events, -1 if it is unknown.",
		Args:              arguments(1, "a pattern"),
		ValidArgsFunction: m.completeTopic(false),
		RunE: func(c *cobra.Command, args []string) error {
			sources, err := m.processes(c.Context())
			if err != nil {
				return err
			}
			f := &follower{messages: m, sources: distinct(sources), left: limit}
			return f.run(c.Context(), args[0])
		},
	}
	c.Flags().VarP(positive{of: &limit}, "count", "n", "end after `N` events")
	return c
}

// follower shows the events of several processes.
type follower struct {
	*messages
	sources []source

	mu   sync.Mutex // guards left, and standard output
	left int        // events until the end; 0 means no limit
}

// errEnough ends a tail after the requested number of events.
var errEnough = errors.New("requested number of events reached")

// run follows the processes until a signal, until the requested number of
// events, or until the last of the processes has ended.
func (f *follower) run(ctx context.Context, pattern string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var following sync.WaitGroup
	for i := range f.sources {
		s := &f.sources[i]
		if s.err != nil {
			f.gone(s, s.err)
		} else {
			following.Go(func() { s.err = f.follow(ctx, s, pattern, end) })
		}
	}
	following.Wait()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errEnough):
		return nil
	case ctx.Err() == nil:
		return unanswered(f.sources)
	case errors.Is(cause, context.Canceled):
		return nil // by a signal
	default:
		return cause
	}
}

var errEnded = errors.New("the process has ended")

// follow shows the events of one process. A failed write ends the tail of all
// processes: follow passes its error to end.
func (f *follower) follow(ctx context.Context, s *source, pattern string, end func(error)) error {
	show := func(e admin.Event) error {
		if err := f.show(s, e); err != nil {
			end(err)
			return err
		}
		return nil
	}
	err := s.client().Tail(ctx, pattern, func() { f.begun(s, pattern) }, show)
	for err == nil && len(s.workers) > 0 && ctx.Err() == nil {
		err = f.again(ctx, s, pattern, show)
	}
	if err == nil {
		err = errEnded
	}
	if ctx.Err() == nil {
		f.gone(s, err)
	}
	return err
}

// again follows another worker of the same supervisor, in place of one that has
// ended. It retries until a worker is ready.
func (f *follower) again(ctx context.Context, s *source, pattern string, show func(admin.Event) error) error {
	begun := func() { _ = show(admin.Event{At: time.Now(), Missed: -1}) } // a failed write ends the tail itself
	for {
		err := s.client().Tail(ctx, pattern, begun, show)
		if no, refused := errors.AsType[*admin.Error](err); !refused || no.Status < http.StatusInternalServerError {
			return err
		}
		select {
		case <-time.After(refreshInterval / 4):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begun reports to a person that the tail has begun and waits.
func (f *follower) begun(s *source, pattern string) {
	if !f.shell.JSON {
		fmt.Fprintf(f.shell.Stderr, "following %s at %s\n", pattern, plain.Line(s.about.onBus()))
	}
}

// gone reports that a process is no longer followed, while others are.
func (f *follower) gone(s *source, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case len(f.sources) < 2:
	case f.shell.JSON:
		_ = f.line(tailed{Name: s.about.Name, PID: s.about.PID, Worker: s.about.Worker, Error: err.Error()}) // the next event reports a write error, too
	default:
		fmt.Fprintf(f.shell.Stderr, "%s: %s\n", plain.Line(s.about.short()), plain.Text(err.Error()))
	}
}

func (f *follower) show(s *source, e admin.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.print(s, e); err != nil || e.Subject == "" || f.left == 0 {
		return err
	}
	if f.left--; f.left == 0 {
		f.left = -1 // and nothing after it
		return errEnough
	}
	return nil
}

func (f *follower) print(s *source, e admin.Event) error {
	if f.left < 0 {
		return errEnough
	}
	if f.shell.JSON {
		return f.line(tailed{Name: s.about.Name, PID: s.about.PID, Worker: s.about.Worker, Event: e})
	}
	who := ""
	if len(f.sources) > 1 {
		who = fmt.Sprintf("%d  ", s.about.PID)
		if s.about.Worker != 0 {
			who = fmt.Sprintf("%d/%d  ", s.about.PID, s.about.Worker)
		}
	}
	var b strings.Builder
	at := e.At.Local().Format("15:04:05.000")
	switch {
	case e.Missed < 0:
		fmt.Fprintf(&b, "%s  %s-- events may have been missed --\n", at, who)
	case e.Missed > 0:
		fmt.Fprintf(&b, "%s  %s-- %s missed --\n", at, who, count(e.Missed, "event"))
	}
	if e.Subject != "" {
		fmt.Fprintf(&b, "%s  %s%s  %s\n", at, who, plain.Line(e.Subject), strings.TrimRight(plain.Text(string(e.Bytes())), "\n"))
	}
	return f.shell.write(b.String())
}

func (f *follower) line(t tailed) error {
	text, err := json.Marshal(t)
	return errors.Join(err, f.shell.write(plain.JSON(string(text))+"\n"))
}

// shown returns the data of a message: unchanged for a program, and without a
// terminal's control sequences for a person.
func (m *messages) shown(d admin.Data) string {
	data := d.Bytes()
	var compact bytes.Buffer
	if d.JSON != nil && json.Compact(&compact, data) == nil {
		data = compact.Bytes()
	}
	if plain.IsTerminal(m.shell.Stdout) {
		return plain.Text(string(data))
	}
	return string(data)
}
