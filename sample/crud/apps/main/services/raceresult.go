package services

import (
	"cmp"
	"slices"
	"time"
)

// RaceResult is the outcome of a race.
type RaceResult struct {
	RaceProgress
	Peak  int           `json:"peak"` // the highest number of buyers that worked at once
	Wait  Histogram     `json:"wait"`
	Hold  Histogram     `json:"hold"`
	Turns []RaceTurn    `json:"-"` // of the buyers that did not fail, in the order in which they asked
	Took  time.Duration `json:"-"`
}

func (r *race) result() *RaceResult {
	p, _ := r.progress()
	r.mu.Lock()
	defer r.mu.Unlock()
	result := &RaceResult{RaceProgress: p, Peak: r.peak}
	var waits, holds []time.Duration
	for _, t := range r.turns {
		if t.did == didWrite {
			waits, holds = append(waits, t.Began-t.Asked), append(holds, t.Done-t.Began)
			result.Turns, result.Took = append(result.Turns, t), max(result.Took, t.Done)
		}
	}
	slices.SortStableFunc(result.Turns, func(a, b RaceTurn) int { return cmp.Compare(a.Asked, b.Asked) })
	result.Wait, result.Hold = newHistogram("locks.race.wait", waits), newHistogram("locks.race.hold", holds)
	return result
}

// The picture of a race: a row of 5 for each buyer, and 1000 for its time. On the
// page all rows together are 192 pixels high, and a process at least 16.
const (
	rowHeight, pictureWidth = 5, 1000
	pageHeight, laneHeight  = 192, 16
)

// RaceLane is the turns of a process in the picture.
type RaceLane struct {
	RaceShare
	Height int // in the units of the picture
	Pixels int // on the page
	Rows   []RaceRow
}

// RaceRow is a turn in the picture.
type RaceRow struct{ Y, Asked, Wait, Began, Work int }

// Lanes returns the turns by process, on the same time line.
func (r *RaceResult) Lanes() (lanes []RaceLane) {
	at := func(d time.Duration) int { return int(d * pictureWidth / max(r.Took, 1)) }
	for _, s := range r.Processes {
		lane := RaceLane{RaceShare: s}
		for _, t := range r.Turns {
			if t.RaceProcess == s.RaceProcess {
				lane.Rows = append(lane.Rows, RaceRow{lane.Height, at(t.Asked), at(t.Began) - at(t.Asked), at(t.Began), max(at(t.Done)-at(t.Began), 1)})
				lane.Height += rowHeight
			}
		}
		lane.Pixels = max(pageHeight*len(lane.Rows)/max(len(r.Turns), 1), laneHeight)
		lanes = append(lanes, lane)
	}
	return lanes
}

// Histogram is the number of buyers by a time.
type Histogram struct {
	Name   string `json:"-"` // a key of the texts
	Buyers int    `json:"-"`
	Bars   []Bar  `json:"bars"`
}

// Bar is the number of buyers up to a time, above the bar before it.
type Bar struct {
	UpTo  string `json:"up_to"`
	Count int    `json:"count"`
}

// newHistogram counts times by the bound that they do not exceed. Each bound is
// twice the one before it.
func newHistogram(name string, times []time.Duration) Histogram {
	const bounds = 11 // from 1 ms to 1.024 s
	h := Histogram{Name: name, Buyers: len(times), Bars: make([]Bar, bounds+1)}
	for i := range bounds {
		h.Bars[i].UpTo = (time.Millisecond << i).String()
	}
	h.Bars[bounds].UpTo = "more"
	for _, t := range times {
		i := 0
		for i < bounds && t > time.Millisecond<<i {
			i++
		}
		h.Bars[i].Count++
	}
	return h
}
