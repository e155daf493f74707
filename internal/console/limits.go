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

// shownLimits bounds the list.
const shownLimits = "100"

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
	for _, p := range callAll[admin.LimitListing](ctx, c, listers(all, l.Scope), "/ops/limits", url.Values{"prefix": {l.Prefix}, "limit": {shownLimits}}) {
		l.Tables = append(l.Tables, limitsOf{p.source, p.Err, p.Value})
	}
	l.count(callAll[limit.Stats](ctx, c, all, "/ops/limit/stats", nil))
	return l
}

// count adds up the counters of all processes.
func (l *limitsPage) count(parts []answer[limit.Stats]) {
	sum := &l.Counters
	for _, p := range parts {
		if p.Err != "" {
			l.Unanswered = append(l.Unanswered, p)
			continue
		}
		s := p.Value
		sum.Waiting += s.Waiting
		sum.Allowed += s.Allowed
		sum.Refused += s.Refused
		sum.Local += s.Local
		sum.Degraded += s.Degraded
		sum.Settled += s.Settled
		sum.Unavailable = sum.Unavailable || s.Unavailable
		for i := range s.Wait.Counts {
			sum.Wait.Counts[i] += s.Wait.Counts[i]
		}
	}
	l.Wait = barsOf("Waits of allowed calls", sum.Wait)
}
