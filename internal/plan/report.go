package plan

import (
	"cmp"
	"encoding/json"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/settings"
)

// Report describes the result of a boot, for people and for machines. Its
// fields have stable names in JSON; durations are in nanoseconds, and as
// text beside them.
type Report struct {
	Program string        `json:"program"`
	Version string        `json:"version,omitempty"` // of the program; empty if the build has none
	Go      string        `json:"go"`
	Env     string        `json:"env"`
	PID     int           `json:"pid"`
	Took    time.Duration `json:"took"`
	Doubt   string        `json:"doubt,omitempty"` // a warning about Env
	Files   []string      `json:"files"`           // of the configuration, the weakest first
	Keys    int           `json:"keys"`            // that have a value
	Set     []Setting     `json:"set"`             // keys that do not have their default
	Lock    Decision      `json:"lock"`
	Bus     Decision      `json:"bus"`
	Limit   Decision      `json:"limit"`
	Apps    []Served      `json:"apps"`
	Workers int           `json:"workers,omitempty"`  // number of workers; 0 without a supervisor
	Primary []Primary     `json:"primary,omitempty"`  // OnPrimary functions, in their order
	Elected []Elected     `json:"elected,omitempty"`  // Lead and Every functions
	LeftOut []string      `json:"left_out,omitempty"` // apps that this process does not run
	Ops     string        `json:"ops"`                // URL of the probes
	Console bool          `json:"console,omitempty"`  // Ops has /console
	Admin   string        `json:"admin,omitempty"`    // path of the admin socket
	Phases  []Phase       `json:"phases,omitempty"`   // of the boot, in order
	Reload  *Reloaded     `json:"reload,omitempty"`   // the last reload of the configuration

	// Rehearsed reports that nothing was opened: addresses are as configured,
	// and routes are not counted.
	Rehearsed bool `json:"rehearsed,omitempty"`
}

// MarshalJSON adds took_text, the duration as text.
func (r Report) MarshalJSON() ([]byte, error) {
	type report Report
	return json.Marshal(struct {
		report
		TookText string `json:"took_text"`
	}{report(r), r.Took.String()})
}

// MarshalJSON adds took_text, the duration as text.
func (p Phase) MarshalJSON() ([]byte, error) {
	type phase Phase
	return json.Marshal(struct {
		phase
		TookText string `json:"took_text"`
	}{phase(p), p.Took.String()})
}

// MarshalJSON adds every_text, the interval as text.
func (e Elected) MarshalJSON() ([]byte, error) {
	type elected Elected
	text := ""
	if e.Every != 0 {
		text = e.Every.String()
	}
	return json.Marshal(struct {
		elected
		EveryText string `json:"every_text,omitempty"`
	}{elected(e), text})
}

// Setting is a key of the configuration with the origin of its value. A secret
// is masked.
type Setting struct {
	Key    string   `json:"key"`
	Value  string   `json:"value"`
	Origin string   `json:"origin"`
	Over   []string `json:"over,omitempty"` // the origins that it overrides
}

// Served describes an app and its address.
type Served struct {
	App     string   `json:"app"`
	URL     string   `json:"url"`
	Host    string   `json:"host,omitempty"` // the only host that it serves
	Routes  int      `json:"routes"`
	Locales []string `json:"locales,omitempty"`
}

// Link returns the URL that the app answers: one with its host. An app with a host
// refuses requests that have the address of the listener in its place.
func (s Served) Link() string {
	u, err := url.Parse(s.URL)
	if err != nil || s.Host == "" || strings.HasPrefix(s.Host, "*.") {
		return s.URL
	}
	u.Host = strings.TrimSuffix(net.JoinHostPort(s.Host, u.Port()), ":")
	return u.String()
}

// Phase is a part of the boot and its duration.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

// Primary describes an OnPrimary function and the scope in which its runs
// exclude each other.
type Primary struct {
	Name  string `json:"name"`
	Scope string `json:"scope"`          // fleet: one run at a time in all nodes; node: each program runs its own
	Lock  string `json:"lock,omitempty"` // the key that it runs under
}

// Elected describes a Lead or Every function, and the scope in which its runs
// exclude each other.
type Elected struct {
	Name  string        `json:"name"`
	Every time.Duration `json:"every,omitempty"` // 0 for Lead
	Scope string        `json:"scope"`           // of the locks
	Lock  string        `json:"lock"`            // the key that it runs under
}

// Reloaded is the result of a reload of the configuration.
type Reloaded struct {
	At      time.Time `json:"at"`
	Refused string    `json:"refused,omitempty"` // all errors; nothing has changed
	Live    []string  `json:"live,omitempty"`    // changed keys that are in force
	Pending []string  `json:"pending,omitempty"` // changed keys that require a restart
}

// newReport returns a report with the contents of the configuration.
func newReport(c *settings.Config) Report {
	r := Report{
		Program: c.Name, Version: version(), Go: runtime.Version(), Env: c.Env, PID: os.Getpid(),
		Files: files(c), Keys: len(c.Values()), Set: []Setting{}, Console: servesConsole(c), Doubt: c.EnvWarning(),
	}
	for _, v := range c.Values() {
		if v.Origin.IsDefault() {
			continue
		}
		r.Set = append(r.Set, NewSetting(v))
	}
	return r
}

// servesConsole reports whether the console is on and can be opened: on an address that
// other machines reach it requires ops.token.
func servesConsole(c *settings.Config) bool {
	host, _, _ := net.SplitHostPort(string(c.Ops.Addr)) // a config.Addr has both
	ip := net.ParseIP(host)
	return c.Ops.Console && (c.Ops.Token.Reveal() != "" || host == "localhost" || ip != nil && ip.IsLoopback())
}

// NewSetting returns the setting of a value.
func NewSetting(v settings.Value) Setting {
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

// files returns the configuration files, the weakest first.
func files(c *settings.Config) []string {
	paths := []string{} // not null in JSON
	for _, f := range c.Files() {
		paths = append(paths, f.Path)
	}
	return paths
}

// Record records the duration of a part of the boot that began at began.
func (r *Report) Record(name string, began time.Time) {
	r.Phases = append(r.Phases, Phase{name, time.Since(began)})
}

// slowest returns the phases with the longest durations above a minimum.
func (r *Report) slowest() []Phase {
	const few, long = 3, time.Millisecond
	all := slices.DeleteFunc(slices.Clone(r.Phases), func(p Phase) bool { return p.Took < long })
	slices.SortStableFunc(all, func(a, b Phase) int { return cmp.Compare(b.Took, a.Took) })
	return all[:min(len(all), few)]
}

// Print writes the whole report as text, with all candidates and without
// colours.
func (r *Report) Print(w io.Writer) error {
	_, err := io.WriteString(w, r.Text(Paint{}, true))
	return err
}
