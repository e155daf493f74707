package bus

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// front is a Bus as its driver sees it.
type front Bus

var _ driver.Front = (*front)(nil)

// Answer implements [driver.Front].
func (f *front) Answer(m driver.Message) {
	if m.Err != nil {
		m.Err = bounded(*m.Err)
	}
	f.calls.answer(&m)
}

// Fail implements [driver.Front].
func (f *front) Fail(id uint64, err error) { f.calls.fail(id, err) }

// Disconnected implements [driver.Front].
func (f *front) Disconnected(err error) {
	b := (*Bus)(f)
	if b.link.cut(err) { // S23
		b.notify(Disconnected{Err: err})
	}
	b.calls.failAll(disconnected(err))
}

func disconnected(err error) error {
	switch {
	case err == nil:
		return ErrDisconnected
	case errors.Is(err, ErrDisconnected):
		return err
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// Connected implements [driver.Front].
func (f *front) Connected() {
	b := (*Bus)(f)
	if after, news := b.link.mend(); news {
		b.notify(Connected{After: after})
	}
	for _, s := range b.list() {
		s.wake()
	}
}

// Expired implements [driver.Front].
func (f *front) Expired(messages int) { f.counters.expired.Add(uint64(messages)) }

// Lost implements [driver.Front].
func (f *front) Lost(messages, bytes int, err error) {
	b := (*Bus)(f)
	b.counters.lost.Add(uint64(messages)) // S28
	b.counters.lostBytes.Add(uint64(bytes))
	b.notify(PublishLost{Messages: messages, Bytes: bytes, Err: err})
}

// Refused implements [driver.Front].
func (f *front) Refused(subject string, err error) {
	b := (*Bus)(f)
	b.counters.refused.Add(1)
	b.notify(PublishRefused{Subject: subject, Err: err})
}

// link is whether the backend can be reached.
type link struct {
	mu    sync.Mutex  // guards the fields below
	err   error       // why not
	down  atomic.Bool // changed under mu
	since time.Time
	cuts  uint64
}

// cut reports whether the state has changed.
func (l *link) cut(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	if l.down.Swap(true) {
		return false
	}
	l.since = time.Now()
	l.cuts++
	return true
}

// mend reports whether the state has changed, and how long the link was down.
func (l *link) mend() (after time.Duration, news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down.Swap(false) {
		return 0, false
	}
	l.err = nil
	return time.Since(l.since), true
}

// State describes which calls of a Bus can succeed at the moment.
type State string

// The states.
const (
	StateConnected    State = "connected"
	StateDisconnected State = "disconnected" // publishes are buffered, requests fail at once
	StateDraining     State = "draining"     // no new subscriptions
	StateClosed       State = "closed"
)

// State returns the state of the bus, for a readiness check. While the backend
// cannot be reached, it also returns the cause as an error.
func (b *Bus) State() (State, error) {
	switch b.state.Load() {
	case closed:
		return StateClosed, nil
	case draining:
		return StateDraining, nil
	}
	b.link.mu.Lock()
	defer b.link.mu.Unlock()
	if b.link.down.Load() {
		return StateDisconnected, b.link.err
	}
	return StateConnected, nil
}
