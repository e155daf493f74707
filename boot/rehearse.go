package boot

import (
	"context"
	"errors"
	"log/slog"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
)

// Rehearse runs the rest of a boot that needs no connection, listener or
// constructor: it reads pages, texts and public files. The report has the
// contents of a boot report, with addresses as configured; the error is the
// Failure that the boot would end with. If a decision fails, the report still
// contains it.
func Rehearse(p Process, made *plan.Plan) (Report, error) {
	b, err := rehearse(p, made)
	return b.report, err
}

// rehearse is Rehearse, but returns all its results.
func rehearse(p Process, made *plan.Plan) (*booting, error) {
	b := newBooting(context.Background(), p, time.Now())
	b.follow(made)
	b.log = slog.New(slog.DiscardHandler)
	b.report.Rehearsed = true
	if n := made.Config.Cluster.Workers; n > 1 {
		b.report.Workers = n
	}
	b.announce()
	for _, step := range []func() error{
		func() error { return made.Refused },
		func() error { return selection.CheckSocket(made.Config, made.Decisions) },
		b.chooseCache,
		b.readFiles,
	} {
		if err := step(); err != nil {
			return b, p.failureOf(err)
		}
	}
	return b, nil
}

// announce adds the configured addresses to the report.
func (b *booting) announce() {
	for _, a := range b.plan.Program.Runs {
		app := b.plan.Config.Apps[a.Name]
		b.report.Apps = append(b.report.Apps, Served{App: a.Name, URL: listen.URL(string(app.Addr)) + app.Prefix, Host: app.Host, Locales: app.Locales})
	}
	b.report.Ops = listen.URL(string(b.plan.Config.Ops.Addr))
}

// chooseCache selects the cache for functions that take one client.
func (b *booting) chooseCache() error {
	if !b.plan.Program.Takes(plan.ClientType()) {
		return nil
	}
	_, err := b.caches.choose(b.plan.Config)
	return err
}

// readFiles reads the pages, texts and public files of the apps.
func (b *booting) readFiles() error {
	var errs []error
	for _, a := range b.plan.Program.Runs {
		app := &building{booting: b, name: a.Name, part: b.plan.Program.Served(a)}
		texts, err := app.speaks(b.plan.Config)
		if err == nil {
			_, err = app.newHost(megactx.AppInfo{Name: a.Name}, b.log, nil, nil, texts)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
