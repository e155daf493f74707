package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/lock/driver"
)

// The report as text. Each section begins with its name. Its rows have columns,
// and text that does not fit into columns has a line of its own.

// row is a line of a section: cells, the last of which has no maximum width, or
// a single cell.
type row struct {
	cells []string
	style func(string) string // of the whole line; nil is plain
}

// margin is the width of the names of sections.
const margin = 8

// Text returns the report as text. Without verbose it contains only the decisions and
// their warnings. With verbose it also contains the settings, the other
// candidates, the admin socket and the slowest phases.
func (r *Report) Text(p Paint, verbose bool) string {
	var b strings.Builder
	b.WriteString(p.strong(r.title()) + "\n\n")
	section(&b, p, "config", r.configRows(p, verbose))
	section(&b, p, "lock", r.Lock.rows(p, verbose))
	section(&b, p, "bus", r.Bus.rows(p, verbose))
	switch {
	case verbose || !r.Limit.Follows():
		section(&b, p, "limit", r.Limit.rows(p, verbose))
	default: // its driver may warn of more than the one of the locks
		section(&b, p, "limit", r.Limit.warningRows(p))
	}
	section(&b, p, "apps", r.appRows())
	if r.Workers > 0 {
		section(&b, p, "workers", []row{{cells: []string{fmt.Sprintf("%d workers and a supervisor", r.Workers)}}})
	}
	section(&b, p, "primary", r.primaryRows())
	section(&b, p, "elected", r.electedRows())
	if r.Ops != "" {
		section(&b, p, "ops", r.opsRows(verbose))
	}
	if slow := r.slowest(); verbose && len(slow) > 0 {
		section(&b, p, "slowest", []row{{cells: []string{durations(slow)}}})
	}
	if r.Took > 0 {
		b.WriteString(p.strong(fmt.Sprintf("ready in %v", rounded(r.Took))) + "\n")
	}
	return b.String()
}

func durations(all []Phase) string {
	var texts []string
	for _, phase := range all {
		texts = append(texts, fmt.Sprintf("%s %v", phase.Name, rounded(phase.Took)))
	}
	return strings.Join(texts, ", ")
}

func (r *Report) primaryRows() (rows []row) {
	for _, of := range r.Primary {
		where := "each program runs it by itself"
		if of.Lock != "" {
			where = "one node at a time, under the lock " + of.Lock
		}
		rows = append(rows, row{cells: []string{of.Name, where}})
	}
	return rows
}

func (r *Report) electedRows() (rows []row) {
	for _, of := range r.Elected {
		once, what := "in this process", "in this process"
		if r.Workers > 0 {
			once, what = "once in each worker", "in each worker"
		}
		if of.Scope != driver.Process.String() {
			once, what = "once in the "+of.Scope, "in one process of the "+of.Scope+" at a time"
		}
		if of.Every > 0 {
			what = fmt.Sprintf("every %s, %s", plain.Exact(of.Every), once)
		}
		rows = append(rows, row{cells: []string{of.Name, what + ", under the lock " + of.Lock}})
	}
	return rows
}

