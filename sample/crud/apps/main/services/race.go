package services

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
)

// The ways to race.
const (
	RaceLock = "lock"
	RaceNone = "none" // without a lock
	RaceFIFO = "fifo" // in the order of the requests, across all processes
)

// RaceResult is the outcome of a race. Each buyer wants one piece, and there are
// half as many pieces as buyers.
type RaceResult struct {
	RaceProgress
	Peak  int           `json:"peak"` // the highest number of buyers that worked at once
	Wait  Histogram     `json:"wait"`
	Hold  Histogram     `json:"hold"`
	Turns []RaceTurn    `json:"-"` // by buyer
	Took  time.Duration `json:"-"`
}

// RaceTurn is when a buyer asked, began to work and was done, since the start of
// the race.
type RaceTurn struct{ Asked, Began, Done time.Duration }

// The picture of a race: a row of 5 for each buyer, and 1000 for its time.
const rowHeight, pictureWidth = 5, 1000

// RaceRow is a turn in the picture.
type RaceRow struct{ Y, Asked, Wait, Began, Work int }

// Rows returns the turns in the order in which the buyers asked.
func (r *RaceResult) Rows() (rows []RaceRow) {
	at := func(d time.Duration) int { return int(d * pictureWidth / max(r.Took, 1)) }
	turns := slices.SortedStableFunc(slices.Values(r.Turns), func(a, b RaceTurn) int { return cmp.Compare(a.Asked, b.Asked) })
	for i, t := range turns {
		rows = append(rows, RaceRow{i * rowHeight, at(t.Asked), at(t.Began) - at(t.Asked), at(t.Began), max(at(t.Done)-at(t.Began), 1)})
	}
	return rows
}

// Height returns the height of the picture.
func (r *RaceResult) Height() int { return rowHeight * len(r.Turns) }

// RaceProgress is the state of a race.
type RaceProgress struct {
	Way      string `json:"way"`
	Buyers   int    `json:"buyers"`
	Pieces   int    `json:"pieces"`
	Waiting  int    `json:"waiting"`
	Working  int    `json:"working"` // holders of the lock, if there is one
	Sold     int    `json:"sold"`
	Oversold int    `json:"oversold"`
}

// RaceProgresses is the topic of RaceProgress. The process with the race publishes
// it, and every process shows it on its pages.
const RaceProgresses = bus.Topic[RaceProgress]("demo.race")

// race is a race that is running.
type race struct {
	way            string
	work           time.Duration // between the reading of the stock and its writing
	stock          atomic.Int64
	waiting, sold  atomic.Int64
	working, peak  atomic.Int64
	buyers, pieces int
}

// buy reads the stock, works, and writes the stock, as with a database. Each access
// is safe; the two together are not.
func (r *race) buy() {
	n := r.working.Add(1)
	for p := r.peak.Load(); n > p && !r.peak.CompareAndSwap(p, n); p = r.peak.Load() {
	}
	defer r.working.Add(-1)
	stock := r.stock.Load()
	time.Sleep(r.work)
	if stock > 0 {
		r.stock.Store(stock - 1)
		r.sold.Add(1)
	}
}

func (r *race) progress() RaceProgress {
	sold := int(r.sold.Load())
	return RaceProgress{r.way, r.buyers, r.pieces, int(r.waiting.Load()), int(r.working.Load()), sold, max(sold-r.pieces, 0)}
}

// Race has buyers of this process compete for one product.
func Race(ctx *mega.Ctx, buyers int, work time.Duration, way string) (*RaceResult, error) {
	r := &race{way: way, work: work, buyers: buyers, pieces: buyers / 2}
	r.stock.Store(int64(r.pieces))
	r.waiting.Store(int64(buyers))
	turns, errs := make([]RaceTurn, buyers), make([]error, buyers)
	over := make(chan struct{})
	var reporter, all sync.WaitGroup
	reporter.Go(func() { r.report(ctx, over) })
	began := time.Now()
	for i := range buyers {
		all.Go(func() {
			turn := &turns[i]
			turn.Asked = time.Since(began)
			errs[i] = r.exclusively(ctx, func() {
				r.waiting.Add(-1)
				turn.Began = time.Since(began)
				r.buy()
				turn.Done = time.Since(began)
			})
		})
	}
	all.Wait()
	close(over)
	reporter.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return r.result(turns), nil
}

func (r *race) result(turns []RaceTurn) *RaceResult {
	result := &RaceResult{RaceProgress: r.progress(), Peak: int(r.peak.Load()), Turns: turns}
	waits, holds := make([]time.Duration, len(turns)), make([]time.Duration, len(turns))
	for i, t := range turns {
		waits[i], holds[i] = t.Began-t.Asked, t.Done-t.Began
		result.Took = max(result.Took, t.Done)
	}
	result.Wait, result.Hold = newHistogram("locks.race.wait", waits), newHistogram("locks.race.hold", holds)
	return result
}

// report publishes the progress until the race is over, and then its end.
func (r *race) report(ctx *mega.Ctx, over <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-tick.C:
		case <-over:
			ended = true
		case <-ctx.Done():
			return
		}
		if err := mega.Publish(ctx, RaceProgresses, r.progress()); err != nil {
			ctx.Log.Error("race not published", "error", err)
			return
		}
	}
}

// exclusively runs fn in the way of the race.
func (r *race) exclusively(ctx *mega.Ctx, fn func()) error {
	if r.way == RaceNone {
		fn()
		return nil
	}
	opts := []lock.Option{lock.Wait(JobWait)}
	if r.way == RaceFIFO {
		opts = append(opts, lock.FIFO())
	}
	return ctx.Lock.With("race", func(*mega.Ctx) error { fn(); return nil }, opts...)
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
