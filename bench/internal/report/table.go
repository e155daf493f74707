package report

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/megaframework/mega/bench/internal/measure"
)

// Print writes the table: measurement, value, reference, target, verdict and
// earlier value.
func (r *Results) Print(w io.Writer, earlier *Results) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "row\tclaim\tmega\tothers\tratio\tquartiles\ttarget\tverdict\tbefore")
	for _, c := range r.Claims {
		fmt.Fprintf(tw, "%s\t%s\t%s %s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			c.Row, c.Name, digits(c.Mega), c.Unit, others(c), value(c, c.Value),
			value(c, c.Low)+" to "+value(c, c.High), target(c), verdict(c), before(c, earlier))
	}
	_ = tw.Flush() // a failed write to stdout is visible
	fmt.Fprintf(w, "\n%d claims, %d MISSED; %s, %s, %d CPUs", len(r.Claims), r.Missed(), r.Go, r.System, r.CPUs)
	if !earlier.Date.IsZero() {
		fmt.Fprintf(w, "; before: %s", earlier.Date.Format(time.DateTime))
	}
	fmt.Fprintln(w)
}

func others(c measure.Claim) string {
	var parts []string
	for _, o := range c.Others {
		parts = append(parts, o.Name+" "+digits(o.Value))
	}
	return strings.Join(parts, ", ")
}

// value formats a ratio as such, and a value that is none like Mega.
func value(c measure.Claim, v float64) string {
	if c.Against == "" {
		return digits(v)
	}
	return ratio(v) + "×"
}

func target(c measure.Claim) string {
	switch {
	case c.Bound == 0:
		return "-"
	case c.Lower:
		return "≥ " + value(c, c.Bound) + of(c)
	}
	return "≤ " + value(c, c.Bound) + of(c)
}

func of(c measure.Claim) string {
	if c.Against == "" {
		return ""
	}
	return " " + c.Against
}

func verdict(c measure.Claim) string {
	switch {
	case c.Bound == 0:
		return "-"
	case c.Missed():
		return "MISSED"
	}
	return "ok"
}

// before returns the same claim's value in the earlier run, marked if the
// difference is noteworthy.
func before(c measure.Claim, earlier *Results) string {
	for _, e := range earlier.Claims {
		if e.Row != c.Row || e.Name != c.Name || e.Value == 0 {
			continue
		}
		was, noise := value(c, e.Value), cmp.Or(c.Noise, noteworthy)
		switch d := c.Worse(e.Value); {
		case d > noise:
			return fmt.Sprintf("%s  WORSE by %.0f %%", was, 100*d)
		case d < -noise:
			return fmt.Sprintf("%s  better by %.0f %%", was, -100*d)
		}
		return was
	}
	return "new"
}

// noteworthy is the share by which a value must differ from the last run's to
// be marked: runs on a quiet machine differ by less.
const noteworthy = 0.15

// ratio formats a ratio: one close to one is not a share.
func ratio(v float64) string {
	if v > 0.9 && v < 1 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return digits(v)
}

// digits formats with about three significant digits, and all of a share close
// to one.
func digits(v float64) string {
	switch {
	case v > 0.9 && v < 1:
		return strconv.FormatFloat(v, 'f', 4, 64)
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
