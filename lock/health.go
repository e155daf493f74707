package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/lock/driver"
)

// health tracks whether the backend serves locks (L21). A call that fails with
// ErrUnavailable starts a watch, which acquires a scratch key again and again
// until that succeeds. The backend counts as lost only if the scratch key fails
// too: an error of one key concerns only its caller. A backend in the process
// cannot be lost and is not watched.
type health struct {
	locker *Locker

	mu       sync.Mutex // guards the fields below
	watching bool
	down     error     // the reason of the loss; nil while the backend serves
	since    time.Time // of down
}

// The pauses between the probes of a lost backend.
const (
	probePause    = 100 * time.Millisecond
	probePauseMax = time.Second
)

// failed records the error of a driver call and starts a watch if the error is
// ErrUnavailable.
func (h *health) failed(err error) {
	if h.locker.queues == nil || !errors.Is(err, ErrUnavailable) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.watching {
		h.watching = h.locker.group.Go(func(ctx context.Context) { h.watch(ctx) })
	}
}

// lost returns the reason why the backend does not serve, or nil.
func (h *health) lost() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

// watch probes the backend until it serves, and reports the loss and the return
// once each.
func (h *health) watch(ctx context.Context) {
	for pause := probePause; ; pause = min(2*pause, probePauseMax) {
		err := h.probe(ctx)
		if err == nil || ctx.Err() != nil {
			h.returned()
			return
		}
		h.missed(err)
		if !group.Sleep(ctx, group.Jitter(pause)) {
			h.returned()
			return
		}
	}
}

func (h *health) missed(err error) {
	h.mu.Lock()
	first := h.down == nil
	if first {
		h.since = time.Now()
	}
	h.down = err
	h.mu.Unlock()
	if first {
		h.locker.observe(Unavailable{Err: err})
	}
}

// returned ends the watch.
func (h *health) returned() {
	h.mu.Lock()
	was, lasted := h.down, time.Since(h.since)
	h.watching, h.down = false, nil
	h.mu.Unlock()
	if was != nil && !h.locker.gate.shut() {
		h.locker.observe(Available{After: lasted})
	}
}

// probe acquires a scratch key with the shortest TTL. It writes, because a read
// would not detect a backend that is full or read-only.
func (h *health) probe(ctx context.Context) error {
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

// Ping reports whether the backend serves locks now, with the cause if it does
// not. It calls the backend once, with a timeout of a second, so that a loss is
// detected also while no lock is used (L21). During a known outage it returns
// at once.
func (l *Locker) Ping(ctx context.Context) error {
	if err := l.health.lost(); err != nil {
		return err
	}
	_, err := l.Inspect(ctx, "mega:probe")
	if errors.Is(err, ErrUnavailable) && !errors.Is(ctx.Err(), context.Canceled) { // the outage may have used up a deadline
		l.health.failed(err)
	}
	return err
}
