package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// keeper keeps locks and can be asked about them: a process that runs, through
// its admin socket, or a server.
type keeper interface {
	Locks(ctx context.Context, prefix string, limit int) (admin.Listing, error)
	Lock(ctx context.Context, key string) (admin.Entry, error)
	Release(ctx context.Context, key, reason string) (released int, err error)
}

// source is a keeper and what is known of it.
type source struct {
	keeper  keeper
	about   about
	bus     admin.Reach
	workers []admin.Worker // of a supervisor
	meets   string         // where a cluster's processes meet; its own hub where that is empty
	err     error          // why it cannot be asked
}

// about says who was asked, in every document of lock --json.
type about struct {
	Name   string `json:"name,omitempty"` // of the program
	PID    int    `json:"pid,omitempty"`
	Worker int    `json:"worker,omitempty"` // which of its workers was asked, where that makes a difference
	For    []int  `json:"for,omitempty"`    // other processes that share these locks, and were not asked
	Driver string `json:"driver,omitempty"`
	Scope  string `json:"scope,omitempty"`  // how far the locks reach
	URL    string `json:"url,omitempty"`    // of a server
	Socket string `json:"socket,omitempty"` // of a process that does not say who it is
}

// String returns the process or the server that was asked, as a heading of one
// line: the process itself has written most of it.
func (a about) String() string { return plain.Line(a.heading()) }

func (a about) heading() string {
	switch {
	case a.URL != "":
		return a.URL
	case a.Socket != "":
		return "the process behind " + a.Socket
	}
	s := fmt.Sprintf("%s, pid %d", a.Name, a.PID)
	if a.Worker != 0 {
		s += fmt.Sprintf(", worker %d", a.Worker)
	}
	if len(a.For) > 0 {
		s += " and " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(a.For)), ", "), "[]")
	}
	if a.Driver != "" {
		s += fmt.Sprintf(": %s, exclusion ends at the %s", a.Driver, a.Scope)
	}
	return s
}

// askTime is how long one keeper has for one answer.
const askTime = 12 * time.Second

// running finds the processes of this user that are called name, or all of
// them.
func running(ctx context.Context, environ []string, name string) (sources []source, err error) {
	found, err := admin.Find(ctx, admin.Folders(environ), name)
	if err != nil {
		return nil, notFound(err)
	}
	for _, f := range found {
		s := source{
			keeper: admin.Dial(f.Path), about: about{Name: f.Info.Name, PID: f.Info.PID, Driver: f.Info.Driver, Scope: f.Info.Scope},
			bus: f.Info.Bus, workers: f.Info.Workers, meets: f.Info.Meets,
		}
		if f.Err != nil {
			s.err, s.about = f.Err, about{Socket: f.Path}
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// sharing is those of all that have locks of their own: of several that share
// them there is one, which names the others.
func sharing(all []source) (sources []source) {
	for _, s := range all {
		if i := slices.IndexFunc(sources, func(first source) bool { return first.shares(s) }); i >= 0 {
			sources[i].about.For = append(sources[i].about.For, s.about.PID)
			continue
		}
		sources = append(sources, s)
	}
	return sources
}

// shares reports whether what s has is what the other one has. Two supervisors
// have a cluster each, unless they meet somewhere.
func (s source) shares(other source) bool {
	a, b := s.about, other.about
	if b.Driver == "cluster" && (s.meets == "" || s.meets != other.meets) {
		return false
	}
	return b.Driver != "" && b.Scope != driver.Process.String() && a.Name == b.Name && a.Driver == b.Driver && a.Scope == b.Scope && a.Worker == b.Worker
}

// lockerKeeper makes a Locker's backend a keeper.
type lockerKeeper struct{ locker *lock.Locker }

func (k lockerKeeper) Locks(ctx context.Context, prefix string, limit int) (admin.Listing, error) {
	states, err := k.locker.List(ctx, prefix)
	l := admin.Listing{Locks: []admin.Entry{}, Total: len(states), Truncated: len(states) > limit}
	for _, s := range states[:min(len(states), limit)] {
		l.Locks = append(l.Locks, admin.Entry{State: s, Waiting: len(s.Waiters)})
	}
	return l, err
}

func (k lockerKeeper) Lock(ctx context.Context, key string) (admin.Entry, error) {
	s, err := k.locker.Inspect(ctx, key)
	return admin.Entry{State: s, Waiting: len(s.Waiters)}, err
}

func (k lockerKeeper) Release(ctx context.Context, key, reason string) (int, error) {
	return k.locker.ForceRelease(ctx, key, reason)
}

func notFound(err error) error {
	f := &boot.Failure{Code: "cli.no_socket", Exit: boot.ExitUnavailable, Text: "The processes that run here cannot be asked.", Cause: err}
	if errors.Is(err, admin.ErrUnsupported) {
		f.Actions = []string{"look at the locks of a redis directly: mega lock ls --url redis://HOST:6379/0", "ask the process for its ops address: /ops/locks"}
	}
	return f
}

// listable is an entry whose lists are lists, where there is nobody, too.
func listable(e admin.Entry) admin.Entry {
	e.Holders = append([]lock.Holding{}, e.Holders...)
	e.Waiters = append([]lock.Holder{}, e.Waiters...)
	return e
}
