package console

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plan"
)

// overview is the content of the first page.
type overview struct {
	Info     admin.Info
	Build    ops.Build
	Report   plan.Report
	Ready    ops.Readiness
	Reasons  []check // of a program that is not ready
	Warnings []string
	Workers  []admin.Worker
	Plots    []plot
	Errs     []string // pages that did not answer
}

type check struct{ Name, Text string }

func loadOverview(c *Console, ctx context.Context, _ url.Values) any {
	var o overview
	o.note(c.get(ctx, "/ops/process", nil, &o.Info))
	o.note(c.get(ctx, "/ops/build", nil, &o.Build))
	o.note(c.get(ctx, "/ops/boot", nil, &o.Report))
	o.note(c.readiness(ctx, &o.Ready))
	o.Workers = o.Info.Workers
	for _, name := range slices.Sorted(maps.Keys(o.Ready.Reasons)) {
		o.Reasons = append(o.Reasons, check{name, o.Ready.Reasons[name]})
	}
	degraded := o.Ready.Degraded
	for _, d := range []plan.Decision{o.Report.Lock, o.Report.Bus, o.Report.Limit} {
		o.Warnings = append(o.Warnings, d.Warnings...)
		if here := d.EndsHere(); len(d.Warnings) > 0 { // which are longer sentences about the same
			degraded = slices.DeleteFunc(slices.Clone(degraded), func(s string) bool { return s == here })
		}
	}
	o.Warnings = append(o.Warnings, degraded...)
	slices.Sort(o.Warnings)
	o.Warnings = slices.Compact(o.Warnings)
	o.Plots = append(c.history.lockPlots()[:1], c.history.busPlots()[:1]...)
	return o
}

// note records the error of a call, once for several calls with the same error.
func (o *overview) note(err error) {
	if err != nil && !slices.Contains(o.Errs, err.Error()) {
		o.Errs = append(o.Errs, err.Error())
	}
}

// readiness reads /readyz, whose body is the same with status 503.
func (c *Console) readiness(ctx context.Context, is *ops.Readiness) error {
	own, cancel := callContext(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(own, http.MethodGet, address("/readyz", url.Values{"verbose": {""}}), nil)
	if err != nil {
		return err
	}
	_, body, err := c.call(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, is)
}
