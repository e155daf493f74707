package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
)

// The ways to race.
const (
	raceLock = "lock"
	raceNone = "none" // without a lock
	raceFIFO = "fifo" // in the order of the requests, across all processes
)

// RaceInput describes a race.
type RaceInput struct {
	Buyers int    `json:"buyers"`
	Way    string `json:"way"`
}

// maxBuyers bounds the buyers of a race.
const maxBuyers = 200

// Validate reports invalid fields.
func (in *RaceInput) Validate() error {
	wrong := mega.FieldErrors{}
	if in.Buyers < 2 || in.Buyers > maxBuyers {
		wrong["buyers"] = fmt.Sprintf("has to be 2 to %d", maxBuyers)
	}
	if in.Way != raceLock && in.Way != raceNone && in.Way != raceFIFO {
		wrong["way"] = fmt.Sprintf("has to be %s, %s or %s", raceLock, raceNone, raceFIFO)
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

// raceResult is the outcome of a race. Each buyer wants one piece, and there are
// half as many pieces as buyers.
type raceResult struct {
	Way      string    `json:"way"`
	Buyers   int       `json:"buyers"`
	Pieces   int       `json:"pieces"`
	Sold     int       `json:"sold"`
	Oversold int       `json:"oversold"`
	Wait     histogram `json:"wait"`
	Hold     histogram `json:"hold"`
}

// Race has buyers of this process compete for one product, and shows the result.
func (l *LockPage) Race(ctx *mega.Ctx) error {
	in := RaceInput{Buyers: 40, Way: raceLock}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	result, err := race(ctx, in)
	if err != nil {
		return err
	}
	return l.show(ctx, "", result)
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

func race(ctx *mega.Ctx, in RaceInput) (*raceResult, error) {
	s := &shelf{}
	pieces := in.Buyers / 2
	s.stock.Store(int64(pieces))
	waits, holds, errs := make([]time.Duration, in.Buyers), make([]time.Duration, in.Buyers), make([]error, in.Buyers)
	var start, buyers sync.WaitGroup
	start.Add(1)
	for i := range in.Buyers {
		buyers.Go(func() {
			start.Wait()
			asked := time.Now()
			errs[i] = exclusively(ctx, in.Way, func() {
				got := time.Now()
				s.buy()
				waits[i], holds[i] = got.Sub(asked), time.Since(got)
			})
		})
	}
	start.Done()
	buyers.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	sold := int(s.sold.Load())
	return &raceResult{in.Way, in.Buyers, pieces, sold, max(sold-pieces, 0), newHistogram("Wait for the lock", waits), newHistogram("Time with the lock", holds)}, nil
}

// exclusively runs fn in the way of a race.
func exclusively(ctx *mega.Ctx, way string, fn func()) error {
	if way == raceNone {
		fn()
		return nil
	}
	opts := []lock.Option{lock.Wait(jobWait)}
	if way == raceFIFO {
		opts = append(opts, lock.FIFO())
	}
	return ctx.Lock.With("race", func(*mega.Ctx) error { fn(); return nil }, opts...)
}

// histogram is the number of buyers by a time.
type histogram struct {
	Name   string `json:"-"`
	Buyers int    `json:"-"`
	Bars   []bar  `json:"bars"`
}

// bar is the number of buyers up to a time, above the bar before it.
type bar struct {
	UpTo  string `json:"up_to"`
	Count int    `json:"count"`
}

// newHistogram counts times by the bound that they do not exceed. Each bound is
// twice the one before it.
func newHistogram(name string, times []time.Duration) histogram {
	const bounds = 11 // from 1 ms to 1.024 s
	h := histogram{Name: name, Buyers: len(times), Bars: make([]bar, bounds+1)}
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
