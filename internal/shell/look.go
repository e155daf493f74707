package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/megaframework/mega/internal/plain"
	limitdriver "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// ErrNoHub means that no process serves the locks of a socket: none is held.
var ErrNoHub = errors.New("no process serves the locks at the socket")

// Look calls do with the locks of the backend, which it does not start: it returns
// ErrNoHub if no hub runs. The locker is closed when do returns.
func (b *Backend) Look(ctx context.Context, p Process, do func(*lock.Locker) error) error {
	if err := b.Resolve(p.Environ); err != nil {
		return err
	}
	c, err := b.connect(ctx, p, 0, func(context.Context) error { return ErrNoHub })
	if err != nil {
		return err
	}
	defer c.Leave()
	return do(c.Locker)
}

// location describes the backend of a list.
type location struct {
	Driver string `json:"driver"`
	Scope  string `json:"scope"`
	URL    string `json:"url,omitempty"`
	Socket string `json:"socket,omitempty"`
}

// locate returns the location of a resolved backend.
func locate(b *Backend) location {
	if b.URL != "" {
		return location{Driver: "redis", Scope: driver.Fleet.String(), URL: b.String()}
	}
	return location{Driver: "cluster", Scope: driver.Node.String(), Socket: b.Socket}
}

func (l location) heading() string {
	return fmt.Sprintf("%s: %s, scope %s", cmp.Or(l.URL, "socket "+l.Socket), l.Driver, l.Scope)
}

// LimitListing is the document of limit ls --json.
type LimitListing struct {
	location
	Total  int                 `json:"total"`
	Limits []limitdriver.State `json:"limits"`
}

// list returns the limits of which units are in use, that have waiters, or
// that are paused, and whose keys begin with prefix.
func (o *PermitOrder) list(p Process, prefix string) (LimitListing, error) {
	all := LimitListing{Limits: []limitdriver.State{}}
	if err := o.Resolve(p.Environ); err != nil {
		return all, err
	}
	all.location = locate(&o.Backend)
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	d, leave, err := o.openLimits(ctx, func(context.Context) error { return ErrNoHub })
	if errors.Is(err, ErrNoHub) {
		return all, nil
	}
	if err != nil {
		return all, o.explain(err)
	}
	defer func() { _ = errors.Join(d.Close(ctx), leave(ctx)) }() // nothing is held: nothing depends on it
	states, err := d.List(ctx, prefix)
	if err != nil {
		return all, o.explain(err)
	}
	all.Total = len(states)
	for _, s := range states {
		s.Rates, s.Waiters = append([]limitdriver.RateState{}, s.Rates...), append([]limitdriver.Waiter{}, s.Waiters...)
		all.Limits = append(all.Limits, s)
	}
	return all, nil
}

// listTime bounds a list: a hub that is stopped answers nothing.
const listTime = 10 * limitdriver.CallTimeout

func printLimits(p Process, all LimitListing) error {
	if p.JSON {
		return printJSON(p, []LimitListing{all})
	}
	var b strings.Builder
	fmt.Fprintln(&b, plain.Line(all.heading()))
	var rows []LimitRow
	for _, s := range all.Limits {
		rows = append(rows, LimitRow{s, len(s.Waiters)})
	}
	PrintLimits(&b, rows)
	return p.write(b.String())
}

// LimitRow is a limit of a table, with the number of its waiters.
type LimitRow struct {
	limitdriver.State
	Waiting int
}

// PrintLimits writes limits as a table, with a row for each rate. A limit without
// rates has one row, too.
func PrintLimits(w io.Writer, all []LimitRow) {
	if len(all) == 0 {
		fmt.Fprintln(w, "  no limit is in use")
		return
	}
	t := plain.Table{Indent: "  "}
	t.Add("KEY", "RATE", "USED", "LEFT", "NEXT FREE", "WAITING", "PAUSED")
	for _, s := range all {
		if s.Skipped != "" {
			t.Add(s.Key, "unreadable: "+s.Skipped, "-", "-", "-", "-", "-")
			continue
		}
		paused := "-"
		if s.Paused != nil {
			paused = plain.Short(s.Paused.Left) + ": " + s.Paused.Reason
		}
		if len(s.Rates) == 0 {
			t.Add(s.Key, "-", "-", "-", "-", fmt.Sprint(s.Waiting), paused)
		}
		for i, r := range s.Rates {
			key, waits, pause := s.Key, fmt.Sprint(s.Waiting), paused
			if i > 0 {
				key, waits, pause = "", "", ""
			}
			t.Add(key, RateText(r.Rate), fmt.Sprint(r.Used), fmt.Sprint(r.Remaining), FreeText(r.NextFree), waits, pause)
		}
	}
	t.Print(w)
}

// RateText returns a rate as tables show it.
func RateText(r limitdriver.Rate) string { return fmt.Sprintf("%d per %s", r.N, plain.Exact(r.Per)) }

// FreeText returns the time until the next unit is free as tables show it.
func FreeText(d time.Duration) string {
	if d <= 0 {
		return "now"
	}
	return "in " + plain.Short(d)
}

func printJSON(p Process, v any) error {
	text, err := plain.Document(v) // others have written parts of it
	if err != nil {
		return err
	}
	return p.write(text)
}

// Listing is the document of ls --json.
type Listing struct {
	location
	Total int          `json:"total"`
	Locks []lock.State `json:"locks"`
}

func lsVerb() Verb {
	var b Backend
	return Verb{
		Name: "ls", Args: "[PREFIX]", Short: "list the locks in use whose keys begin with PREFIX",
		Long: "It lists every lock that has a holder or a waiter, and every pool with the number of its slots by state.\n\n" +
			"With --json: a list with one {\"driver\", \"scope\", \"url\" or \"socket\", \"total\", \"locks\"}; a lock is {\"key\",\n" +
			"\"slots\", \"holders\", \"waiters\", \"slot_states\"}.",
		Flags: func(f *pflag.FlagSet) { b.Flags(f) },
		Run: func(p Process, args []string, _ int) error {
			if len(args) > 1 {
				return usage("cli.extra_argument", fmt.Sprintf("ls does not take %q.", args[1]))
			}
			all, err := List(context.Background(), p, &b, strings.Join(args, ""))
			if err != nil {
				return err
			}
			return printList(p, all)
		},
	}
}

// List returns the locks in use whose keys begin with prefix.
func List(ctx context.Context, p Process, b *Backend, prefix string) (Listing, error) {
	all := Listing{Locks: []lock.State{}}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	err := b.Look(ctx, p, func(l *lock.Locker) error {
		states, err := l.List(ctx, prefix)
		all.Total = len(states)
		for _, s := range states {
			s.Holders, s.Waiters = append([]lock.Holding{}, s.Holders...), append([]lock.Holder{}, s.Waiters...)
			all.Locks = append(all.Locks, s)
		}
		return err
	})
	all.location = locate(b)
	if wrong, ok := errors.AsType[*Error](err); ok {
		return all, wrong
	}
	if err != nil && !errors.Is(err, ErrNoHub) {
		return all, Explain(b, err)
	}
	return all, nil
}

func printList(p Process, all Listing) error {
	if p.JSON {
		return printJSON(p, []Listing{all})
	}
	var b strings.Builder
	fmt.Fprintln(&b, plain.Line(all.heading()))
	var rows []Row
	for _, s := range all.Locks {
		rows = append(rows, Row{s, len(s.Waiters)})
	}
	PrintLocks(&b, rows)
	if len(rows) == 0 {
		fmt.Fprintln(&b, NoLock)
	}
	return p.write(b.String())
}
