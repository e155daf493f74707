package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestTableShowsARegressionAtAGlance(t *testing.T) {
	earlier := &results{Claims: []claim{
		{Row: "r", Name: "cost", Value: 1.0, Against: "p"},
		{Row: "r", Name: "rate", Value: 10, Against: "p"},
		{Row: "r", Name: "same", Value: 2},
	}}
	now := &results{Claims: []claim{
		{Row: "r", Name: "cost", Value: 1.5, Against: "p", Bound: 1.3},
		{Row: "r", Name: "rate", Value: 12, Against: "p", Bound: 8, AtLeast: true},
		{Row: "r", Name: "same", Value: 2.1, Bound: 3},
		{Row: "r", Name: "fresh", Value: 1},
	}}
	var b strings.Builder
	now.print(&b, earlier)
	lines := strings.Split(b.String(), "\n")
	for i, want := range []string{"verdict", "MISSED", "ok", "ok", "new"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d has no %q: %s", i, want, lines[i])
		}
	}
	for i, want := range map[int]string{1: "WORSE by 50 %", 2: "better by 20 %"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d has no %q: %s", i, want, lines[i])
		}
	}
	if strings.Contains(lines[3], "WORSE") {
		t.Errorf("five percent are noise: %s", lines[3])
	}
	if !strings.Contains(b.String(), "4 claims, 1 MISSED") {
		t.Errorf("no summary in:\n%s", &b)
	}
}

func TestExtremesAreAllowedMoreNoise(t *testing.T) {
	earlier := &results{Claims: []claim{{Row: "r", Name: "worst", Value: 1}}}
	c := claim{Row: "r", Name: "worst", Value: 1.8}.atMost(5).noisy(1)
	if got := c.before(earlier); strings.Contains(got, "WORSE") {
		t.Errorf("less than twice as bad: %s", got)
	}
	c.Value = 2.1
	if got := c.before(earlier); !strings.Contains(got, "WORSE") {
		t.Errorf("more than twice as bad: %s", got)
	}
}

func TestResultsSurviveTheirFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	r := newResults(true)
	r.Claims = []claim{{Row: "r", Name: "n", Value: 1.25, Others: []figure{{"p", 2}}, Bound: 2}}
	if err := r.save(file); err != nil {
		t.Fatal(err)
	}
	got, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Claims) != 1 || got.Claims[0].Value != 1.25 || got.Claims[0].Others[0].Name != "p" || !got.Date.Equal(r.Date) {
		t.Errorf("got %+v, want %+v", got, r)
	}
}

func TestNoEarlierResultsAreNoError(t *testing.T) {
	if _, err := load(filepath.Join(t.TempDir(), "none.json")); err != nil {
		t.Error(err)
	}
}

func TestUnknownRowListsTheExistingRows(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), []string{"-row", "nonesuch"}, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "memory-alone") {
		t.Errorf("got %v", err)
	}
}

func TestResultsNameTheMachine(t *testing.T) {
	r := newResults(false)
	if r.Go == "" || r.CPUs == 0 {
		t.Errorf("got %+v", r)
	}
	for _, v := range r.Versions {
		if v.Name == "" || v.Version == "" {
			t.Errorf("a version without name or value: %+v", v)
		}
	}
}
