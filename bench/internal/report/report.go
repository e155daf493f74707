package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/megaframework/mega/bench/internal/measure"
)

//go:embed report.tmpl
var reportText string

// Outline has the subjects of the page, in order, and the rows of each.
type Outline struct {
	Subjects []string
	Rows     []Description
}

// Description is what the report shows of a row: its name, subject and text.
type Description struct{ Name, Subject, About string }

// report is what the page shows: the results by subject and row.
type report struct {
	*Results
	Subjects []part
	OK       int
	Missed   []section // the claims that missed their targets
	Open     int       // the number of claims without a target
	Ticks    []tick    // of all strips
}

// part has the rows of a subject.
type part struct {
	Name string
	Rows []chapter
}

// chapter is a row with its claims.
type chapter struct {
	Name, About string
	Claims      []section
}

// section is a claim with its plots.
type section struct {
	measure.Claim
	ID    string
	Strip *strip // nil without a target
	Bars  []bar
	Plot  *plot // nil without curves
}

// Verdict returns the verdict in words.
func (s section) Verdict() string {
	if s.Bound == 0 {
		return "no target"
	}
	return strings.ToLower(verdict(s.Claim))
}

// Class returns the verdict as a class of the page.
func (s section) Class() string { return strings.ReplaceAll(s.Verdict(), " ", "-") }

// Figure returns the judged figure: a ratio, or the median itself.
func (s section) Figure() string {
	if s.Against == "" {
		return quantity(s.Value, s.Unit)
	}
	return ratio(s.Value) + " × " + s.Against
}

// Quartiles returns the quartiles of the judged figure.
func (s section) Quartiles() string { return s.number(s.Low) + " to " + s.number(s.High) }

// Target returns the target, or "" without one.
func (s section) Target() string {
	switch {
	case s.Bound == 0:
		return ""
	case s.Lower:
		return "at least " + s.number(s.Bound)
	}
	return "at most " + s.number(s.Bound)
}

// number formats a ratio with all of its places, or a figure.
func (s section) number(v float64) string {
	if s.Against == "" {
		return grouped(v)
	}
	return ratio(v)
}

// Median returns mega's median where neither Figure nor Bars shows it.
func (s section) Median() string {
	if s.Against == "" || len(s.Bars) > 0 {
		return ""
	}
	return quantity(s.Mega, s.Unit)
}

// Better returns which figures are better: rates grow, costs shrink.
func (s section) Better() string {
	if s.Lower || s.Unit == "/s" {
		return "more is better"
	}
	return "less is better"
}

// newReport arranges the results. A row that this program no longer has is shown
// under its own subject.
func newReport(r *Results, o Outline) *report {
	rep := &report{Results: r}
	span := spanOf(r.Claims)
	rep.Ticks = stripTicks(span)
	for i, c := range r.Claims {
		s := section{Claim: c, ID: fmt.Sprintf("c%d", i), Strip: newStrip(c, span), Bars: newBars(c), Plot: newPlot(c)}
		switch {
		case c.Bound == 0:
			rep.Open++
		case c.Missed():
			rep.Missed = append(rep.Missed, s)
		default:
			rep.OK++
		}
		of := Description{Name: c.Row, Subject: "other"}
		if i := slices.IndexFunc(o.Rows, func(d Description) bool { return d.Name == c.Row }); i >= 0 {
			of = o.Rows[i]
		}
		rep.add(of, s)
	}
	slices.SortStableFunc(rep.Subjects, func(a, b part) int {
		return position(o.Subjects, a.Name) - position(o.Subjects, b.Name)
	})
	return rep
}

// add appends a claim to its row.
func (rep *report) add(of Description, s section) {
	i := slices.IndexFunc(rep.Subjects, func(b part) bool { return b.Name == of.Subject })
	if i < 0 {
		i = len(rep.Subjects)
		rep.Subjects = append(rep.Subjects, part{Name: of.Subject})
	}
	b := &rep.Subjects[i]
	j := slices.IndexFunc(b.Rows, func(c chapter) bool { return c.Name == of.Name })
	if j < 0 {
		j = len(b.Rows)
		b.Rows = append(b.Rows, chapter{Name: of.Name, About: sentence(of.About)})
	}
	b.Rows[j].Claims = append(b.Rows[j].Claims, s)
}

// sentence makes a sentence of a phrase.
func sentence(phrase string) string {
	if phrase == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(phrase)
	return string(unicode.ToUpper(first)) + phrase[size:] + "."
}

// shortName returns the name of a module without its host, owner and major
// version.
func shortName(path string) string {
	if host, rest, ok := strings.Cut(path, "/"); ok && strings.Contains(host, ".") {
		path = rest
		if host == "github.com" {
			_, path, _ = strings.Cut(rest, "/")
		}
	}
	if i := strings.LastIndex(path, "/v"); i >= 0 {
		path = path[:i]
	}
	return path
}

// position returns the index of a name, or the length for an unknown one.
func position(names []string, name string) int {
	if i := slices.Index(names, name); i >= 0 {
		return i
	}
	return len(names)
}

// write writes the page.
func (rep *report) write(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{"unit": unitText, "grouped": grouped, "short": shortName}).Parse(reportText)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := t.Execute(w, rep); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// SavePage writes the page to file.
func SavePage(file string, r *Results, o Outline) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	err = newReport(r, o).write(f)
	if e := f.Close(); err == nil && e != nil {
		err = fmt.Errorf("write the report: %w", e)
	}
	return err
}

// quantity formats a figure with its unit.
func quantity(v float64, unit string) string {
	if unit == "" {
		return grouped(v)
	}
	return grouped(v) + " " + unitText(unit)
}

// unitText returns a unit in words.
func unitText(unit string) string {
	switch unit {
	case "":
		return "count"
	case "/s":
		return "per second"
	}
	return unit
}

// grouped formats a figure with a space, which does not break the line, between
// thousands.
func grouped(v float64) string {
	whole, fraction, _ := strings.Cut(digits(v), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "\u00a0" + whole[i:]
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		whole += "." + fraction
	}
	return whole
}
