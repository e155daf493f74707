package lock

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/internal/outage"
	"github.com/megaframework/mega/lock/driver"
)

// health tracks whether the backend serves locks (L21). A call that fails with
// ErrUnavailable begins a watch. A backend in the process cannot be lost and is
// not watched.
type health struct {
	locker *Locker
	key    string // of the probes: always the same, because a backend may have lost a part of its keys
	watch  outage.Watch
}

func (h *health) init(l *Locker) {
	h.locker, h.key = l, "mega.probe:"+newToken()
	h.watch.Init(&l.group, h)
}

// failed records the error of a driver call.
func (h *health) failed(err error) {
	if h.locker.queues != nil && errors.Is(err, ErrUnavailable) {
		h.watch.Begin()
	}
}

// lost returns the reason why the backend does not serve, or nil.
func (h *health) lost() error { return h.watch.Cause() }

// Probe acquires a scratch key with the shortest TTL, and asks for it again while it
// is taken. It writes, because a read would not detect a backend that is full or
// read-only. It asks twice, because a backend may serve free keys alone: with one
// call, the probes would succeed and fail in turn.
func (h *health) Probe(ctx context.Context) error {
	for range 2 {
		if err := h.ask(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ask is one call of Probe. It has the time of a caller's request: a backend that
// serves those is not lost.
func (h *health) ask(ctx context.Context) error {
	l := h.locker
	ctx, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	_, err := l.driver.Acquire(ctx, driver.Request{
		Key: h.key, Token: newToken(), TTL: MinTTL, Slots: 1, Fences: 1, NoRenew: true, Holder: l.self,
	})
	if err = l.unavailable(err, driver.CallTimeout); errors.Is(err, ErrUnavailable) {
		return err
	}
	return nil
}

// Lost implements [outage.Backend].
func (h *health) Lost(err error) { h.locker.observe(Unavailable{Err: err}) }

// Returned implements [outage.Backend].
func (h *health) Returned(after time.Duration) (report func()) {
	return func() {
		if !h.locker.gate.shut() {
			h.locker.observe(Available{After: after})
		}
	}
}

// Ping reports whether the backend serves locks now, with the cause if it does
// not. It calls the backend once, with a timeout of a second, so that a loss is
// detected also while no lock is used (L21). During a known outage it returns
// at once. It asks for the key of the probes: on a backend that has lost a part of its
// keys, both have the same result.
func (l *Locker) Ping(ctx context.Context) error {
	if err := l.health.lost(); err != nil {
		return err
	}
	_, err := l.Inspect(ctx, l.health.key)
	return err
}
