package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/megaframework/mega/bench/internal/measure"
)

// Horizontal places are shares of the width in percent, so that a plot fits any
// screen and its text keeps its size. Vertical places are pixels.

// strip shows a judged figure beside its target, on a logarithmic axis of the
// cost as a multiple of the target. Left of the target is better.
type strip struct {
	Low, Width, Dot float64
	Missed          bool
}

type tick struct {
	At   float64
	Text string
}

// cost returns how often a figure costs what its target allows, from 0 to
// infinity: differences of measurements may be below zero.
func cost(c measure.Claim, v float64) float64 {
	v = max(v, 0)
	if c.Lower {
		return c.Bound / v
	}
	return v / c.Bound
}

// spanOf returns the multiple of the target at the ends of the axis: the least
// power of two that holds every quartile, 4 or 8.
func spanOf(claims []measure.Claim) float64 {
	span := 4.0
	for _, c := range claims {
		for _, v := range []float64{c.Low, c.High} {
			for c.Bound != 0 && span < 8 && math.Abs(math.Log2(cost(c, v))) > math.Log2(span) {
				span *= 2
			}
		}
	}
	return span
}

// stripAt returns the place of a multiple of the target. A multiple outside the
// axis is at its end.
func stripAt(multiple, span float64) float64 {
	at := math.Log2(multiple) / math.Log2(span)
	return round(50 + 48*max(-1, min(1, at)))
}

func newStrip(c measure.Claim, span float64) *strip {
	if c.Bound == 0 {
		return nil
	}
	a, b := stripAt(cost(c, c.Low), span), stripAt(cost(c, c.High), span)
	return &strip{Low: min(a, b), Width: round(math.Abs(b - a)), Dot: stripAt(cost(c, c.Value), span), Missed: c.Missed()}
}

func stripTicks(span float64) []tick {
	var ticks []tick
	for m := 2.0; m <= span; m *= 2 {
		ticks = append(ticks, tick{stripAt(1/m, span), "1/" + grouped(m)}, tick{stripAt(m, span), grouped(m) + " ×"})
	}
	return append(ticks, tick{stripAt(1, span), "target"})
}

// bar is the median of a contestant.
type bar struct {
	measure.Figure
	Mega  bool
	Width float64
}

// newBars returns the medians of all contestants, from zero to the largest; none
// if there is no other contestant.
func newBars(c measure.Claim) []bar {
	if len(c.Others) == 0 {
		return nil
	}
	bars := []bar{{Figure: measure.Figure{Name: measure.Mega, Value: c.Mega}, Mega: true}}
	for _, o := range c.Others {
		bars = append(bars, bar{Figure: o})
	}
	var top float64
	for _, b := range bars {
		top = max(top, b.Value)
	}
	for i := range bars {
		if top > 0 {
			bars[i].Width = max(round(100*bars[i].Value/top), 0.3) // the least that is seen
		}
	}
	return bars
}

// plot shows curves. Its axes are logarithmic where the figures differ by more
// than a factor of eight.
type plot struct {
	Over, Unit   string
	X, Y         []tick
	Lines        []line
	Height, Base float64
	Log          bool // the vertical axis
}

type line struct {
	Name     string
	Class    string // colour and mark
	Points   []measure.Point
	Marks    []mark
	Segments []segment
}

type mark struct{ X, Y float64 }

type segment struct{ X1, Y1, X2, Y2 float64 }

// The frame of a plot.
const (
	plotTop    = 16.0
	plotBase   = 196.0
	plotHeight = 224.0
	plotLeft   = 14.0
	plotRight  = 96.0
)

func newPlot(c measure.Claim) *plot {
	var xs, ys []float64
	for _, l := range c.Curves {
		for _, p := range l.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	if len(xs) == 0 {
		return nil
	}
	x, y := newAxis(xs, plotLeft, plotRight), newAxis(ys, plotBase, plotTop)
	if counts := distinct(xs); len(counts) <= 6 {
		x = x.through(counts)
	}
	p := &plot{Over: c.Axis, Unit: c.Unit, X: x.ticks(), Y: y.ticks(), Height: plotHeight, Base: plotBase, Log: y.log}
	for i, l := range c.Curves {
		drawn := line{Name: l.Name, Class: fmt.Sprintf("k%d", i%4), Points: l.Points}
		for j, q := range l.Points {
			m := mark{x.at(q.X), y.at(q.Y)}
			if j > 0 {
				before := drawn.Marks[j-1]
				drawn.Segments = append(drawn.Segments, segment{before.X, before.Y, m.X, m.Y})
			}
			drawn.Marks = append(drawn.Marks, m)
		}
		p.Lines = append(p.Lines, drawn)
	}
	return p
}

// axis maps figures to places.
type axis struct {
	from, to float64 // places
	low, top float64 // figures
	log      bool
	values   []float64 // of the ticks
}

func newAxis(values []float64, from, to float64) axis {
	low, top := slices.Min(values), slices.Max(values)
	a := axis{from: from, to: to, log: low > 0 && top/low > 8}
	if a.log {
		a.low, a.top = roundFloor(low), roundCeil(top)
		for v := a.low; v <= a.top*1.001; v = roundCeil(v * 1.1) {
			a.values = append(a.values, v)
		}
		if a.top/a.low > 100 { // powers of ten are enough
			a.values = slices.DeleteFunc(a.values, func(v float64) bool { return math.Abs(math.Remainder(math.Log10(v), 1)) > 0.01 })
		}
		return a
	}
	a.low, a.top = min(low, 0), max(roundCeil(top), 0)
	if a.low < 0 {
		a.low = -roundCeil(-low)
	}
	if a.top == a.low {
		a.top = a.low + 1
	}
	for i := range 5 {
		a.values = append(a.values, a.low+(a.top-a.low)*float64(i)/4)
	}
	return a
}

// through makes the axis run from the first to the last of the values, with a
// tick at each.
func (a axis) through(values []float64) axis {
	if len(values) > 1 {
		a.low, a.top = values[0], values[len(values)-1]
	}
	a.values = values
	return a
}

func (a axis) at(v float64) float64 {
	share := (v - a.low) / (a.top - a.low)
	if a.log {
		share = math.Log(v/a.low) / math.Log(a.top/a.low)
	}
	return round(a.from + (a.to-a.from)*share)
}

func (a axis) ticks() []tick {
	ticks := make([]tick, len(a.values))
	for i, v := range a.values {
		ticks[i] = tick{a.at(v), compact(v)}
	}
	return ticks
}

// compact formats a figure of an axis.
func compact(v float64) string {
	switch {
	case v >= 1e6:
		return grouped(v/1e6) + " M"
	case v >= 1e4:
		return grouped(v/1e3) + " k"
	}
	return grouped(v)
}

// roundCeil returns the least of 1, 2, 5, 10, 20, 50 … that is not below v.
func roundCeil(v float64) float64 {
	if v <= 0 {
		return 0
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*power*1.0001 {
			return m * power
		}
	}
	return 10 * power
}

// roundFloor returns the greatest of these that is not above v.
func roundFloor(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if v >= m*power*0.9999 {
			return m * power
		}
	}
	return power
}

func distinct(values []float64) []float64 {
	sorted := slices.Sorted(slices.Values(values))
	return slices.Compact(sorted)
}

// round keeps the page short: a hundredth of a percent or pixel is not seen.
func round(v float64) float64 { return math.Round(100*v) / 100 }
