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
	watch  outage.Watch
}

func (h *health) init(l *Locker) {
	h.locker = l
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

// Probe acquires a scratch key with the shortest TTL. It writes, because a read
// would not detect a backend that is full or read-only.
func (h *health) Probe(ctx context.Context) error {
	l := h.locker
	ctx, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	token := newToken()
	_, err := l.driver.Acquire(ctx, driver.Request{
		Key: "mega.probe:" + token, Token: token, TTL: MinTTL, Slots: 1, Fences: 1, NoRenew: true, Holder: l.self,
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
// at once.
func (l *Locker) Ping(ctx context.Context) error {
	if err := l.health.lost(); err != nil {
		return err
	}
	_, err := l.Inspect(ctx, "mega:probe")
	return err
}
