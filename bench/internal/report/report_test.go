package report

import (
	"encoding/xml"
	"html"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/bench/internal/measure"
)

// measured are results with every kind of claim.
func measured() *Results {
	return &Results{
		Date: time.Date(2030, 4, 5, 6, 7, 8, 0, time.UTC), Go: "go1.99", System: "linux/amd64", CPUs: 4, CPU: "A Processor <1>",
		Versions: []version{{"redis-server", "7.9.1"}},
		Claims: []measure.Claim{
			{Row: "memory-alone", Name: "met", Unit: "ns", Mega: 1234, Value: 0.5, Low: 0.4, High: 0.6, Against: "peer", Bound: 1, Others: []measure.Figure{{Name: "peer", Value: 2468}}},
			{Row: "memory-alone", Name: "missed", Unit: "ns", Mega: 40, Value: 2, Low: 1.9, High: 2.1, Against: "peer", Bound: 1, Others: []measure.Figure{{Name: "peer", Value: 20}}},
			{Row: "redis-32-keys", Name: "rate", Unit: "/s", Mega: 5e6, Value: 4, Low: 3, High: 5, Against: "peer", Bound: 2, Lower: true, Others: []measure.Figure{{Name: "peer", Value: 0}}},
			{Row: "redis-32-keys", Name: "for information", Mega: 3, Value: 3, Low: 3, High: 3},
			{Row: "no such row", Name: "none", Value: 0, Bound: 7},
			{
				Row: "memory-alone", Name: "growth", Unit: "µs", Mega: 31, Value: 1.1, Low: 1, High: 1.2, Against: "10 clients", Bound: 1.5, Axis: "clients",
				Curves: []measure.Curve{{Name: measure.Mega, Points: points(10, 30, 1000, 31)}, {Name: "peer & co", Points: points(10, 30, 1000, 3000)}},
			},
		},
	}
}

// points returns the points with these coordinates, X and Y in turn.
func points(xy ...float64) (all []measure.Point) {
	for ; len(xy) > 0; xy = xy[2:] {
		all = append(all, measure.Point{X: xy[0], Y: xy[1]})
	}
	return all
}

func described() Outline {
	return Outline{[]string{"memory", "redis"}, []Description{
		{"redis-32-keys", "redis", "32 goroutines"}, {"memory-alone", "memory", "acquire and Release"},
	}}
}

func pageOf(t *testing.T, r *Results) string {
	t.Helper()
	var b strings.Builder
	if err := newReport(r, described()).write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReportShowsEveryClaim(t *testing.T) {
	r := measured()
	page := pageOf(t, r)
	for _, want := range []string{
		"5 April 2030, 06:07 UTC", "Go 1.99", "A Processor &lt;1&gt;, 4 CPUs, linux/amd64", "redis-server 7.9.1",
		"6: 4 ok, 1 missed, 1 without a target",
		"0.50 × peer", "quartiles 0.40 to 0.60", "target at most 1.00",
		"1\u00a0234", "2\u00a0468", "5\u00a0000\u00a0000", "target at least 2.00", "more is better",
		"µs over the number of clients, logarithmic", "peer &amp; co", "3\u00a0000",
		"Acquire and Release.", `id="other"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for verdict, n := range map[string]int{"ok": 4, "missed": 1, "no target": 1} {
		if got := strings.Count(page, `<span class="verdict">`+verdict+`</span>`); got != n {
			t.Errorf("the page has the verdict %q %d times, want %d", verdict, got, n)
		}
	}
	for _, foreign := range []string{"<script", "http://", "https://", "ZgotmplZ", "NaN", "Inf"} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %q", foreign)
		}
	}
}

func TestModulesHaveShortNames(t *testing.T) {
	for path, want := range map[string]string{
		"redis-server": "redis-server", "github.com/redis/go-redis/v9": "go-redis", "github.com/nats-io/nats.go": "nats.go", "golang.org/x/time": "x/time",
	} {
		if got := shortName(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// The page closes each element, so that no browser has to guess.
func TestReportIsWellFormed(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(pageOf(t, measured())))
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTargetsDivideThePlot(t *testing.T) {
	const target = 50.0
	for _, c := range []measure.Claim{
		{Name: "cheap", Value: 0.5, Bound: 1}, {Name: "dear", Value: 2, Bound: 1}, {Name: "free", Value: 0, Bound: 1},
		{Name: "fast", Value: 9, Bound: 3, Lower: true}, {Name: "slow", Value: 1, Bound: 3, Lower: true},
		{Name: "still", Value: 0, Bound: 3, Lower: true}, {Name: "enormous", Value: 1e9, Bound: 3},
		{Name: "below zero", Value: -1, Bound: 3}, {Name: "far too little", Value: -1, Bound: 3, Lower: true},
	} {
		c.Low, c.High = min(c.Value*0.9, c.Value*1.1), max(c.Value*0.9, c.Value*1.1)
		s := newStrip(c, spanOf([]measure.Claim{c}))
		if c.Missed() != (s.Dot > target) || s.Dot < 0 || s.Dot > 100 || s.Low < 0 || s.Low+s.Width > 100 || s.Low > s.Dot || s.Dot > s.Low+s.Width {
			t.Errorf("%s (missed: %v) is drawn as %+v", c.Name, c.Missed(), *s)
		}
	}
}

func TestCurvesStayInTheirFrame(t *testing.T) {
	for name, curve := range map[string][]measure.Point{
		"one point": points(10, 5), "flat": points(10, 5, 100, 5), "nothing": points(1, 0, 2, 0), "steep": points(1, 1, 1e6, 1e6),
		"small": points(10, 0.0012, 1000, 0.5), "below zero": points(1, -3, 2, 4), "many": points(1, 1, 2, 1, 4, 1, 8, 1, 16, 2, 32, 2, 64, 3),
	} {
		p := newPlot(measure.Claim{Curves: []measure.Curve{{Name: measure.Mega, Points: curve}}})
		for _, m := range p.Lines[0].Marks {
			if !(m.X >= plotLeft && m.X <= plotRight && m.Y >= plotTop && m.Y <= plotBase) {
				t.Errorf("%s: a point at %+v", name, m)
			}
		}
		if len(p.X) == 0 || len(p.Y) < 2 || len(p.X) > 8 || len(p.Y) > 8 {
			t.Errorf("%s: axes with %d and %d ticks", name, len(p.X), len(p.Y))
		}
	}
}

// The committed page shows the committed results. After a change of results.json,
// go run . -report report.html repairs it.
func TestCommittedReportShowsTheCommittedResults(t *testing.T) {
	r, err := Load("../../results.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../report.html")
	if err != nil {
		t.Fatal(err)
	}
	page := html.UnescapeString(string(text))
	if date := r.Date.Format(time.RFC3339); !strings.Contains(page, date) {
		t.Errorf("the page does not have the date %s", date)
	}
	for _, s := range r.Claims {
		c := section{Claim: s}
		for _, want := range []string{`id="` + c.Row + `"`, "<h4>" + c.Name + " <", "<b>" + c.Figure() + "</b>, quartiles " + c.Quartiles()} {
			if !strings.Contains(page, want) {
				t.Errorf("the page has no %s", want)
			}
		}
	}
}
