package nats

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// member is a subscription of the front.
type member struct {
	topic *topic
	sink  driver.Sink
	// Guarded by the mutex of the Bus:
	live   bool // its Subscribe has succeeded
	owed   bool // messages may have been lost, and nobody has reported the gap
	ending bool
	end    *ending // of the first End, which the others wait for too; nil if it does not wait
	on     *link   // of end
}

func (m *member) load() int { return m.sink.Load() }

// End implements [driver.Registration]. Earlier messages of this bus reach the
// subscription.
func (m *member) End(ctx context.Context) error {
	b := m.topic.bus
	if l := b.link.Load(); l != nil {
		_ = b.ledger.passed(ctx, b.out.count(), l.over) // it ends in any case
	}
	e, l, first, err := m.begin()
	if e == nil {
		m.reportStrays()
		return err
	}
	err = e.wait(ctx, l)
	if err == nil {
		err = m.topic.deliverRest(ctx, l, e.sub)
	}
	if first {
		err = errors.Join(err, m.leave(err == nil && !e.lost.Load()))
		m.topic.left.Store(m)
		m.reportStrays()
	}
	return err
}

// reportStrays reports the events that have come for a group whose last member here
// had stopped.
func (m *member) reportStrays() {
	if n := m.topic.strays.Swap(0); n > 0 {
		m.topic.bus.notify(func(driver.Front) { m.sink.Gap(int(n)) }) // S4
	}
}

// ending is a subscription at the server that is no longer needed, or a member
// that leaves a subscription that stays. done is closed when the server has
// confirmed it: all its messages to the member have arrived. Otherwise lost is set.
type ending struct {
	sub  *nats.Subscription
	last bool
	lost atomic.Bool
	done chan struct{}
}

// wait waits for the server's confirmation, or for the end of the link.
func (e *ending) wait(ctx context.Context, l *link) error {
	select {
	case <-e.done:
	case <-l.ctx.Done():
		e.lost.Store(true)
	case <-ctx.Done():
		return ctx.Err()
	}
	if !e.lost.Load() {
		return nil
	}
	return l.awaitEnd(ctx)
}

// awaitEnd waits until the end of the link is recorded: from then on its losses are
// known.
func (l *link) awaitEnd(ctx context.Context) error {
	select {
	case <-l.ctx.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endLater queues a subscription of the link to be ended at the server. The
// caller holds b.mu.
func (b *Bus) endLater(sub *nats.Subscription) *ending {
	e := &ending{sub: sub, last: true, done: make(chan struct{})}
	b.leaving = append(b.leaving, e)
	b.wakeRegister()
	return e
}

// unsubscribe ends the subscriptions. The client delivers the messages that
// have arrived by then. It returns an error if the link has ended.
func (l *link) unsubscribe(leaving []*ending) (err error) {
	if len(leaving) == 0 {
		return nil
	}
	defer func() {
		for _, e := range leaving {
			e.lost.Store(err != nil)
			close(e.done)
		}
	}()
	for _, e := range leaving {
		if e.last {
			_ = e.sub.Drain() // fails if it has ended before
		}
	}
	return l.conn.FlushTimeout(forever)
}

// begin starts to end the member, and reports whether this call was the first. It
// returns no ending if there is nothing to wait for: without a connection, or if the
// group continues with others.
func (m *member) begin() (e *ending, l *link, first bool, err error) {
	t, b := m.topic, m.topic.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.ending {
		return m.end, m.on, false, nil
	}
	m.stop()
	l = b.link.Load()
	if l == nil || !t.active || t.key.queue != "" && t.stays > 0 {
		return nil, nil, true, m.detach()
	}
	if t.stays > 0 {
		m.end = &ending{sub: t.sub, done: make(chan struct{})}
		b.leaving = append(b.leaving, m.end)
		b.wakeRegister()
	} else {
		delete(b.topics, t.key) // a later Subscribe makes another
		m.owed = true           // until it is confirmed
		m.end = b.endLater(t.sub)
	}
	m.on = l
	return m.end, l, true, nil
}

// stop records that the member ends. The caller holds the bus's mutex.
func (m *member) stop() {
	if !m.ending {
		m.ending = true
		m.topic.stays--
	}
}

// leave removes the member, and its topic if it was the last one. It returns an error
// if messages may have been lost that nobody reports any more (S4).
func (m *member) leave(confirmed bool) error {
	b := m.topic.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if confirmed && !m.on.ended {
		m.owed = false
	}
	m.stop()
	m.end, m.on = nil, nil
	return m.detach()
}

// detach is leave for a caller that holds the bus's mutex.
func (m *member) detach() error {
	m.remove()
	if m.owed { // S4
		m.owed = false
		return driver.ErrDisconnected
	}
	return nil
}

// remove takes the member out of its topic. The caller holds the bus's mutex.
func (m *member) remove() {
	t, b := m.topic, m.topic.bus
	t.members.Remove(m)
	if t.members.Len() > 0 || b.topics[t.key] != t {
		return
	}
	delete(b.topics, t.key)
	if t.active {
		b.endLater(t.sub)
	}
}

// deliverRest waits until the messages that have arrived for the topic were
// handed over, or reported as lost, or until the end of the link is recorded.
func (t *topic) deliverRest(ctx context.Context, l *link, sub *nats.Subscription) error {
	pending, _, err := sub.Pending()
	target := t.taken.Load() + uint64(max(pending, 0))
	for pause := 20 * time.Microsecond; err == nil && pending > 0 && t.settled.Load() < target; pause = min(2*pause, 5*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		pending, _, err = sub.Pending()
	}
	if err != nil && l.conn.IsClosed() { // the client has discarded what waited (S4)
		return l.awaitEnd(ctx)
	}
	return nil // an error means that the subscription has ended
}
