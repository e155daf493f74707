package boot

import (
	"context"
	"errors"
	"log/slog"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
)

// Rehearse runs the part of a boot that needs no connection, listener or
// constructor. It checks the program, loads the configuration, makes every
// decision, and reads pages, texts and public files. The report has the
// contents of a boot report, with addresses as configured; the error is the
// Failure that the boot would end with. If a decision fails, the report still
// contains it.
func Rehearse(p Process, options ...Option) (Report, error) {
	b, err := rehearse(p, options)
	if b == nil {
		return Report{}, err
	}
	return b.report, err
}

// rehearse is Rehearse, but returns all its results. It returns nil in place of
// the results if the configuration cannot be loaded.
func rehearse(p Process, options []Option) (*booting, error) {
	program, err := p.program(options)
	if err != nil {
		return nil, failureOf(err)
	}
	b := newBooting(context.Background(), p, program)
	if _, err := b.loadConfig(); err != nil {
		return nil, p.told(err)
	}
	b.log = slog.New(slog.DiscardHandler)
	b.report.Rehearsed = true
	if n := b.config.Cluster.Workers; n > 1 {
		b.report.Workers = n
	}
	b.announce()
	d, err := b.decide(b.config)
	for _, step := range []func() error{
		func() error { return err },
		func() error { return selection.CheckSocket(b.config, d) },
		b.chooseCache,
		b.readFiles,
	} {
		if err := step(); err != nil {
			return b, p.told(err)
		}
	}
	return b, nil
}

// announce adds the configured addresses to the report.
func (b *booting) announce() {
	for _, a := range b.program.Runs {
		app := b.config.Apps[a.Name]
		b.report.Apps = append(b.report.Apps, Served{App: a.Name, URL: listen.URL(string(app.Addr)) + app.Prefix, Host: app.Host, Locales: app.Locales})
	}
	b.report.Ops = listen.URL(string(b.config.Ops.Addr))
}

// chooseCache selects the cache for functions that take one client.
func (b *booting) chooseCache() error {
	if !b.program.Takes(plan.ClientType()) {
		return nil
	}
	_, err := b.caches.choose(b.config)
	return err
}

// readFiles reads the pages, texts and public files of the apps.
func (b *booting) readFiles() error {
	var errs []error
	for _, a := range b.program.Runs {
		app := &building{booting: b, name: a.Name, part: b.program.Served(a)}
		texts, err := app.speaks(b.config)
		if err == nil {
			_, err = app.newHost(megactx.AppInfo{Name: a.Name}, b.log, nil, nil, texts)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
