package console

import (
	"context"
	"net/url"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/limit"
)

// limitsPage is the content of the list of limits.
type limitsPage struct {
	Prefix     string
	Driver     string
	Scope      string
	Tables     []limitsOf
	Wait       bars
	Counters   limit.Stats // of all processes
	Unanswered []answer[limit.Stats]
}

// limitsOf is the limits that one process listed: of the program, or, if limits
// end at the process, of one worker.
type limitsOf struct {
	source
	Err string
	admin.LimitListing
}

func loadLimits(c *Console, ctx context.Context, query url.Values) any {
	l := limitsPage{Prefix: query.Get("prefix")}
	var info admin.Info
	if err := c.get(ctx, "/ops/process", nil, &info); err != nil {
		l.Tables = []limitsOf{{Err: err.Error()}}
		return l
	}
	l.Driver, l.Scope = info.Limit.Driver, info.Limit.Scope
	all, err := c.ready(ctx)
	if err != nil {
		l.Tables = []limitsOf{{Err: err.Error()}}
		return l
	}
	for _, p := range callAll[admin.LimitListing](ctx, c, listers(all, l.Scope), "/ops/limits", url.Values{"prefix": {l.Prefix}, "limit": {shownKeys}}) {
		l.Tables = append(l.Tables, limitsOf{p.source, p.Err, p.Value})
	}
	l.Counters, l.Unanswered = total(callAll[limit.Stats](ctx, c, all, "/ops/limit/stats", nil))
	l.Wait = barsOf("Waits of allowed calls", l.Counters.Wait)
	return l
}
