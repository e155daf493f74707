package selection_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/settings"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// dimension is something that a decision may depend on.
type dimension struct {
	name   string
	values []setting
}

// setting is a value of a dimension: what it is called in the table, and the
// variables that bring it about.
type setting struct {
	name    string
	environ []string
}

// outcome is what a combination comes to.
type outcome struct{ chosen, code, why string }

// row is a line of the table: the values of the combinations that it stands
// for, and their outcome.
type row struct {
	cells []string
	outcome
	stands int
}

// TestTableOfSelection decides for every combination of everything that a
// decision depends on, opens what was decided, and compares with tables for
// people. In them "any" stands for all values of a column.
func TestTableOfSelection(t *testing.T) {
	t.Parallel()
	server, gone := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{})
	if err := gone.Kill(); err != nil {
		t.Fatal(err)
	}
	cache := dimension{"cache", []setting{
		{"none", nil}, {"one", []string{"MEGA_CACHE_MAIN_URL=" + server.URL()}}, {"unreachable", []string{"MEGA_CACHE_MAIN_URL=" + gone.URL()}},
	}}
	cluster := []dimension{
		{"worker", []setting{{"no", nil}, {"yes", []string{"MEGA_WORKER_ID=1"}}}},
		{"socket", []setting{{"-", nil}, {"auto", []string{"MEGA_CLUSTER_SOCKET=auto"}}}},
	}
	queue, lost := natstest.Start(t, natstest.Options{}), natstest.Start(t, natstest.Options{})
	lost.Stop()
	nats := dimension{"nats", []setting{
		{"none", nil}, {"one", []string{"MEGA_NATS_URL=" + queue.URL()}}, {"unreachable", []string{"MEGA_NATS_URL=" + lost.URL()}},
	}}
	for _, x := range []struct {
		component string
		drivers   []string
		decide    func(*settings.Config, selection.Surroundings) (plan.Decision, error)
		rest      []dimension
		count     int
	}{
		{"lock", []string{"auto", "redis", "cluster", "memory"}, selection.Lock, slices.Concat([]dimension{cache}, cluster, []dimension{nats}), 432},
		{"bus", []string{"auto", "nats", "cluster", "memory"}, selection.Bus, slices.Concat([]dimension{nats}, cluster, []dimension{cache}), 432},
	} {
		t.Run(x.component, func(t *testing.T) {
			table := table{t: t, component: x.component, decide: x.decide, opened: map[string]error{}}
			dims := slices.Concat([]dimension{
				table.option("driver", x.drivers...), table.option("require", "nothing", "node", "fleet"),
			}, x.rest)
			rows := table.rows(dims, nil)
			golden(t, x.component+".txt", page(x.component, dims, rows))
			stand := 0
			for _, r := range rows {
				stand += r.stands
			}
			if stand != x.count {
				t.Errorf("the rows stand for %d combinations, want %d", stand, x.count)
			}
		})
	}
}

// table decides and opens.
type table struct {
	t         *testing.T
	component string
	decide    func(*settings.Config, selection.Surroundings) (plan.Decision, error)
	opened    map[string]error // by what was decided: it is opened once
}

// option is the dimension of a key of the component.
func (b *table) option(name string, values ...string) dimension {
	d := dimension{name: name}
	for _, v := range values {
		s := setting{name: v}
		if v != "nothing" {
			s.environ = []string{settings.EnvName(b.component+"."+name) + "=" + v}
		}
		d.values = append(d.values, s)
	}
	return d
}

// rows walks all combinations of dims, and puts values together that make no
// difference.
func (b *table) rows(dims []dimension, environ []string) (all []row) {
	if len(dims) == 0 {
		return []row{{outcome: b.outcome(environ), stands: 1}}
	}
	type branch struct {
		names []string
		rows  []row
	}
	var branches []branch
	for _, v := range dims[0].values {
		rows := b.rows(dims[1:], slices.Concat(environ, v.environ))
		if n := len(branches); n > 0 && same(branches[n-1].rows, rows) {
			branches[n-1].names = append(branches[n-1].names, v.name)
			for i := range rows {
				branches[n-1].rows[i].stands += rows[i].stands
			}
			continue
		}
		branches = append(branches, branch{[]string{v.name}, rows})
	}
	for _, br := range branches {
		label := strings.Join(br.names, ", ")
		if len(br.names) == len(dims[0].values) {
			label = "any"
		}
		for _, r := range br.rows {
			r.cells = append([]string{label}, r.cells...)
			all = append(all, r)
		}
	}
	return all
}

