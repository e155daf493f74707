package report

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/bench/internal/measure"
)

func TestTableShowsARegressionAtAGlance(t *testing.T) {
	earlier := &Results{Claims: []measure.Claim{
		{Row: "r", Name: "cost", Value: 1.0, Against: "p"},
		{Row: "r", Name: "rate", Value: 10, Against: "p"},
		{Row: "r", Name: "same", Value: 2},
	}}
	now := &Results{Claims: []measure.Claim{
		{Row: "r", Name: "cost", Value: 1.5, Against: "p", Bound: 1.3},
		{Row: "r", Name: "rate", Value: 12, Against: "p", Bound: 8, Lower: true},
		{Row: "r", Name: "same", Value: 2.1, Bound: 3},
		{Row: "r", Name: "fresh", Value: 1},
	}}
	var b strings.Builder
	now.Print(&b, earlier)
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
	earlier := &Results{Claims: []measure.Claim{{Row: "r", Name: "worst", Value: 1}}}
	c := measure.Claim{Row: "r", Name: "worst", Value: 1.8}.AtMost(5).Noisy(1)
	if got := before(c, earlier); strings.Contains(got, "WORSE") {
		t.Errorf("less than twice as bad: %s", got)
	}
	c.Value = 2.1
	if got := before(c, earlier); !strings.Contains(got, "WORSE") {
		t.Errorf("more than twice as bad: %s", got)
	}
}

func TestResultsSurviveTheirFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	r := NewResults(true)
	r.Claims = []measure.Claim{{Row: "r", Name: "n", Value: 1.25, Others: []measure.Figure{{Name: "p", Value: 2}}, Bound: 2}}
	if err := r.Save(file); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Claims) != 1 || got.Claims[0].Value != 1.25 || got.Claims[0].Others[0].Name != "p" || !got.Date.Equal(r.Date) {
		t.Errorf("got %+v, want %+v", got, r)
	}
}

func TestNoEarlierResultsAreNoError(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.json")); err != nil {
		t.Error(err)
	}
}

func TestResultsNameTheMachine(t *testing.T) {
	r := NewResults(false)
	if r.Go == "" || r.CPUs == 0 {
		t.Errorf("got %+v", r)
	}
	for _, v := range r.Versions {
		if v.Name == "" || v.Version == "" {
			t.Errorf("a version without name or value: %+v", v)
		}
	}
}
