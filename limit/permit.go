package limit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

// Permit is what a Wait has been granted. Its methods may be called
// concurrently.
type Permit struct {
	limiter  *Limiter
	key      string
	rates    []Rate
	cost     int
	at       time.Time
	degraded bool
	slot     slot
	settled  atomic.Bool
}

// At returns the time of the grant on the backend's clock.
func (p *Permit) At() time.Time { return p.at }

// Cost returns the number of units that were granted.
func (p *Permit) Cost() int { return p.cost }

// Degraded reports that the backend did not answer, and that the Outage of the
// limit has allowed the call.
func (p *Permit) Degraded() bool { return p.degraded }

// Settle corrects the units of the grant to the number that was used, and gives
// the slot of Concurrent back. Fewer units are returned to the windows of the
// grant, from which later callers can have them; more are a debt that delays
// later grants. The end of ctx does not prevent a Settle, which has a timeout of
// a second.
//
// The first Settle or Cancel counts, and later ones return nil. After an error
// that wraps ErrUnavailable the grant may be settled or not, and is not settled
// again. If the slot was lost, Settle returns lock.ErrLost. For a permit that is
// Degraded it only gives the slot back. If actual is not 0 to MaxN, it returns
// ErrInvalid and changes nothing.
func (p *Permit) Settle(ctx context.Context, actual int) error {
	if actual < 0 || actual > MaxN {
		return fmt.Errorf("settle %q: %w", p.key, invalidOption("the actual cost is %d, want 0 to %d", actual, MaxN))
	}
	if p.settled.Swap(true) {
		return nil
	}
	err := p.settle(ctx, actual)
	if lost := p.slot.release(); err == nil {
		err = lost
	}
	if err != nil {
		return fmt.Errorf("settle %q: %w", p.key, err)
	}
	return nil
}

// Cancel is Settle with 0: it returns all units.
func (p *Permit) Cancel(ctx context.Context) error { return p.Settle(ctx, 0) }

func (p *Permit) settle(ctx context.Context, actual int) error {
	if p.degraded || actual == p.cost {
		return nil
	}
	l := p.limiter
	ctx = context.WithoutCancel(ctx)
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	s := driver.Settlement{Key: p.key, Rates: p.rates, At: p.at, Cost: p.cost, Actual: actual}
	err := l.driver.Settle(bounded, s)
	l.changed(p.key)
	if err != nil {
		err = l.classify(ctx, err, driver.CallTimeout)
		l.health.failed(ctx, err)
		return err
	}
	l.counters.settled.Add(1)
	l.observe(Settled{Key: p.key, Cost: p.cost, Actual: actual})
	return nil
}
