package services

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega"
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
	Way      string    `json:"way"`
	Buyers   int       `json:"buyers"`
	Pieces   int       `json:"pieces"`
	Sold     int       `json:"sold"`
	Oversold int       `json:"oversold"`
	Wait     Histogram `json:"wait"`
	Hold     Histogram `json:"hold"`
}

// shelf is a product whose stock is read and written back, as by a database.
// Each access is safe; the two together are not.
type shelf struct{ stock, sold atomic.Int64 }

// raceWork is the time between the reading of the stock and its writing.
const raceWork = time.Millisecond

func (s *shelf) buy() {
	stock := s.stock.Load()
	time.Sleep(raceWork)
	if stock > 0 {
		s.stock.Store(stock - 1)
		s.sold.Add(1)
	}
}

// Race has buyers of this process compete for one product.
func Race(ctx *mega.Ctx, buyers int, way string) (*RaceResult, error) {
	s := &shelf{}
	pieces := buyers / 2
	s.stock.Store(int64(pieces))
	waits, holds, errs := make([]time.Duration, buyers), make([]time.Duration, buyers), make([]error, buyers)
	var start, all sync.WaitGroup
	start.Add(1)
	for i := range buyers {
		all.Go(func() {
			start.Wait()
			asked := time.Now()
			errs[i] = exclusively(ctx, way, func() {
				got := time.Now()
				s.buy()
				waits[i], holds[i] = got.Sub(asked), time.Since(got)
			})
		})
	}
	start.Done()
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	sold := int(s.sold.Load())
	return &RaceResult{way, buyers, pieces, sold, max(sold-pieces, 0), newHistogram("Wait for the lock", waits), newHistogram("Time with the lock", holds)}, nil
}

// exclusively runs fn in the way of a race.
func exclusively(ctx *mega.Ctx, way string, fn func()) error {
	if way == RaceNone {
		fn()
		return nil
	}
	opts := []lock.Option{lock.Wait(JobWait)}
	if way == RaceFIFO {
		opts = append(opts, lock.FIFO())
	}
	return ctx.Lock.With("race", func(*mega.Ctx) error { fn(); return nil }, opts...)
}

// Histogram is the number of buyers by a time.
type Histogram struct {
	Name   string `json:"-"`
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
