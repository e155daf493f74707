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

// Report describes the result of a boot, for people and for machines. Its
// fields have stable names in JSON; times are in nanoseconds.
type Report struct {
	Program string        `json:"program"`
	Version string        `json:"version,omitempty"` // of the program; empty if the build has none
	Go      string        `json:"go"`
	Env     string        `json:"env"`
	PID     int           `json:"pid"`
	Took    time.Duration `json:"took"`
	Files   []string      `json:"files"` // of the configuration, the weakest first
	Keys    int           `json:"keys"`  // that have a value
	Set     []Setting     `json:"set"`   // keys that do not have their default
	Lock    Decision      `json:"lock"`
	Bus     Decision      `json:"bus"`
	Apps    []Served      `json:"apps"`
	Workers int           `json:"workers,omitempty"`  // number of workers; 0 without a supervisor
	Primary []Primary     `json:"primary,omitempty"`  // OnPrimary functions, in their order
	LeftOut []string      `json:"left_out,omitempty"` // apps that this process does not run
	Ops     string        `json:"ops"`                // URL of the probes
	Admin   string        `json:"admin,omitempty"`    // path of the admin socket
	Phases  []Phase       `json:"phases,omitempty"`   // of the boot, in order
	Reload  *Reloaded     `json:"reload,omitempty"`   // the last reload of the configuration

	// Rehearsed reports that nothing was opened: addresses are as configured,
	// and routes are not counted.
	Rehearsed bool `json:"rehearsed,omitempty"`
}

// Setting is a key of the configuration with the origin of its value. A secret
// is masked.
type Setting struct {
	Key    string   `json:"key"`
	Value  string   `json:"value"`
	Origin string   `json:"origin"`
	Over   []string `json:"over,omitempty"` // the origins that it overrides
}

// Lack is a rule of the contract that a driver does not keep.
type Lack struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// Served describes an app and its address.
type Served struct {
	App     string   `json:"app"`
	URL     string   `json:"url"`
	Host    string   `json:"host,omitempty"` // the only host that it serves
	Routes  int      `json:"routes"`
	Locales []string `json:"locales,omitempty"`
}

// Phase is a part of the boot and its duration.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

// newReport returns a report with the contents of the configuration.
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

// version returns the version of the program, or the revision that it was built
// from.
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

// phase records the duration of a part of the boot that began at began.
func (r *Report) phase(name string, began time.Time) {
	r.Phases = append(r.Phases, Phase{name, time.Since(began)})
}

// slowest returns the phases with the longest durations above a minimum.
func (r *Report) slowest() []Phase {
	const few, long = 3, time.Millisecond
	all := slices.DeleteFunc(slices.Clone(r.Phases), func(p Phase) bool { return p.Took < long })
	slices.SortStableFunc(all, func(a, b Phase) int { return int(b.Took - a.Took) })
	return all[:min(len(all), few)]
}

// tell writes the report: as text if people read the log, otherwise as one
// record. The warnings are separate records then, so that a search finds them.
func (r *Report) tell(p Process, c *config.Config, log *slog.Logger) {
	if readable(p.Stderr, c) {
		_, _ = io.WriteString(p.Stderr, "\n"+r.page(p.paint(), p.Verbose)+"\n") // the program runs without a report, too
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

// paint adds emphasis to text; the zero paint adds none.
type paint struct{ colours bool }

// paint returns a paint with colours for a terminal, unless its user has
// disabled them.
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

// files returns the configuration files, the weakest first.
func files(c *config.Config) (paths []string) {
	for _, f := range c.Files() {
		paths = append(paths, f.Path)
	}
	return paths
}
