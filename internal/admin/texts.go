package admin

import (
	"time"

	"github.com/megaframework/mega/lock"
)

// Durations in JSON are numbers of nanoseconds, for machines. The views add
// each of them as text, for people.

// entryView is an Entry as the views show it. It is no method of Entry, because
// the fields of a struct that embeds one would be lost.
type entryView struct {
	lock.State
	Holders []heldView    `json:"holders"`
	Waiters []lock.Holder `json:"waiters"`
	LastRun *ranView      `json:"last_run,omitempty"`
	Waiting int           `json:"waiting"`
	Pool    *lock.Tally   `json:"pool,omitempty"`
}

type heldView struct {
	lock.Holding
	LeftText string `json:"left_text"`
}

type ranView struct {
	lock.Run
	EveryText string `json:"every_text,omitempty"`
}

func newEntryView(s lock.State, shown int) entryView {
	e := NewEntry(s, shown)
	v := entryView{State: e.State, Holders: []heldView{}, Waiters: e.Waiters, Waiting: e.Waiting, Pool: e.Pool}
	for _, h := range e.Holders {
		v.Holders = append(v.Holders, heldView{h, h.Left.Round(time.Millisecond).String()})
	}
	if run := e.LastRun; run != nil {
		v.LastRun = &ranView{Run: *run}
		if run.Every != 0 {
			v.LastRun.EveryText = run.Every.String()
		}
	}
	return v
}

// listingView is a Listing as the views show it.
type listingView struct {
	Locks     []entryView `json:"locks"`
	Total     int         `json:"total"`
	Truncated bool        `json:"truncated"`
}

func newListingView(states []lock.State, most int) listingView {
	v := listingView{Locks: []entryView{}, Total: len(states), Truncated: len(states) > most}
	for _, s := range states[:min(len(states), most)] {
		v.Locks = append(v.Locks, newEntryView(s, shownWaiters))
	}
	return v
}

// statsView is lock.Stats with the bounds of its histograms.
type statsView struct {
	lock.Stats
	Wait histogramView `json:"wait"`
	Hold histogramView `json:"hold"`
}

// histogramView is a histogram with the upper bounds of its buckets. The last
// bucket has none.
type histogramView struct {
	lock.Histogram
	SumText    string          `json:"sum_text"`
	Bounds     []time.Duration `json:"bounds"`
	BoundsText []string        `json:"bounds_text"`
}

func newStatsView(s lock.Stats) statsView {
	return statsView{s, newHistogramView(s.Wait), newHistogramView(s.Hold)}
}

func newHistogramView(h lock.Histogram) histogramView {
	v := histogramView{Histogram: h, SumText: h.Sum.String()}
	for i := range lock.Buckets - 1 {
		bound := lock.BucketBound(i)
		v.Bounds, v.BoundsText = append(v.Bounds, bound), append(v.BoundsText, bound.String())
	}
	return v
}
