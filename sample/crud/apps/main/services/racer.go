package services

import (
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
)

// Racer is a buyer of a race. It runs in one of the processes that share the
// messages, and reports each of its steps to the process with the race.
type Racer struct {
	Number int           `json:"number"`
	Way    string        `json:"way"`
	Work   time.Duration `json:"work"` // between the reading of the stock and its writing
	Shop   string        `json:"shop"` // the subject of the steps
}

// Racers is the topic of Racer. The processes share the buyers as the group RacerGroup.
const (
	Racers     = bus.Topic[Racer]("demo.racer")
	RacerGroup = "demo-racers"
)

// raceKey is the lock that the buyers compete for.
const raceKey = "race"

// RaceProcess is a process of a race.
type RaceProcess struct {
	Worker int `json:"worker,omitempty"` // its number, under a supervisor
	PID    int `json:"pid"`
}

func thisProcess() RaceProcess {
	n, _ := strconv.Atoi(os.Getenv("MEGA_WORKER_ID")) // 0 without a supervisor
	return RaceProcess{n, os.Getpid()}
}

// raceStep is a step of a buyer.
type raceStep struct {
	RaceProcess
	Number int    `json:"number"`
	Did    string `json:"did"`
	Stock  int    `json:"stock"` // that is written
}

// raceStock is the answer to a step.
type raceStock struct {
	Stock int `json:"stock"`
}

// The steps of a buyer.
const (
	didAsk   = "ask"
	didRead  = "read"  // the stock, with the lock
	didWrite = "write" // the stock
	didFail  = "fail"
)

// OnRacer has a buyer buy in this process.
func OnRacer(ctx *mega.Ctx, r Racer) error {
	ctx.Go("race", func(ctx *mega.Ctx) error {
		err := r.run(ctx)
		if errors.Is(err, bus.ErrNoResponders) {
			return nil // the process with the race is gone, or has ended the race
		}
		return err
	})
	return nil
}

func (r Racer) run(ctx *mega.Ctx) error {
	if _, err := r.step(ctx, didAsk, 0); err != nil {
		return err
	}
	err := r.exclusively(ctx, r.buy)
	if err != nil {
		_, failed := r.step(ctx, didFail, 0)
		err = errors.Join(err, failed)
	}
	return err
}

// buy reads the stock, works, and writes the stock, as with a database. Each access
// is safe; the two together are not.
func (r Racer) buy(ctx *mega.Ctx) error {
	stock, err := r.step(ctx, didRead, 0)
	if err != nil {
		return err
	}
	time.Sleep(r.Work)
	_, err = r.step(ctx, didWrite, stock-1)
	return err
}

// step reports a step and returns the stock.
func (r Racer) step(ctx *mega.Ctx, did string, stock int) (int, error) {
	answer, err := mega.Call[raceStep, raceStock](ctx, r.Shop, raceStep{thisProcess(), r.Number, did, stock})
	return answer.Stock, err
}

// exclusively runs fn in the way of the race.
func (r Racer) exclusively(ctx *mega.Ctx, fn func(*mega.Ctx) error) error {
	if r.Way == RaceNone {
		return fn(ctx)
	}
	opts := []lock.Option{lock.Wait(JobWait), lock.TTL(demoTTL)}
	if r.Way == RaceFIFO {
		opts = append(opts, lock.FIFO())
	}
	return ctx.Lock.With(raceKey, fn, opts...)
}