func same(a, b []row) bool {
	return slices.EqualFunc(a, b, func(x, y row) bool { return x.outcome == y.outcome && slices.Equal(x.cells, y.cells) })
}

// outcome decides for one environment, and opens what was decided.
func (b *table) outcome(environ []string) outcome {
	b.t.Helper()
	var worker bool
	environ = slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		is := strings.HasPrefix(kv, "MEGA_WORKER_")
		worker = worker || is
		return is
	})
	c, err := settings.Load(settings.Source{Environ: append(environ, "MEGA_BOOT_WAIT_FOR=0")})
	if err != nil {
		b.t.Fatal(err)
	}
	d, err := b.decide(c, selection.Surroundings{Worker: worker})
	if err == nil {
		err = b.open(c, d, worker)
	}
	o := outcome{chosen: d.Chosen, why: d.Why}
	if d.Key != "" {
		o.why += " (" + d.Key + ": " + d.Origin + ")"
	}
	o.code = "0"
	if err != nil {
		var f *failure.Failure
		if !errors.As(err, &f) {
			b.t.Fatalf("%v is no Failure", err)
		}
		o.code = fmt.Sprintf("%d %s", f.Exit, f.Code)
	}
	return o
}

func (b *table) open(c *settings.Config, d plan.Decision, worker bool) error {
	where := fmt.Sprint(d.Chosen, " ", d.Server, worker, c.Cluster.Socket)
	err, done := b.opened[where]
	if !done {
		err = openAndClose(b.t.Context(), c, d, worker)
		b.opened[where] = err
	}
	return err
}

// page is a table for people, in groups of the first two columns.
func page(component string, dims []dimension, rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Which driver is chosen for component %q, and with what status the boot goes on (0) or ends.\n", component)
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	group := ""
	for _, r := range rows {
		if g := fmt.Sprintf("%s.driver: %s, %[1]s.require: %[3]s", component, r.cells[0], r.cells[1]); g != group {
			group = g
			_ = w.Flush() // a strings.Builder takes everything
			fmt.Fprintf(&b, "\n%s\n\n", g)
			for _, d := range dims[2:] {
				fmt.Fprintf(w, "  %s\t", d.name)
			}
			fmt.Fprintf(w, "chosen\texit\tbecause\n")
		}
		for _, cell := range r.cells[2:] {
			fmt.Fprintf(w, "  %s\t", cell)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.chosen, r.code, r.why)
	}
	_ = w.Flush()
	return b.String()
}

// openAndClose opens what was decided and closes it again. A worker has a line
// to a supervisor.
func openAndClose(ctx context.Context, c *settings.Config, d plan.Decision, worker bool) error {
	var b selection.Backends
	if worker {
		ours, theirs := net.Pipe()
		hub := cluster.NewHub(cluster.HubConfig{})
		hub.Join(theirs, "worker")
		node, err := cluster.Dial(ctx, cluster.Config{Conn: ours})
		if err != nil {
			return err
		}
		b.Line = node
		defer func() { _ = errors.Join(node.Close(ctx), hub.Close(ctx)) }()
	}
	var opened interface{ Close(context.Context) error }
	var err error
	log := slog.New(slog.DiscardHandler)
	if d.Component == "bus" {
		opened, err = b.OpenBus(ctx, c, d, "test", log)
	} else {
		opened, err = b.OpenLock(ctx, c, d, log)
	}
	if err != nil {
		return err
	}
	return errors.Join(opened.Close(ctx), b.Close(ctx))
}

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares a text with the file of that name in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./internal/selection -update writes it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test ./internal/selection -update accepts it):\n%s", path, diff)
	}
}
