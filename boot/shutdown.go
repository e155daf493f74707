package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The shutdown: the process becomes unready, waits until its clients notice,
// and runs the phases of the lifecycle. All of it is within shutdown.timeout.

// unwindBudget is the timeout for ending a boot that failed before the
// configuration was loaded.
const unwindBudget = hookBudget

// longBudget is the budget of steps that only the timeout of the whole shutdown
// limits.
const longBudget = 24 * time.Hour

// shutdown ends the program, and returns an error that names the interrupted
// work.
func (b *booting) shutdown() error {
	began := time.Now()
	b.probes.End()
	c := b.plan.Config.Shutdown
	if delay := min(c.Delay, c.Timeout/2); delay > 0 && !b.line.OthersServe() { // half: the rest is for the phases
		b.log.Info("shutdown delayed", "delay", delay)
		for _, s := range b.servers {
			s.CloseAfterResponse()
		}
		time.Sleep(delay)
	}
	return b.life.stop(began, c.Timeout)
}

// unwind ends everything that an incomplete boot has started.
func (b *booting) unwind() error {
	b.probes.End()
	budget := unwindBudget
	if b.plan != nil {
		budget = b.plan.Config.Shutdown.Timeout
	}
	return b.life.stop(time.Now(), budget)
}

// intake drains all servers of apps concurrently.
func (b *booting) intake(ctx context.Context) error {
	errs := make([]error, len(b.servers))
	var wg sync.WaitGroup
	for i, s := range b.servers {
		wg.Go(func() { errs[i] = s.Drain(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// background waits for the goroutines that ctx.Go has started.
func (b *booting) background(ctx context.Context) error {
	errs := make([]error, len(b.hosts))
	var wg sync.WaitGroup
	for i, h := range b.hosts {
		wg.Go(func() {
			if err := h.Drain(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", cmp.Or(h.App.Name, "shared"), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
