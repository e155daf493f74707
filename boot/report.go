package boot

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/lock/driver"
)

// Report is what a boot came to, for people and for machines.
type Report struct {
	Program string        `json:"program"`
	Env     string        `json:"env"`
	PID     int           `json:"pid"`
	Took    time.Duration `json:"took"`
	Set     []string      `json:"set"` // "lock.ttl = 5s  (env MEGA_LOCK_TTL)", what is not default
	Lock    Decision      `json:"lock"`
	Bus     Decision      `json:"bus"`
	Lacks   []driver.Lack `json:"lacks,omitempty"`
	Apps    []Served      `json:"apps"`
	Ops     string        `json:"ops"`
}

// Served is an app and where it is served.
type Served struct {
	App  string `json:"app"`
	URL  string `json:"url"`
	Host string `json:"host,omitempty"` // the only one that it answers for; "" for all
}

// settings lists what the configuration says beyond its defaults.
func settings(c *config.Config) (lines []string) {
	for _, v := range c.Values() {
		if !v.Origin.IsDefault() {
			lines = append(lines, fmt.Sprintf("%s = %s  (%v)", v.Key, v.Text, v.Origin))
		}
	}
	return lines
}

// tell writes the report: as a page where people read the log, else as one
// record.
func (r *Report) tell(w io.Writer, c *config.Config, log *slog.Logger) {
	for _, warning := range r.Lock.Warnings {
		log.Warn("locks: "+warning, "driver", r.Lock.Chosen)
	}
	if readable(w, c) {
		r.print(w)
		return
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "boot.report", slog.Any("report", r))
}

// print writes the report as a page.
func (r *Report) print(w io.Writer) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s · env %s · pid %d · %v\n", r.Program, r.Env, r.PID, r.Took.Round(time.Millisecond))
	for i, line := range r.Set {
		fmt.Fprintf(&b, "%-8s%s\n", first(i, "config"), line)
	}
	r.printLock(&b)
	for i, a := range r.Apps {
		fmt.Fprintf(&b, "%-8s%-9s %s\n", first(i, "apps"), a.App, a.URL)
	}
	fmt.Fprintf(&b, "%-8s%-9s %s/livez  %s/readyz\n\n", "ops", "", r.Ops, r.Ops)
	_, _ = io.WriteString(w, b.String()) // a report that cannot be read stops nothing
}

func (r *Report) printLock(b *strings.Builder) {
	fmt.Fprintf(b, "%-8s%-9s %s  (%s: %s)\n", "lock", r.Lock.Chosen, r.Lock.Why, r.Lock.Key, r.Lock.Origin)
	for _, c := range r.Lock.Candidates {
		if c.Outcome != Chosen {
			fmt.Fprintf(b, "          %-8s no: %s\n", c.Name, c.Reason)
		}
	}
	for _, l := range r.Lacks {
		fmt.Fprintf(b, "          without %s: %s\n", l.Rule, l.Why)
	}
	for _, warning := range r.Lock.Warnings {
		fmt.Fprintf(b, "          ! %s\n", warning)
	}
}

func first(i int, s string) string {
	if i == 0 {
		return s
	}
	return ""
}
