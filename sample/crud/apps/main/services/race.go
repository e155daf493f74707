package services

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
)

// The ways to race.
const (
	RaceLock = "lock"
	RaceNone = "none" // without a lock
	RaceFIFO = "fifo" // in the order of the requests, across all processes
)

// RaceProgress is the state of a race. Each buyer wants one piece, and there are
// half as many pieces as buyers.
type RaceProgress struct {
	Way       string      `json:"way"`
	Buyers    int         `json:"buyers"`
	Pieces    int         `json:"pieces"`
	Waiting   int         `json:"waiting"`
	Working   int         `json:"working"` // holders of the lock, if there is one
	Sold      int         `json:"sold"`
	Oversold  int         `json:"oversold"`
	Failed    int         `json:"failed"` // buyers whose process is gone, or who did not get the lock
	Processes []RaceShare `json:"processes"`
}

// RaceShare is the part of a process in a race.
type RaceShare struct {
	RaceProcess
	Buyers  int `json:"buyers"`
	Working int `json:"working"`
	Done    int `json:"done"`
	Sold    int `json:"sold"`
}

// RaceProgresses is the topic of RaceProgress. The process with the race publishes
// it, and every process shows it on its pages.
const RaceProgresses = bus.Topic[RaceProgress]("demo.race")

// RaceTurn is when a buyer asked, began to work and was done, since the start of
// the race, in the time of the process with the race.
type RaceTurn struct {
	RaceProcess
	Asked, Began, Done time.Duration
	did                string // the last step, or ""
	sold               bool
}

func (t RaceTurn) over() bool { return t.did == didWrite || t.did == didFail }

// race is a race that is running. Its stock is a number in the memory of this process,
// which the buyers of all processes read and write by messages.
type race struct {
	way    string
	pieces int
	began  time.Time

	mu     sync.Mutex // guards the fields below
	stock  int
	peak   int
	turns  []RaceTurn // by buyer
	newest time.Time  // of the steps
}

// raceSilence ends a race without a step for so long. It is longer than the lock of
// a process that was killed.
const raceSilence = 5 * demoTTL

// Race has buyers compete for one product, in all processes that share the messages.
func Race(ctx *mega.Ctx, buyers int, work time.Duration, way string) (*RaceResult, error) {
	now := time.Now()
	r := &race{way: way, pieces: buyers / 2, stock: buyers / 2, began: now, newest: now, turns: make([]RaceTurn, buyers)}
	shop := "demo.shop." + rand.Text()
	sub, err := ctx.Bus.Respond(shop, r.onStep)
	if err != nil {
		return nil, err
	}
	defer sub.Stop()
	for i := range buyers {
		if err := mega.Publish(ctx, Racers, Racer{i, way, work, shop}); err != nil {
			return nil, err
		}
	}
	if err := r.report(ctx); err != nil {
		return nil, err
	}
	return r.result(), nil
}

// onStep records a step of a buyer and answers with the stock.
func (r *race) onStep(_ *mega.Ctx, m *bus.Msg) (any, error) {
	var s raceStep
	if err := m.Decode(&s); err != nil {
		return nil, err
	}
	if s.Number < 0 || s.Number >= len(r.turns) {
		return nil, fmt.Errorf("the race has no buyer %d", s.Number)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = time.Now()
	turn, now := &r.turns[s.Number], time.Since(r.began)
	turn.RaceProcess, turn.did = s.RaceProcess, s.Did
	switch s.Did {
	case didAsk:
		turn.Asked = now
	case didRead:
		turn.Began = now
		r.peak = max(r.peak, r.working())
	case didWrite:
		turn.Done = now
		if turn.sold = s.Stock >= 0; turn.sold {
			r.stock = s.Stock
		}
	}
	return raceStock{r.stock}, nil
}

// working returns the number of buyers that work. The caller holds mu.
func (r *race) working() (n int) {
	for _, t := range r.turns {
		if t.did == didRead {
			n++
		}
	}
	return n
}

// report publishes the progress until the race is over, and then its end.
func (r *race) report(ctx *mega.Ctx) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		p, over := r.progress()
		if err := mega.Publish(ctx, RaceProgresses, p); err != nil || over {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// progress returns the state of the race, and whether it is over. Buyers that are
// silent at its end have failed.
func (r *race) progress() (p RaceProgress, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	over = time.Since(r.newest) > raceSilence || !slices.ContainsFunc(r.turns, func(t RaceTurn) bool { return !t.over() })
	p = RaceProgress{Way: r.way, Buyers: len(r.turns), Pieces: r.pieces, Processes: []RaceShare{}}
	for i, t := range r.turns {
		if over && !t.over() {
			t.did = didFail
			r.turns[i].did = didFail
		}
		p.count(t)
	}
	p.Oversold = max(p.Sold-p.Pieces, 0)
	slices.SortFunc(p.Processes, func(a, b RaceShare) int { return compareProcesses(a.RaceProcess, b.RaceProcess) })
	return p, over
}

func compareProcesses(a, b RaceProcess) int {
	return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.PID, b.PID))
}

// count adds a turn to the progress.
func (p *RaceProgress) count(t RaceTurn) {
	s := p.share(t.RaceProcess)
	s.Buyers++
	switch t.did {
	case didRead:
		p.Working++
		s.Working++
	case didWrite:
		s.Done++
	case didFail:
		p.Failed++
		s.Done++
	default:
		p.Waiting++
	}
	if t.sold {
		p.Sold++
		s.Sold++
	}
}

// share returns the part of a process. A buyer without one has not reached it.
func (p *RaceProgress) share(of RaceProcess) *RaceShare {
	if of.PID == 0 {
		return &RaceShare{}
	}
	i := slices.IndexFunc(p.Processes, func(s RaceShare) bool { return s.RaceProcess == of })
	if i < 0 {
		i = len(p.Processes)
		p.Processes = append(p.Processes, RaceShare{RaceProcess: of})
	}
	return &p.Processes[i]
}