func (r *Report) opsRows(verbose bool) []row {
	cells := []string{r.Ops, "/livez", "/readyz", "/metrics"}
	if r.Console {
		cells = append(cells, "/console")
	}
	rows := []row{{cells: cells}}
	if verbose && r.Admin != "" {
		rows = append(rows, row{cells: []string{"admin socket " + r.Admin}})
	}
	return rows
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func (r *Report) title() string {
	name := r.Program
	if r.Version != "" {
		name += " " + r.Version
	}
	if r.Rehearsed {
		return strings.Join([]string{name, "env " + r.Env, "dry run: nothing was opened", r.Go}, " · ")
	}
	return strings.Join([]string{name, "env " + r.Env, fmt.Sprintf("pid %d", r.PID), r.Go}, " · ")
}

// Summary describes the configuration in one line.
func (r *Report) Summary() string {
	return fmt.Sprintf("%s: %d keys, %d of them set", cmp.Or(strings.Join(r.Files, ", "), "no file"), r.Keys, len(r.Set))
}

func (r *Report) configRows(p Paint, verbose bool) []row {
	rows := []row{{cells: []string{r.Summary()}}}
	if r.Doubt != "" {
		rows = append(rows, row{cells: []string{"! " + r.Doubt}, style: p.warning})
	}
	if !verbose {
		return rows
	}
	for _, s := range r.Set {
		from := s.Origin
		if len(s.Over) > 0 {
			from += ", over " + strings.Join(s.Over, ", ")
		}
		rows = append(rows, row{cells: []string{s.Key, s.Value, from}})
	}
	return rows
}

func (r *Report) appRows() (rows []row) {
	for _, a := range r.Apps {
		routes := fmt.Sprintf("%d routes", a.Routes)
		if a.Routes == 1 {
			routes = "1 route"
		}
		cells := []string{a.App, a.URL}
		if a.Host == "localhost" || strings.HasSuffix(a.Host, ".localhost") { // people open it on this machine
			cells[1] = a.Link()
		}
		switch {
		case a.URL == "":
			cells[1] = "no listener"
		case !r.Rehearsed:
			cells = append(cells, routes)
		}
		if a.Host != "" {
			cells = append(cells, "for "+a.Host)
		}
		rows = append(rows, row{cells: append(cells, strings.Join(a.Locales, ", "))})
	}
	if len(r.LeftOut) > 0 {
		rows = append(rows, row{cells: []string{"left out: " + strings.Join(r.LeftOut, ", ")}})
	}
	return rows
}

// at returns the server, and for locks and limits outside the process also their namespace and the version of their format (L24).
func (d Decision) at() string {
	var parts []string
	if d.Server != "" {
		parts = append(parts, "at "+d.Server)
	}
	if d.Component != "bus" && d.Format != "" {
		parts = append(parts, "namespace "+cmp.Or(d.Namespace, "none"), "format "+d.Format)
	}
	return strings.Join(parts, ", ")
}

// rows returns a decision: the chosen driver with its reason, warnings, and how
// to get a wider scope. With verbose it adds the other candidates and what the
// chosen driver lacks.
func (d Decision) rows(p Paint, verbose bool) []row {
	rows := []row{{cells: []string{d.Chosen, "scope " + d.Scope, d.Because()}}}
	if at := d.at(); at != "" {
		rows = append(rows, row{cells: []string{"", at}})
	}
	if verbose {
		rows = append(rows, d.otherRows(p)...)
	}
	rows = append(rows, d.warningRows(p)...)
	if len(d.Wider) > 0 {
		rows = append(rows, row{cells: []string{"wider scope: " + strings.Join(d.Wider, ", or ")}})
	}
	return rows
}

func (d Decision) warningRows(p Paint) (rows []row) {
	for _, warning := range d.Warnings {
		rows = append(rows, row{cells: []string{"! " + warning}, style: p.warning})
	}
	return rows
}

// otherRows returns the candidates that were not chosen, and the rules that the
// chosen driver lacks.
func (d Decision) otherRows(p Paint) (rows []row) {
	for _, c := range d.Candidates {
		if c.Outcome == Chosen {
			continue
		}
		why := c.Reason
		if c.Key != "" && c.Key != d.Key && c.Origin != NotSet {
			why += fmt.Sprintf("  (%s: %s)", c.Key, c.Origin)
		}
		rows = append(rows, row{cells: []string{c.Name, "no: needs " + c.Needs, why}, style: p.faint})
	}
	for _, l := range d.Lacks {
		rows = append(rows, row{cells: []string{"", "without " + l.Rule, l.Why}})
	}
	return rows
}

// NotSet is the origin of a key without a value.
const NotSet = "not set"

// section writes rows below a name, with their columns aligned. It writes nothing without
// rows.
func section(b *strings.Builder, p Paint, name string, rows []row) {
	var widths []int
	for _, r := range rows {
		for i, cell := range r.cells {
			r.cells[i] = plain.Line(cell) // users and servers have written some of it
		}
		for i, cell := range r.cells[:max(len(r.cells)-1, 0)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, r := range rows {
		label := strings.Repeat(" ", margin)
		if i == 0 {
			label = p.strong(name) + label[len(name):]
		}
		b.WriteString(label)
		line := strings.TrimRight(r.line(widths), " ")
		if r.style != nil {
			line = r.style(line)
		}
		b.WriteString(line + "\n")
	}
}

func (r row) line(widths []int) string {
	var b strings.Builder
	for i, cell := range r.cells {
		b.WriteString(cell)
		if i < len(r.cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
	}
	return b.String()
}

// Paint adds emphasis to text; the zero Paint adds none.
type Paint struct{ Colours bool }

func (p Paint) in(code, s string) string {
	if !p.Colours || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p Paint) strong(s string) string  { return p.in("1", s) }
func (p Paint) faint(s string) string   { return p.in("2", s) }
func (p Paint) warning(s string) string { return p.in("33", s) }
