package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/megaframework/mega/internal/testkit/history"
)

const (
	leader = "leader" // the key of the campaigns
	ticker = "ticker" // the key of the runs
	// every is the interval of the runs. Some runs are longer.
	every = 50 * time.Millisecond
)

// errTerm is the error of a term that ends with one, after which its process
// pauses.
var errTerm = errors.New("the term has failed")

// leadAll campaigns until ctx ends. A term ends after a while, some with an error,
// and some do not notice the end of their context for a moment.
func (w *Worker) leadAll(ctx context.Context, client *history.Client) {
	for ctx.Err() == nil {
		err := client.Lead(ctx, leader, func(ctx context.Context) error {
			w.tally.granted()
			pause(ctx, time.Duration(rand.IntN(100))*time.Millisecond)
			switch rand.IntN(8) {
			case 0:
				return errTerm
			case 1:
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			}
			return nil
		})
		w.campaigned(ctx, "lead", err)
	}
}

// runAll runs the work of each tick, if it is this process's turn, until ctx ends.
func (w *Worker) runAll(ctx context.Context, client *history.Client) {
	err := client.Every(ctx, ticker, every, func(ctx context.Context) error {
		w.tally.granted()
		if rand.IntN(8) == 0 { // the ticks meanwhile are skipped
			pause(ctx, 3*every)
		}
		return nil
	})
	w.campaigned(ctx, "every", err)
}

// campaigned counts the error of a campaign that did not end with ctx.
func (w *Worker) campaigned(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		w.tally.failed(what, err)
	}
}
