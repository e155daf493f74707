package console

import (
	"cmp"
	"context"
	"net/url"
	"slices"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/admin"
)

// busPage is the content of the page of the messages.
type busPage struct {
	Err       string
	Driver    string
	Scope     string
	Processes []answer[admin.Messages]
	Events    []topicRow
	Requests  []topicRow
	Total     bus.Stats // of all processes; its Subs are empty
	Plots     []plot
}

// topicRow is the sum of the subscriptions, or of the responders, with one
// pattern and group, in all processes.
type topicRow struct {
	bus.SubStats
	Subscriptions int
	Rate          float64 // received per second
}

func loadBus(c *Console, ctx context.Context, _ url.Values) any {
	var p busPage
	sources, err := c.ready(ctx)
	if err != nil {
		p.Err = err.Error()
		return p
	}
	p.Processes = callAll[admin.Messages](ctx, c, sources, "/ops/bus", nil)
	rows := map[bus.SubID]*topicRow{}
	for _, m := range p.Processes {
		if m.Err != "" {
			continue
		}
		p.Driver, p.Scope = m.Value.Driver, m.Value.Scope
		addUp(&p.Total, m.Value.Stats)
		for _, s := range m.Value.Subs {
			key := topicOf(s.SubID)
			if rows[key] == nil {
				rows[key] = &topicRow{SubStats: bus.SubStats{SubID: s.SubID}, Rate: c.history.perSecond(key)}
			}
			rows[key].Subscriptions++
			addUp(&rows[key].SubStats, s)
		}
	}
	for _, r := range rows {
		if r.Answers {
			p.Requests = append(p.Requests, *r)
		} else {
			p.Events = append(p.Events, *r)
		}
	}
	byPattern := func(a, b topicRow) int {
		return cmp.Or(cmp.Compare(a.Pattern, b.Pattern), cmp.Compare(a.Group, b.Group))
	}
	slices.SortFunc(p.Events, byPattern)
	slices.SortFunc(p.Requests, byPattern)
	p.Plots = c.history.busPlots()
	return p
}
