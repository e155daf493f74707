package boot

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// observers combines several Observers. A panic in one of them does not affect
// the others.
type observers []lock.Observer

// Observe calls each observer.
func (all observers) Observe(e lock.Event) {
	for _, o := range all {
		tell(o, e)
	}
}

func tell(o lock.Observer, e lock.Event) {
	defer func() { _ = recover() }() // a Locker drops such a panic, too
	o.Observe(e)
}

// counted starts the metrics of the process.
func (b *booting) counted(c *config.Config) {
	build := newBuild(c.Name)
	b.metrics = metrics.New(build.metrics())
	b.lookout = &lookout{probes: b.probes, metrics: b.metrics, build: build, profile: c.Env == "dev"}
}

// registerer returns the registry for the program's own metrics.
func (b *booting) registerer(*config.Config) prometheus.Registerer { return b.metrics.Registerer() }

// labeled adds the label "app" to the metrics of an app, so that two apps may
// use the same module.
func labeled(app string) func(prometheus.Registerer) prometheus.Registerer {
	return func(r prometheus.Registerer) prometheus.Registerer {
		return prometheus.WrapRegistererWith(prometheus.Labels{"app": app}, r)
	}
}

// served counts one request of an app.
func (b *booting) served(r megactx.Request) {
	b.metrics.Served(metrics.Request{App: r.App, Route: r.Route, Method: r.Method, Status: r.Status, Took: r.Took})
}

// degraded registers locks and messages whose scope is this process with the
// probes.
func (b *booting) degraded(d plan.Decisions) {
	for _, x := range []struct {
		what   string
		chosen Decision
	}{{"locks", d.Lock}, {"messages", d.Bus}} {
		if x.chosen.Scope == driver.Process.String() {
			b.probes.degrade(x.what + " end at this process (driver " + x.chosen.Chosen + ")")
		}
	}
}

// identify returns a function that completes the Holder of a lock with its
// origin: the worker, and either a request of an app or a caller at the admin
// socket.
func (p Process) identify() func(context.Context, *lock.Holder) {
	worker := p.worker()
	return func(ctx context.Context, h *lock.Holder) {
		h.Worker = worker
		identify(ctx, h)
	}
}

func identify(ctx context.Context, h *lock.Holder) {
	if megactx.Identify(ctx, h); h.App == "" { // the lookup costs time at every lock
		admin.Identify(ctx, h)
	}
}

// build describes the executable: its versions, revision and Go version.
type build struct {
	Program  string `json:"program"`
	Module   string `json:"module,omitempty"`
	Version  string `json:"version,omitempty"`
	Mega     string `json:"mega,omitempty"` // the version of the framework
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	System   string `json:"system"`
}

const megaModule = "github.com/megaframework/mega"

// newBuild reads the build information that the linker wrote into the
// executable, which may be absent.
func newBuild(program string) build {
	b := build{Program: program, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Module, b.Version = info.Main.Path, info.Main.Version
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == megaModule {
			b.Mega = m.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) metrics() metrics.Build {
	return metrics.Build{Program: b.Program, Version: b.Version, Revision: b.Revision, Go: b.Go}
}
