package boot

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/workers"
)

// listen opens all addresses before any app serves, so that a program serves
// either all apps or none.
func (b *booting) listen(c *settings.Config, log *slog.Logger) error {
	if b.process.Offline != nil {
		b.placed()
		return nil
	}
	b.life.endWith(serving, hook{name: "listeners", budget: longBudget, run: b.apps.intake})
	host := &request.Host{App: request.App{Env: c.Env}, Log: log, Mask: b.veil.Text}
	all := listen.Addresses(b.answering())
	err := openAll(all, c.Boot.WaitFor, func(a listen.Address, wait time.Duration) error { return b.listenAt(c, a, host, wait) })
	if err != nil {
		return err
	}
	for _, s := range b.apps.servers {
		s.Limit(listen.AppConnections(len(all)), log)
	}
	return b.leftOver()
}

// answering returns the apps that need a listener. The others are only listed.
func (b *booting) answering() (all []listen.App) {
	for _, a := range b.apps.all {
		if b.plan.Program.Listens(a.Name) {
			all = append(all, a)
			continue
		}
		b.report.Apps = append(b.report.Apps, plan.Served{App: a.Name, Locales: a.Context.App.Locales})
	}
	return all
}

// listenAt opens the listener of an address, and waits for one that another process is
// about to give up. host answers requests that match none of its apps.
func (b *booting) listenAt(c *settings.Config, a listen.Address, host *request.Host, wait time.Duration) error {
	certificates, err := listen.LoadCertificates(c, b.current.files, a.Names()...)
	if err != nil {
		return err
	}
	l, err := b.open(a, wait)
	if known, ok := errors.AsType[*Failure](err); ok {
		return known
	}
	if err != nil {
		return listenFailure(c, "apps."+a.Apps[0].Name+".addr", a.Addr, err)
	}
	if c.Env == "dev" && listen.IsLoopback(l.Addr()) { // elsewhere a proxy may pass on the public name
		a = a.LocalOnly(refusing(host))
	}
	server := listen.NewServer(strings.Join(a.Names(), ", "), l, a.Handler(router.New(host).Handler()), b.log, a.Hosts()...)
	server.Secure(certificates)
	b.current.certificates = append(b.current.certificates, certificates)
	b.apps.servers = append(b.apps.servers, server)
	for _, app := range a.Apps {
		b.report.Apps = append(b.report.Apps, plan.Served{
			App: app.Name, URL: server.URL() + app.Prefix, Host: app.Host, Routes: len(app.Routes), Locales: app.Context.App.Locales,
		})
	}
	return nil
}

// refusing returns a handler that refuses requests for a foreign host name.
func refusing(host *request.Host) http.Handler {
	r := router.New(host)
	r.Handle("/*", func(*megactx.Ctx) error {
		return megactx.Error(http.StatusForbidden, "request.foreign_host",
			"In env dev an app without a host answers to localhost and loopback addresses only. Set apps.<name>.host to serve it by another name.")
	})
	return r.Handler()
}

// serves returns the last steps of a start: the admin socket opens, the apps
// serve, and the program becomes ready.
func (b *booting) serves() []step {
	return []step{
		{
			start: hook{"admin socket", hookBudget, b.openAdmin},
			end:   hook{"admin socket", adminTime, b.closeAdmin}, phase: watching,
		},
		{start: hook{"listeners", hookBudget, func(context.Context) error {
			for _, s := range b.apps.servers {
				s.Serve(b.fail)
			}
			return nil
		}}},
		{start: hook{"readiness", hookBudget, func(context.Context) error { b.probes.Begin(); return nil }}},
	}
}

// addresses returns the addresses on which the apps of a plan listen. A worker computes
// the same list as its supervisor.
func addresses(made *plan.Plan) []listen.Address {
	var apps []listen.App
	for _, a := range made.Program.Runs {
		if !made.Program.Listens(a.Name) {
			continue
		}
		app := made.Config.Apps[a.Name]
		apps = append(apps, listen.App{Name: a.Name, Addr: string(app.Addr), Host: app.Host, Prefix: app.Prefix})
	}
	return listen.Addresses(apps)
}

// withApps adds the addresses of apps that cannot be opened to err, the failure of the ops
// listener: it is opened long before theirs.
func withApps(ctx context.Context, made *plan.Plan, log *slog.Logger, err error) error {
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		return err
	}
	err = openAll(addresses(made), 0, func(a listen.Address, wait time.Duration) error {
		l, err := workers.OpenAddress(ctx, a.Addr, wait, log)
		if err != nil {
			return listenFailure(made.Config, "apps."+a.Apps[0].Name+".addr", a.Addr, err)
		}
		return l.Close()
	})
	if another, ok := errors.AsType[*Failure](err); ok {
		f = together(f, another)
	}
	return f
}

// openAll calls open for each address. Its failure names all addresses that cannot be
// opened: after the first of them it tries the others, without a wait.
func openAll(all []listen.Address, wait time.Duration, open func(a listen.Address, wait time.Duration) error) error {
	var failed *Failure
	for _, a := range all {
		err := open(a, wait)
		if err == nil {
			continue
		}
		f, ok := errors.AsType[*Failure](err)
		if !ok || f.Code != cannotListen {
			return err
		}
		failed, wait = together(failed, f), 0
	}
	if failed != nil {
		return failed
	}
	return nil
}

// cannotListen is the code of an address that cannot be opened.
const cannotListen = "app.cannot_listen"

// together adds the failure of another address to f, which is nil for the first one.
func together(f, another *Failure) *Failure {
	if f == nil {
		return another
	}
	if f.Text != another.Text {
		f.Text += " " + another.Text
	}
	for _, fact := range another.Facts {
		if !slices.Contains(f.Facts, fact) {
			f.Facts = append(f.Facts, fact)
		}
	}
	f.Cause = errors.Join(f.Cause, another.Cause)
	if _, taken := errors.AsType[*workers.TakenError](another.Cause); taken {
		f.Actions = joined(another.Actions, f.Actions)
		f.Actions = f.Actions[:min(len(f.Actions), failure.MaxActions)]
	}
	return f
}

// joined returns the actions more and then actions. Two that differ in the last word are
// one with both words: "kill 7" and "kill 9" become "kill 7 9".
func joined(more, actions []string) []string {
	actions = slices.Clone(actions)
	more = slices.DeleteFunc(slices.Clone(more), func(m string) bool {
		at := strings.LastIndexByte(m, ' ') + 1
		same := slices.IndexFunc(actions, func(a string) bool { return strings.HasPrefix(a, m[:at]) })
		if same >= 0 && !slices.Contains(strings.Fields(actions[same]), m[at:]) {
			actions[same] += " " + m[at:]
		}
		return same >= 0
	})
	return append(more, actions...)
}

// listenFailure returns the Failure for an address that cannot be opened.
func listenFailure(c *settings.Config, key, addr string, err error) error {
	f := listen.Failure(c, key, addr, err)
	if taken, ok := errors.AsType[*workers.TakenError](err); ok {
		taken.Explain(f, addr)
	}
	return f
}
