package limit

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/outage"
	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// lost returns why c does not ask the backend, or nil. Under Closed it asks always.
func (l *Limiter) lost(c *call) error {
	if c.limit.Outage == Closed {
		return nil
	}
	return l.health.lost()
}

// decide asks the backend about r, unless it is lost. While the backend does not
// answer, decide follows the Outage of the limit, and returns the cause in outage (W11).
func (l *Limiter) decide(ctx context.Context, c *call, r driver.Request, lost error) (a driver.Answer, outage, err error) {
	policy, outage := c.limit.Outage, lost
	if lost == nil {
		a, err = l.take(ctx, r)
		if err == nil {
			return a, nil, nil
		}
		l.health.failed(ctx, err)
		if !errors.Is(err, ErrUnavailable) {
			return a, nil, err
		}
		outage = err
	}
	switch policy {
	case Closed:
		return a, nil, outage
	case Open:
		return driver.Answer{Granted: true, At: time.Now(), By: -1, Remaining: c.limit.smallest()}, outage, nil
	}
	a, err = l.shares.take(r, float64(policy))
	return a, outage, err
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
		// The next number, because 0.29 × 100 is a little less than 29.
		part := math.Nextafter(f*float64(rate.N), math.Inf(1))
		rates[i] = Rate{N: max(int(part), 1), Per: rate.Per}
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
		s.table = windows.New(nil)
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
// ErrUnavailable, or has no answer at the deadline of its context, begins a watch. A
// backend in the process cannot be lost and is not watched.
type health struct {
	limiter *Limiter
	watch   outage.Watch
	before  uint64 // Stats.Degraded before the first failed call of the outage; only the watch uses it
}

func (h *health) init(l *Limiter) {
	h.limiter = l
	h.watch.Init(&l.group, h)
}

// failed records the error of a driver call that had ctx. An outage may have used up
// the deadline of ctx, so only a cancelled call is no sign of an outage (W11).
func (h *health) failed(ctx context.Context, err error) {
	if h.limiter.info.Scope != driver.Process && (errors.Is(err, ErrUnavailable) || errors.Is(ctx.Err(), context.DeadlineExceeded)) {
		h.watch.Begin()
	}
}

// lost returns the reason why the backend does not answer, or nil.
func (h *health) lost() error { return h.watch.Cause() }

// key returns the key of the probes: always the same, because a backend may have lost a
// part of its keys.
func (h *health) key() string { return "mega.probe:" + h.limiter.ticket }

// Probe takes a unit of a scratch key. It writes, because a read would not
// detect a backend that is full or read-only. On a Redis Cluster it asks one master,
// which decides for the keys of all.
func (h *health) Probe(ctx context.Context) error {
	l := h.limiter
	_, err := l.take(ctx, driver.Request{Key: h.key(), Rates: []Rate{{N: 1, Per: MinPer}}, Cost: 1})
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	if h.lost() == nil { // one call has failed, without an outage
		h.before = l.counters.degraded.Load()
	}
	return nil
}

// Lost implements [outage.Backend].
func (h *health) Lost(err error) { h.limiter.observe(Unavailable{Err: err}) }

// Returned implements [outage.Backend].
func (h *health) Returned(after time.Duration) (report func()) {
	l := h.limiter
	degraded := l.counters.degraded.Load()
	end := Available{After: after, Degraded: degraded - h.before}
	h.before = degraded
	return func() {
		if !l.closed.Load() {
			l.observe(end)
		}
	}
}

// Ping reports whether the backend answers now, with the cause if it does not. It calls
// the backend once, with a timeout of a second, so that a loss is detected also while no
// limit is used. During a known outage it returns at once. It asks for the key of the
// probes: on a backend that has lost a part of its keys, both have the same result.
func (l *Limiter) Ping(ctx context.Context) error {
	if err := l.health.lost(); err != nil {
		return err
	}
	_, err := l.Inspect(ctx, l.health.key())
	return err
}
