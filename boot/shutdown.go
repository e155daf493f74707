package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The shutdown: no longer ready, wait for those who send requests to notice,
// then the phases of the lifecycle. All of it is inside shutdown.timeout.

// unwindBudget is for ending a boot that failed before there was a
// configuration to say how long that may take.
const unwindBudget = hookBudget

// longBudget is that of what is bounded by the whole shutdown alone.
const longBudget = 24 * time.Hour

// shutdown ends the program and returns what had to be cut off.
func (b *booting) shutdown() error {
	began := time.Now()
	b.probes.end()
	c := b.config.Shutdown
	if delay := min(c.Delay, c.Timeout/2); delay > 0 && !b.othersServe() { // half: else no time would be left for anything
		b.log.Info("going away", "after", delay)
		for _, s := range b.servers {
			s.conns.ending.Store(true)
		}
		time.Sleep(delay)
	}
	return b.life.stop(began, c.Timeout)
}

// unwind ends what a boot has begun that did not come to its end.
func (b *booting) unwind() error {
	b.probes.end()
	budget := unwindBudget
	if b.config != nil {
		budget = b.config.Shutdown.Timeout
	}
	return b.life.stop(time.Now(), budget)
}

// intake ends all servers of apps side by side.
func (b *booting) intake(ctx context.Context) error {
	errs := make([]error, len(b.servers))
	var wg sync.WaitGroup
	for i, s := range b.servers {
		wg.Go(func() { errs[i] = s.drain(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// background waits for what ctx.Go has started.
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

// cutOff is what a shutdown did not wait for any longer.
func cutOff(of string, what, held []string) error {
	text := fmt.Sprintf("%s: cut off %d in flight: %s", of, len(what), strings.Join(what, ", "))
	if len(held) > 0 {
		text += "; locks held: " + strings.Join(held, ", ")
	}
	return errors.New(text)
}
