package boot

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"reflect"
	"slices"

	megactx "github.com/megaframework/mega/ctx"
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
		func() error { return checkPlace(b.config, d) },
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
	for _, a := range b.program.runs {
		app := b.config.Apps[a.name]
		b.report.Apps = append(b.report.Apps, Served{App: a.name, URL: urlOf(string(app.Addr)) + app.Prefix, Host: app.Host, Locales: app.Locales})
	}
	b.report.Ops = urlOf(string(b.config.Ops.Addr))
}

// chooseCache selects the cache for functions that take one client.
func (b *booting) chooseCache() error {
	if !b.program.takes(clientType()) {
		return nil
	}
	_, err := b.caches.choose(b.config)
	return err
}

// takes reports whether a function that the boot would call takes a value of
// type t from the framework. It returns false for a program with options of the
// injector, which may provide every type.
func (p *program) takes(t reflect.Type) bool {
	if p.opaque() {
		return false
	}
	if reaches(t, p.shared.background(), p.shared.provides) {
		return true
	}
	return slices.ContainsFunc(p.runs, func(a *app) bool {
		served := p.served(a)
		called := slices.Concat(served.routes, served.uses, a.background())
		return reaches(t, called, slices.Concat(p.shared.provides, a.provides))
	})
}

// background returns the functions that run outside requests.
func (p *part) background() (all []function) {
	for _, h := range p.hooks {
		all = append(all, h.fn)
	}
	for _, m := range p.messages {
		all = append(all, m.fn)
		if m.gap != nil {
			all = append(all, *m.gap)
		}
	}
	return all
}

// reaches reports whether functions need t from the framework, directly or
// through the constructors of their parameters.
func reaches(t reflect.Type, called, makes []function) bool {
	seen := map[reflect.Type]bool{}
	for len(called) > 0 {
		f := called[0]
		called = called[1:]
		for _, need := range f.needs() {
			if seen[need] {
				continue
			}
			seen[need] = true
			i := slices.IndexFunc(makes, func(m function) bool { return slices.Contains(m.makes(), need) })
			switch {
			case i >= 0:
				called = append(called, makes[i])
			case need == t:
				return true
			}
		}
	}
	return false
}

// readFiles reads the pages, texts and public files of the apps.
func (b *booting) readFiles() error {
	var errs []error
	for _, a := range b.program.runs {
		app := &building{booting: b, name: a.name, part: b.program.served(a)}
		texts, err := app.speaks(b.config)
		if err == nil {
			_, err = app.newHost(megactx.AppInfo{Name: a.name}, b.log, nil, nil, texts)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// urlOf returns the URL of a listen address, as seen from this machine.
func urlOf(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
