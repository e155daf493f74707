package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// lockService is the locks of a running process, through its admin socket, of a
// server, or of the hub at a socket.
type lockService interface {
	Locks(ctx context.Context, prefix string, limit int) (admin.Listing, error)
	Lock(ctx context.Context, key string) (admin.Entry, error)
	Release(ctx context.Context, key, reason string, only admin.Only) (released int, err error)
	Heal(ctx context.Context, key string, slot int, reason string) error
}

// source is a process or a server that a verb calls.
type source struct {
	locks   lockService // the *admin.Client of a process
	about   about
	workers []admin.Worker // of a supervisor
	meets   string         // path of the cluster socket; empty if the process has its own hub
	err     error          // why it does not answer
}

// about identifies the process or server in every document of lock --json.
type about struct {
	Name   string `json:"name,omitempty"` // of the program
	PID    int    `json:"pid,omitempty"`
	Worker int    `json:"worker,omitempty"` // the worker that answered, if there are several
	For    []int  `json:"for,omitempty"`    // other processes that share these locks, and were not called
	Driver string `json:"driver,omitempty"`
	Scope  string `json:"scope,omitempty"`  // the scope of the locks
	URL    string `json:"url,omitempty"`    // of a server
	Socket string `json:"socket,omitempty"` // of a process that does not identify itself
}

// envelope is the part that the documents of all sources share: the source, and its
// error if it has not answered.
type envelope struct {
	about
	Error string `json:"error,omitempty"`
}

func (s source) envelope() envelope { return envelope{s.about, s.failed()} }

// begin writes the heading of document i, and reports whether it has an answer: an error
// is reported on standard error.
func (e envelope) begin(w io.Writer, i int) (answered bool) {
	if i > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, e.about)
	return e.Error == ""
}

// String returns the process or the server as a heading of one plain line,
// because the process itself has written most of the text.
func (a about) String() string { return plain.Line(a.heading()) }

func (a about) heading() string {
	s := a.place()
	if a.Driver != "" {
		s += fmt.Sprintf(": %s, scope %s", a.Driver, a.Scope)
	}
	return s
}

// place returns the process or the server without its driver.
func (a about) place() string {
	switch {
	case a.URL != "":
		return a.URL
	case a.Socket != "":
		return "socket " + a.Socket
	}
	s := fmt.Sprintf("%s, pid %d", a.Name, a.PID)
	if a.Worker != 0 {
		s += fmt.Sprintf(", worker %d", a.Worker)
	}
	if last := len(a.For) - 1; last >= 0 {
		all := []string{s}
		for _, pid := range a.For[:last] {
			all = append(all, strconv.Itoa(pid))
		}
		s = strings.Join(all, ", ") + " and " + strconv.Itoa(a.For[last])
	}
	return s
}

// thereIs returns the sources as facts of a failure.
func thereIs(sources []source) (facts []failure.Fact) {
	for _, s := range sources {
		facts = append(facts, failure.Fact{Name: "there is", Value: s.about.short()})
	}
	return facts
}

