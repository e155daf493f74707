package console

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/lock"
)

// The size of a plot, in units of its own; the style sheet scales it.
const (
	plotWidth  = 300
	plotHeight = 60
)

// plot is a line over the last minutes, as SVG.
type plot struct {
	Title string
	Now   string
	Most  string
	Line  string // the points of a polyline
	Area  string // the points of the polygon below it
	Empty bool   // there is nothing to show yet
}

// plotOf returns the plot of a series. text formats one of its numbers.
func plotOf(title string, series []float64, text func(float64) string) plot {
	p := plot{Title: title, Empty: len(series) == 0, Now: "–", Most: "–"}
	if p.Empty {
		return p
	}
	most := slices.Max(series)
	p.Now, p.Most = text(series[len(series)-1]), text(most)
	var line strings.Builder
	for i, v := range series {
		x := plotWidth - float64(len(series)-1-i)*plotWidth/(points-1)
		y := plotHeight - 1 - v/max(most, math.SmallestNonzeroFloat64)*(plotHeight-4)
		fmt.Fprintf(&line, "%.1f,%.1f ", x, y)
	}
	p.Line = strings.TrimSpace(line.String())
	first := plotWidth - float64(len(series)-1)*plotWidth/(points-1)
	p.Area = fmt.Sprintf("%.1f,%d %s %d,%d", first, plotHeight, p.Line, plotWidth, plotHeight)
	return p
}

// seconds is the text of a duration in a series.
func seconds(v float64) string { return short(time.Duration(v)) }

func (h *history) lockPlots() []plot {
	return []plot{
		plotOf("Acquired per second", h.series(func(p point) float64 { return p.acquired }), rateText),
		plotOf("Found busy per second", h.series(func(p point) float64 { return p.contended }), rateText),
		plotOf("Waiting calls", h.series(func(p point) float64 { return p.waiting }), rateText),
		plotOf("Wait, 99 %", h.series(func(p point) float64 { return float64(p.slow) }), seconds),
	}
}

// bars is a histogram of durations, as SVG.
type bars struct {
	Title  string
	Count  uint64
	Median string
	Slow   string
	Bars   []bar
}

// bar is one bucket. X and Width are in units of the plot, as Height, which
// grows upwards from the bottom.
type bar struct {
	X, Y, Width, Height float64
	Title               string
}

// barsOf returns the plot of the buckets between the first and the last one that
// is not empty.
func barsOf(title string, h lock.Histogram) bars {
	b := bars{Title: title, Count: h.Count(), Median: "–", Slow: "–"}
	if b.Count == 0 {
		return b
	}
	b.Median, b.Slow = "< "+short(h.Quantile(0.5)), "< "+short(h.Quantile(0.99))
	filled := func(n uint64) bool { return n > 0 }
	first := slices.IndexFunc(h.Counts[:], filled)
	last := first
	for i, n := range h.Counts {
		if n > 0 {
			last = i
		}
	}
	most := slices.Max(h.Counts[:])
	width := float64(plotWidth) / float64(max(last-first+1, 8))
	for i := first; i <= last; i++ {
		height := float64(h.Counts[i]) / float64(most) * (plotHeight - 2)
		if h.Counts[i] > 0 {
			height = max(height, 1.5)
		}
		b.Bars = append(b.Bars, bar{
			X: float64(i-first)*width + 0.5, Y: plotHeight - height, Width: width - 1, Height: height,
			Title: fmt.Sprintf("%s: %s", bucket(i), count(h.Counts[i])),
		})
	}
	return b
}

// bucket returns the bounds of a bucket.
func bucket(i int) string {
	switch {
	case i == 0:
		return "below " + short(lock.BucketBound(0))
	case i >= lock.Buckets-1:
		return "from " + short(lock.BucketBound(lock.Buckets-2))
	}
	return short(lock.BucketBound(i-1)) + " to " + short(lock.BucketBound(i))
}

func (h *history) busPlots() []plot {
	return []plot{
		plotOf("Published per second", h.series(func(p point) float64 { return p.published }), rateText),
		plotOf("Received per second", h.series(func(p point) float64 { return p.received }), rateText),
		plotOf("Waiting messages", h.series(func(p point) float64 { return p.pending }), rateText),
		plotOf("Dropped or missed per second", h.series(func(p point) float64 { return p.dropped }), rateText),
	}
}
