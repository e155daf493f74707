package console

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/lock"
)

// workersPage is the content of the page of the workers.
type workersPage struct {
	Err     string
	Workers []workerRow
}

type workerRow struct {
	admin.Worker
	Locks lock.Stats // of a worker that answers
	Note  string     // why it does not answer, or how its last process ended
}

func loadWorkers(c *Console, ctx context.Context, _ url.Values) any {
	var p workersPage
	workers, err := c.workers(ctx)
	if err != nil {
		p.Err = err.Error()
		return p
	}
	sources, err := c.sources(ctx)
	if err != nil {
		p.Err = err.Error()
	}
	answers := map[int]answer[lock.Stats]{}
	for _, a := range callAll[lock.Stats](ctx, c, sources, "/ops/stats", nil) {
		answers[a.PID] = a
	}
	for _, w := range workers {
		a := answers[w.PID]
		row := workerRow{Worker: w, Locks: a.Value, Note: a.Err}
		if w.Ended != "" {
			row.Note = w.Ended
		}
		if !w.Next.IsZero() {
			row.Note = strings.TrimPrefix(row.Note+"; next start in "+plain.Short(max(0, time.Until(w.Next))), "; ")
		}
		p.Workers = append(p.Workers, row)
	}
	return p
}
