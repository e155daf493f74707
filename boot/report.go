package boot

import (
	"context"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/config"
)

// Report is what a boot came to, for people and for machines. Its fields have
// stable names in JSON; times are in nanoseconds.
type Report struct {
	Program string        `json:"program"`
	Version string        `json:"version,omitempty"` // of the program, where its build says so
	Go      string        `json:"go"`
	Env     string        `json:"env"`
	PID     int           `json:"pid"`
	Took    time.Duration `json:"took"`
	Files   []string      `json:"files"` // of the configuration, the weakest first
	Keys    int           `json:"keys"`  // that have a value
	Set     []Setting     `json:"set"`   // those that are not at their default
	Lock    Decision      `json:"lock"`
	Bus     Decision      `json:"bus"`
	Apps    []Served      `json:"apps"`
	Workers int           `json:"workers,omitempty"`  // processes that serve, where a supervisor runs them
	Primary []Primary     `json:"primary,omitempty"`  // OnPrimary functions, in their order
	LeftOut []string      `json:"left_out,omitempty"` // apps that this process does not run
	Ops     string        `json:"ops"`                // where probes are answered
	Admin   string        `json:"admin,omitempty"`    // the socket by which the process is operated
	Phases  []Phase       `json:"phases,omitempty"`   // of the boot, in order
	Reload  *Reloaded     `json:"reload,omitempty"`   // the last time that the configuration was read again

	// Rehearsed says that nothing was opened: addresses are as configured, and
	// nobody has counted routes.
	Rehearsed bool `json:"rehearsed,omitempty"`
}

// Setting is a key of the configuration and where its value came from. A secret
// is masked.
type Setting struct {
	Key    string   `json:"key"`
	Value  string   `json:"value"`
	Origin string   `json:"origin"`
	Over   []string `json:"over,omitempty"` // the origins that it hides
}

// Lack is a rule of the contract that a driver does not keep.
type Lack struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// Served is an app and where it is served.
type Served struct {
	App     string   `json:"app"`
	URL     string   `json:"url"`
	Host    string   `json:"host,omitempty"` // the only one it answers for
	Routes  int      `json:"routes"`
	Locales []string `json:"locales,omitempty"`
}

// Phase is a part of the boot and how long it took.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

// newReport is a report as far as the configuration knows it.
func newReport(c *config.Config) Report {
	r := Report{
		Program: c.Name, Version: version(), Go: runtime.Version(), Env: c.Env, PID: os.Getpid(),
		Files: files(c), Keys: len(c.Values()),
	}
	for _, v := range c.Values() {
		if v.Origin.IsDefault() {
			continue
		}
		r.Set = append(r.Set, newSetting(v))
	}
	return r
}

func newSetting(v config.Value) Setting {
	s := Setting{Key: v.Key, Value: v.Text, Origin: v.Origin.String()}
	for _, below := range v.Shadows {
		s.Over = append(s.Over, below.String())
	}
	return s
}

// version is that of the program, or the revision that it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 12)]
		}
	}
	return ""
}

// phase notes how long a part of the boot took that began then.
func (r *Report) phase(name string, began time.Time) {
	r.Phases = append(r.Phases, Phase{name, time.Since(began)})
}

// slowest are the phases that took longest, and long enough to be of interest.
func (r *Report) slowest() []Phase {
	const few, long = 3, time.Millisecond
	all := slices.DeleteFunc(slices.Clone(r.Phases), func(p Phase) bool { return p.Took < long })
	slices.SortStableFunc(all, func(a, b Phase) int { return int(b.Took - a.Took) })
	return all[:min(len(all), few)]
}

// tell writes the report: as a page where people read the log, else as one
// record, with its warnings as records of their own, so that they are found.
func (r *Report) tell(p Process, c *config.Config, log *slog.Logger) {
	if readable(p.Stderr, c) {
		_, _ = io.WriteString(p.Stderr, "\n"+r.page(p.paint(), p.Verbose)+"\n") // a report that cannot be read stops nothing
		return
	}
	for _, d := range []Decision{r.Lock, r.Bus} {
		for _, warning := range d.Warnings {
			log.Warn(d.Component+": "+warning, "driver", d.Chosen)
		}
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "boot.report", slog.Any("report", r))
}

// Print writes the whole report as text, with all candidates and without
// colours.
func (r *Report) Print(w io.Writer) error {
	_, err := io.WriteString(w, r.page(paint{}, true))
	return err
}

// paint is how emphasis is written; the zero paint has none.
type paint struct{ colours bool }

// paint has colours on a terminal, unless its user wants none.
func (p Process) paint() paint {
	unwanted := slices.ContainsFunc(p.Environ, func(kv string) bool {
		return strings.HasPrefix(kv, "NO_COLOR=") && kv != "NO_COLOR=" || kv == "TERM=dumb"
	})
	return paint{isTerminal(p.Stderr) && !unwanted}
}

func (p paint) in(code, s string) string {
	if !p.colours || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) strong(s string) string  { return p.in("1", s) }
func (p paint) faint(s string) string   { return p.in("2", s) }
func (p paint) warning(s string) string { return p.in("33", s) }
