package console

import (
	"context"
	"net/url"
	"strings"

	"github.com/megaframework/mega/internal/plan"
)

// bootPage is the content of the page of the boot.
type bootPage struct {
	Err       string
	Report    plan.Report
	Decisions []plan.Decision
}

func loadBoot(c *Console, ctx context.Context, _ url.Values) any {
	var b bootPage
	if err := c.get(ctx, "/ops/boot", nil, &b.Report); err != nil {
		b.Err = err.Error()
		return b
	}
	b.Decisions = []plan.Decision{b.Report.Lock, b.Report.Bus, b.Report.Limit}
	return b
}

// configPage is the content of the page of the configuration.
type configPage struct {
	Err      string
	Set      []plan.Setting
	Defaults []plan.Setting
	Files    []string
	Reload   *plan.Reloaded
}

func loadConfig(c *Console, ctx context.Context, _ url.Values) any {
	var p configPage
	var all []plan.Setting
	if err := c.get(ctx, "/ops/config", nil, &all); err != nil {
		p.Err = err.Error()
		return p
	}
	for _, s := range all {
		if strings.HasPrefix(s.Origin, "default") {
			p.Defaults = append(p.Defaults, s)
		} else {
			p.Set = append(p.Set, s)
		}
	}
	var report plan.Report
	if c.get(ctx, "/ops/boot", nil, &report) == nil {
		p.Files, p.Reload = report.Files, report.Reload
	}
	return p
}
