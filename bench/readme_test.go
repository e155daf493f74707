package main

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/report"
)

// A line of the table of the committed results: row, claim, target, and the first figure
// of three runs, bold if it misses the target.
var tableLine = regexp.MustCompile(`(?m)^\| ([a-z0-9-]*) ?\| ([^|]+) \| ([\d. ]+)[^|]* \| (\*\*)?([\d.]+)[^|]*, [^|]*, [^|]* \|`)

// The first of the three runs is in results.json.
func TestTableShowsTheCommittedResults(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	results, err := report.Load("results.json")
	if err != nil {
		t.Fatal(err)
	}
	lines, row := tableLine.FindAllStringSubmatch(string(text), -1), ""
	if len(lines) < 20 {
		t.Fatalf("the table has %d lines", len(lines))
	}
	for _, m := range lines {
		if m[1] != "" { // else the row of the line above
			row = m[1]
		}
		target, err := strconv.ParseFloat(strings.ReplaceAll(m[3], " ", ""), 64)
		if err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		_, decimals, _ := strings.Cut(m[5], ".")
		if !slices.ContainsFunc(results.Claims, func(c measure.Claim) bool {
			return c.Row == row && c.Bound == target && c.Missed() == (m[4] != "") && strconv.FormatFloat(c.Value, 'f', len(decimals), 64) == m[5]
		}) {
			t.Errorf("results.json has no claim of the row %s with this target and figure:\n%s", row, m[0])
		}
	}
}
