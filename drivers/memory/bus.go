package memory

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
)

// Bus is a bus driver of scope Process: a message goes straight from the
// publisher's goroutine into the queues of the subscriptions that match. It has
// no goroutine, no timer and no buffer.
type Bus struct {
	front    driver.Front
	events   *table
	requests *table
	closed   atomic.Bool
}

var _ driver.Driver = (*Bus)(nil)

// NewBus returns a driver without subscriptions. Two drivers share nothing: a
// process makes one.
func NewBus() *Bus {
	return &Bus{events: newTable(), requests: newTable()}
}

// Info returns the driver's name and scope.
func (b *Bus) Info() driver.Info { return driver.Info{Name: "memory", Scope: driver.Process} }

// Attach implements [driver.Driver].
func (b *Bus) Attach(f driver.Front) error {
	if b.front != nil {
		return fmt.Errorf("%w: a memory.Bus belongs to one bus.Bus; make another one with NewBus", driver.ErrInvalid)
	}
	b.front = f
	return nil
}

// Publish implements [driver.Driver]. It never waits.
func (b *Bus) Publish(_ context.Context, m driver.Message) error {
	if b.closed.Load() {
		return driver.ErrClosed
	}
	b.events.Find(m.Subject).deliver(&m) // S19: also to the publisher's subscriptions
	return nil
}

// Request implements [driver.Driver].
func (b *Bus) Request(_ context.Context, m driver.Message) error {
	if b.closed.Load() {
		return driver.ErrClosed
	}
	m.Return = b.front
	if b.requests.Find(m.Subject).deliver(&m) == 0 {
		return driver.ErrNoResponders
	}
	return nil
}

// Answer implements [driver.Driver].
func (b *Bus) Answer(_ context.Context, request, answer driver.Message) error {
	if b.closed.Load() {
		return driver.ErrClosed
	}
	request.Return.(driver.Front).Answer(answer)
	return nil
}

// Subscribe implements [driver.Driver].
func (b *Bus) Subscribe(_ context.Context, s driver.Subscription) (driver.Registration, error) {
	if b.closed.Load() {
		return nil, driver.ErrClosed
	}
	t := b.events
	if s.Kind == driver.Request { // S3
		t = b.requests
	}
	r := &registration{Subscription: s, table: t}
	t.Add(s.Pattern, s.Group, r)
	return r, nil
}

// Flush implements [driver.Driver]. There is nothing to flush.
func (b *Bus) Flush(context.Context) error {
	if b.closed.Load() {
		return driver.ErrClosed
	}
	return nil
}

// Close implements [driver.Driver].
func (b *Bus) Close(context.Context) error {
	b.closed.Store(true)
	b.events.Clear()
	b.requests.Clear()
	return nil
}

// registration is a subscription in its table.
type registration struct {
	driver.Subscription
	table *table
}

// End implements [driver.Registration].
func (r *registration) End(context.Context) error {
	r.table.Remove(r.Pattern, r.Group, r)
	return nil
}
