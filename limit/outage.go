package limit

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// decide asks the backend about r. While the backend does not answer, it
// follows the Outage of the limit, and reports that in degraded (W11).
func (l *Limiter) decide(ctx context.Context, c *call, r driver.Request) (a driver.Answer, degraded bool, err error) {
	policy := c.limit.Outage
	if policy == Closed || l.health.lost() == nil {
		a, err = l.take(ctx, r)
		if err == nil || !errors.Is(err, ErrUnavailable) {
			return a, false, err
		}
		l.health.failed(err)
	}
	switch {
	case policy == Closed:
		return a, false, err
	case policy == Open:
		return driver.Answer{Granted: true, At: time.Now(), By: -1, Remaining: c.limit.smallest()}, true, nil
	}
	a, err = l.shares.take(r, float64(policy))
	return a, true, err
}

// shares are the windows in which this process allows its share of each rate.
type shares struct {
	mu     sync.Mutex // guards the fields below
	table  *windows.Table
	closed bool
}

// take asks the process's own windows about the share f of the rates of r.
func (s *shares) take(r driver.Request, f float64) (driver.Answer, error) {
	table, err := s.open()
	if err != nil {
		return driver.Answer{}, err
	}
	rates := make([]Rate, len(r.Rates))
	for i, rate := range r.Rates {
		rates[i] = Rate{N: max(int(f*float64(rate.N)), 1), Per: rate.Per}
		r.Cost = min(r.Cost, rates[i].N) // a larger one could never be allowed
	}
	r.Rates = rates
	return table.Take(&r)
}

// withdraw ends a request that waits for the share.
func (s *shares) withdraw(r *driver.Request) {
	s.mu.Lock()
	table := s.table
	s.mu.Unlock()
	if table != nil {
		_ = table.Withdraw(r) // it fails only when it is closed
	}
}

func (s *shares) open() (*windows.Table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.table == nil {
		base := time.Now()
		s.table = windows.New(func() int64 { return base.UnixMicro() + time.Since(base).Microseconds() })
	}
	return s.table, nil
}

func (s *shares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.table != nil {
		s.table.Close()
	}
}

// health tracks whether the backend answers. A call that fails with
// ErrUnavailable starts a watch, which asks about a scratch key again and again
// until that succeeds. The backend counts as lost only if the scratch key fails
// too: an error of one key concerns only its caller. A backend in the process
// cannot be lost and is not watched.
type health struct {
	limiter *Limiter

	mu       sync.Mutex // guards the fields below
	watching bool
	down     error     // the reason of the loss; nil while the backend answers
	since    time.Time // of down
	before   uint64    // Stats.Degraded at that time
}

// The pauses between the probes of a lost backend.
const (
	probePause    = 100 * time.Millisecond
	probePauseMax = time.Second
)

// failed records the error of a driver call and starts a watch.
func (h *health) failed(err error) {
	if h.limiter.info.Scope == driver.Process || !errors.Is(err, ErrUnavailable) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.watching {
		h.watching = h.limiter.group.Go(h.watch)
	}
}

// lost returns the reason why the backend does not answer, or nil.
func (h *health) lost() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

// watch probes the backend until it answers, and reports the loss and the return
// once each.
func (h *health) watch(ctx context.Context) {
	for pause := probePause; ; pause = min(2*pause, probePauseMax) {
		err := h.probe(ctx)
		if err == nil || ctx.Err() != nil {
			h.returned()
			return
		}
		h.missed(err)
		if !group.Sleep(ctx, pause*4/5+rand.N(pause*2/5)) {
			h.returned()
			return
		}
	}
}

func (h *health) missed(err error) {
	h.mu.Lock()
	first := h.down == nil
	if first {
		h.since, h.before = time.Now(), h.limiter.counters.degraded.Load()
	}
	h.down = err
	h.mu.Unlock()
	if first {
		h.limiter.observe(Unavailable{Err: err})
	}
}

// returned ends the watch.
func (h *health) returned() {
	h.mu.Lock()
	was, lasted, degraded := h.down, time.Since(h.since), h.limiter.counters.degraded.Load()-h.before
	h.watching, h.down = false, nil
	h.mu.Unlock()
	if was != nil && !h.limiter.closed.Load() {
		h.limiter.observe(Available{After: lasted, Degraded: degraded})
	}
}

// probe takes a unit of a scratch key. It writes, because a read would not
// detect a backend that is full or read-only.
func (h *health) probe(ctx context.Context) error {
	l := h.limiter
	_, err := l.take(ctx, driver.Request{Key: "mega.probe:" + l.ticket, Rates: []Rate{{N: 1, Per: MinPer}}, Cost: 1})
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return nil
}