// running returns the processes of this user with that name, or all of them, with
// the driver and the scope of a component.
func running(ctx context.Context, environ []string, name string, of component) (sources []source, err error) {
	found, err := admin.Find(ctx, admin.Folders(environ), name)
	if err != nil {
		return nil, notFound(err)
	}
	for _, f := range found {
		has := of.running(f.Info)
		s := source{
			locks: admin.Dial(f.Path), about: about{Name: f.Info.Name, PID: f.Info.PID, Driver: has.Driver, Scope: has.Scope},
			workers: f.Info.Workers, meets: f.Info.Meets,
		}
		if f.Err != nil {
			s.err, s.about = f.Err, about{Socket: f.Path}
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// client returns a client of the process.
func (s source) client() *admin.Client { return s.locks.(*admin.Client) }

// distinct returns one process for each set of locks. A process that represents
// several lists the others.
func distinct(all []source) (sources []source) {
	for _, s := range all {
		if i := slices.IndexFunc(sources, func(first source) bool { return first.shares(s) }); i >= 0 {
			sources[i].about.For = append(sources[i].about.For, s.about.PID)
			continue
		}
		sources = append(sources, s)
	}
	return sources
}

// shares reports whether s and other have the same locks. Two supervisors have
// separate clusters, unless they use the same cluster socket.
func (s source) shares(other source) bool {
	a, b := s.about, other.about
	if b.Driver == "cluster" && (s.meets == "" || s.meets != other.meets) {
		return false
	}
	return b.Driver != "" && b.Scope != driver.Process.String() && a.Name == b.Name && a.Driver == b.Driver && a.Scope == b.Scope && a.Worker == b.Worker
}

// askTime is the timeout for one answer of one source.
const askTime = 12 * time.Second

// ask calls do for every source concurrently. Each source keeps its error; ask
// returns all errors as one failure.
func ask[T any](ctx context.Context, sources []source, do func(context.Context, lockService) (T, error)) ([]T, error) {
	return askWithin(ctx, askTime, sources, do)
}

// askWithin is ask with another timeout.
func askWithin[T any](ctx context.Context, timeout time.Duration, sources []source, do func(context.Context, lockService) (T, error)) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers, errs := make([]T, len(sources)), make([]error, len(sources))
	var asking sync.WaitGroup
	for i, s := range sources {
		if errs[i] = s.err; s.err == nil {
			asking.Go(func() { answers[i], errs[i] = do(ctx, s.locks) })
		}
	}
	asking.Wait()
	for i, err := range errs {
		sources[i].err = err
	}
	return answers, unanswered(sources)
}

// askProcesses is ask for sources that are processes.
func askProcesses[T any](ctx context.Context, sources []source, do func(context.Context, *admin.Client) (T, error)) ([]T, error) {
	return ask(ctx, sources, func(ctx context.Context, l lockService) (T, error) { return do(ctx, l.(*admin.Client)) })
}

// outcomeWords introduce the sources without a result. The failure has the code of
// the first ones that there are.
var outcomeWords = []string{refusedBy, withoutWorkers, noAnswerFrom, failedAt}

const (
	refusedBy      = "Refused by "
	withoutWorkers = "Without workers: "
	noAnswerFrom   = "No answer from "
	failedAt       = "Failed at " // the source answered that it cannot
)

// unanswered returns a failure if a source did not answer, failed or refused.
func unanswered(sources []source) error {
	f := &failure.Failure{}
	outcomes, names := map[string]outcome{}, map[string][]string{}
	for _, s := range sources {
		if s.err == nil {
			continue
		}
		o := s.outcome()
		outcomes[o.words] = o
		names[o.words] = append(names[o.words], s.about.short())
		f.Facts = append(f.Facts, failure.Fact{Name: s.about.short(), Value: s.err.Error()})
	}
	var texts []string
	for _, words := range outcomeWords {
		if names[words] == nil {
			continue
		}
		if f.Code == "" {
			f.Code, f.Exit = outcomes[words].code, outcomes[words].exit
		}
		texts = append(texts, words+strings.Join(names[words], ", ")+".")
	}
	if texts == nil {
		return nil
	}
	f.Text = strings.Join(texts, " ")
	return f
}

// outcome is the result of a call that failed.
type outcome struct {
	words string // one of outcomeWords
	code  string
	exit  int
}

// outcome classifies the error of a source. An answer has the code of its reason
// if the catalogue has it, and a refusal the exit status of its reason, too.
func (s source) outcome() outcome {
	no, answered := errors.AsType[*admin.Error](s.err)
	switch {
	case errors.Is(s.err, errNoWorkers):
		return outcome{withoutWorkers, "cli.no_workers", failure.ExitUnavailable}
	case !answered:
		return outcome{noAnswerFrom, "cli.unanswered", failure.ExitUnavailable}
	}
	why, err := failure.Explain(no.Code())
	switch {
	case no.Status >= http.StatusInternalServerError && err == nil:
		return outcome{failedAt, why.Name, failure.ExitUnavailable}
	case no.Status >= http.StatusInternalServerError:
		return outcome{failedAt, "internal", failure.ExitUnavailable}
	case err == nil && why.Exit != 0:
		return outcome{refusedBy, why.Name, why.Exit}
	}
	return outcome{refusedBy, "cli.refused", failure.ExitUsage}
}

// failed returns a source's error for the documents of lock --json.
func (s source) failed() string {
	if s.err == nil {
		return ""
	}
	return s.err.Error()
}

// lockerService is the locks of a Locker's backend.
type lockerService struct{ locker *lock.Locker }

func (s lockerService) Locks(ctx context.Context, prefix string, limit int) (admin.Listing, error) {
	states, err := s.locker.List(ctx, prefix)
	l := admin.Listing{Locks: []admin.Entry{}, Total: len(states), Truncated: len(states) > limit}
	for _, state := range states[:min(len(states), limit)] {
		l.Locks = append(l.Locks, admin.NewEntry(state, len(state.Waiters)))
	}
	return l, err
}

func (s lockerService) Lock(ctx context.Context, key string) (admin.Entry, error) {
	state, err := s.locker.Inspect(ctx, key)
	return admin.NewEntry(state, len(state.Waiters)), err
}

func (s lockerService) Release(ctx context.Context, key, reason string, only admin.Only) (int, error) {
	return s.locker.ForceRelease(ctx, key, reason, only.Options()...)
}

func (s lockerService) Heal(ctx context.Context, key string, slot int, reason string) error {
	return s.locker.Heal(ctx, key, slot, reason)
}

// notFound returns the failure of a search for processes.
func notFound(err error) error {
	f := &failure.Failure{Code: "cli.no_socket", Exit: failure.ExitUnavailable, Text: "Cannot call the processes on this machine.", Cause: err}
	if errors.Is(err, admin.ErrUnsupported) {
		f.Actions = []string{"show the locks of a Redis directly: mega lock ls --url redis://HOST:6379/0", "use the ops address of the process: /ops/locks"}
	}
	return f
}

// listable returns an entry with empty lists in place of null.
func listable(e admin.Entry) admin.Entry {
	e.Holders = append([]lock.Holding{}, e.Holders...)
	e.Waiters = append([]lock.Holder{}, e.Waiters...)
	return e
}
