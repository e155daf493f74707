package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// results is one run.
type results struct {
	Date   time.Time `json:"date"`
	Go     string    `json:"go"`
	System string    `json:"system"`
	CPUs   int       `json:"cpus"`
	CPU    string    `json:"cpu,omitempty"`
	// Versions has the versions of the servers and of the compared modules.
	Versions []version `json:"versions,omitempty"`
	Quick    bool      `json:"quick,omitempty"`
	Claims   []claim   `json:"claims"`
}

func newResults(quick bool) *results {
	return &results{
		Date:   time.Now().UTC().Truncate(time.Second),
		Go:     runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs:   runtime.NumCPU(),
		CPU:    processor(),
		Quick:  quick,

		Versions: versions(),
	}
}

// load reads the results of an earlier run; there need not be one.
func load(file string) (*results, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &results{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the earlier results: %w", err)
	}
	var r results
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read the earlier results in %s: %w", file, err)
	}
	return &r, nil
}

// save writes the results to file, or nowhere if it has no name.
func (r *results) save(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

func (r *results) missed() (n int) {
	for _, c := range r.Claims {
		if c.missed() {
			n++
		}
	}
	return n
}

// noteworthy is the share by which a value must differ from the last run's to
// be marked: runs on a quiet machine differ by less.
const noteworthy = 0.15

// print writes the table: measurement, value, reference, target, verdict and
// earlier value.
func (r *results) print(w io.Writer, earlier *results) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "row\tclaim\tmega\tothers\tratio\tquartiles\ttarget\tverdict\tbefore")
	for _, c := range r.Claims {
		fmt.Fprintf(tw, "%s\t%s\t%s %s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			c.Row, c.Name, digits(c.Mega), c.Unit, c.others(), c.value(c.Value),
			c.value(c.Low)+" to "+c.value(c.High), c.target(), c.verdict(), c.before(earlier))
	}
	_ = tw.Flush() // a failed write to stdout is visible
	fmt.Fprintf(w, "\n%d claims, %d MISSED; %s, %s, %d CPUs", len(r.Claims), r.missed(), r.Go, r.System, r.CPUs)
	if !earlier.Date.IsZero() {
		fmt.Fprintf(w, "; before: %s", earlier.Date.Format(time.DateTime))
	}
	fmt.Fprintln(w)
}

func (c claim) others() string {
	var parts []string
	for _, o := range c.Others {
		parts = append(parts, o.Name+" "+digits(o.Value))
	}
	return strings.Join(parts, ", ")
}

// value formats a ratio as such, and a value that is none like Mega.
func (c claim) value(v float64) string {
	if c.Against == "" {
		return digits(v)
	}
	return ratio(v) + "×"
}

func (c claim) target() string {
	switch {
	case c.Bound == 0:
		return "-"
	case c.AtLeast:
		return "≥ " + c.value(c.Bound) + c.of()
	}
	return "≤ " + c.value(c.Bound) + c.of()
}

func (c claim) of() string {
	if c.Against == "" {
		return ""
	}
	return " " + c.Against
}

func (c claim) verdict() string {
	switch {
	case c.Bound == 0:
		return "-"
	case c.missed():
		return "MISSED"
	}
	return "ok"
}

// before returns the same claim's value in the earlier run, marked if the
// difference is noteworthy.
func (c claim) before(earlier *results) string {
	for _, e := range earlier.Claims {
		if e.Row != c.Row || e.Name != c.Name || e.Value == 0 {
			continue
		}
		was, noise := c.value(e.Value), cmp.Or(c.noise, noteworthy)
		switch d := c.worse(e.Value); {
		case d > noise:
			return fmt.Sprintf("%s  WORSE by %.0f %%", was, 100*d)
		case d < -noise:
			return fmt.Sprintf("%s  better by %.0f %%", was, -100*d)
		}
		return was
	}
	return "new"
}

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
