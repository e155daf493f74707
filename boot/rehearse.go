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

// Rehearse goes through a boot as far as that can be done without connecting,
// listening or calling a constructor: it checks the program, loads the
// configuration, makes every decision, and reads pages, texts and public files.
// The report says what a boot would say, with addresses as they are configured;
// the error is the Failure that the boot would end with. Where a decision
// fails, the report has it all the same.
func Rehearse(p Process, options ...Option) (Report, error) {
	b, err := rehearse(p, options)
	if b == nil {
		return Report{}, err
	}
	return b.report, err
}

// rehearse is Rehearse, with all that it has found. It returns nil instead of
// that if there is no configuration.
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

// announce says where everything is to be served.
func (b *booting) announce() {
	for _, a := range b.program.runs {
		app := b.config.Apps[a.name]
		b.report.Apps = append(b.report.Apps, Served{App: a.name, URL: urlOf(string(app.Addr)) + app.Prefix, Host: app.Host, Locales: app.Locales})
	}
	b.report.Ops = urlOf(string(b.config.Ops.Addr))
}

// chooseCache decides which cache is meant by those who take one.
func (b *booting) chooseCache() error {
	if !b.program.takes(clientType()) {
		return nil
	}
	_, err := b.caches.choose(b.config)
	return err
}

// takes reports whether a function that is going to be called takes a value of
// that type which the program does not make itself. What the injector was given
// as it is may make everything.
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

// background are the functions that are called beside requests.
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

// reaches walks from functions to the constructors of what they take.
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

// readFiles reads what the apps are given as files.
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

// urlOf is where an address is reached from this machine.
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
