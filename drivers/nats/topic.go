package nats

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/internal/routes"
)

// topicKey identifies a subscription at the server, and in the server's
// refusals.
type topicKey struct{ subject, queue string }

// topic is a subscription at the server: one for all subscriptions of this bus
// with the same pattern and group.
type topic struct {
	bus     *Bus
	key     topicKey
	take    func(m *nats.Msg)      // runs on one goroutine at a time
	left    atomic.Pointer[member] // the last one that has ended
	members routes.List[*member]
	taken   atomic.Uint64 // messages that were handed to the members, or are lost
	settled atomic.Uint64 // those up to the last one that was handed over: no gap is unreported
	strays  atomic.Int64  // events for a group that no member took, since all of them have stopped
	refused atomic.Bool   // err is set

	// Guarded by the mutex of the Bus:
	sub    *nats.Subscription // on the latest link
	active bool               // the server has confirmed it, on the link in use
	stays  int                // members that are not ending
	tried  uint64             // the number taken when the attempt to subscribe it began; without one, more
	ready  chan struct{}      // closed when it is active, or refused
	err    error              // why it was refused; no member can join any more
}

// join adds a member to the topic of the subscription, and makes the topic if
// there is none.
func (b *Bus) join(s driver.Subscription) (*member, error) {
	prefix := b.prefixes[s.Kind]
	key := topicKey{prefix + s.Pattern, queue(s)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		return nil, driver.ErrClosed
	}
	t := b.topics[key]
	if t == nil {
		t = b.newTopic(key)
		// A consumer of JetStream delivers messages under the subjects of their
		// stream, which need not have the prefix.
		t.take = func(m *nats.Msg) { t.deliver(arrived(s.Kind, strings.TrimPrefix(m.Subject, prefix), m)) }
	}
	m := &member{topic: t, sink: s.Sink, live: t.active}
	t.members.Add(m)
	t.stays++
	return m, nil
}

// newTopic makes a topic and queues its subscription. The caller holds b.mu.
func (b *Bus) newTopic(key topicKey) *topic {
	t := &topic{bus: b, key: key, ready: make(chan struct{})}
	b.topics[key] = t
	b.fresh = append(b.fresh, t)
	b.wakeRegister()
	return t
}

// wakeRegister wakes the goroutine that subscribes. Without a link the next
// link begins with a check.
func (b *Bus) wakeRegister() {
	if l := b.link.Load(); l != nil {
		wake(l.wanted)
	}
}

// queueName escapes the colon of a group's name, because a pattern may contain one, too.
var queueName = strings.NewReplacer("%", "%25", ":", "%3A")

// queue returns the name of a group on NATS: see the package's documentation.
func queue(s driver.Subscription) string {
	if s.Group == "" {
		return ""
	}
	return queueName.Replace(s.Group) + ":" + s.Pattern // S11
}

// await waits until the topic is active. It returns ErrDisconnected when cut is
// closed before; nil waits for the next link, too.
func (b *Bus) await(ctx context.Context, t *topic, cut <-chan struct{}) error {
	b.mu.Lock()
	ready := t.ready
	b.mu.Unlock()
	select {
	case <-ready:
		b.mu.Lock()
		defer b.mu.Unlock()
		return t.err
	case <-cut:
		return b.unreachable()
	case <-b.life.Done():
		return driver.ErrClosed
	case <-ctx.Done():
	}
	if b.link.Load() == nil {
		return fmt.Errorf("%w: %w", driver.ErrDisconnected, ctx.Err())
	}
	return ctx.Err()
}

// Subscribe implements [driver.Driver].
func (b *Bus) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	if err := b.allowed(s.Kind, s.Pattern); err != nil {
		return nil, err
	}
	b.passOn(ctx)
	m, err := b.join(s)
	if err != nil {
		return nil, err
	}
	if err := b.await(ctx, m.topic, nil); err != nil { // S7
		_ = m.leave(false) // it has not begun
		return nil, err
	}
	return m, nil
}

// passOn waits until all earlier messages are handed over, so that the server
// receives them before the subscription. On a slow link it gives up after a
// second; the subscription then receives them, too.
func (b *Bus) passOn(ctx context.Context) {
	l := b.link.Load()
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = b.ledger.passed(ctx, b.out.count(), l.over) // as above
}

// deliver hands a message to every member, or to one of a group. If no member of the
// group takes it, because all of them have stopped, no other process of the group has
// it: a request is refused, and an event is counted.
func (t *topic) deliver(m driver.Message) {
	members := t.members.All()
	if t.key.queue == "" {
		for _, in := range members {
			in.sink.Deliver(m)
		}
		return
	}
	switch {
	case routes.ToOne(members, (*member).load, func(in *member) bool { return in.sink.Deliver(m) }):
	case m.Kind == driver.Request:
		t.bus.refuseRequest(m)
	default:
		t.strays.Add(1)
		if m := t.left.Load(); m != nil { // S4: End has not waited for this event
			m.reportStrays()
		}
	}
}

// refuseRequest answers a request that nobody handles, as the front answers those
// in the queue of a responder that stops (S12). It does not wait for room.
func (b *Bus) refuseRequest(m driver.Message) {
	atOnce, cancel := context.WithCancel(b.life)
	cancel()
	text := "the responder has stopped"
	_ = b.Answer(atOnce, m, driver.Message{ // without room, the requester waits until its deadline
		Kind: driver.Answer, Data: []byte(text),
		Err: &driver.RemoteError{Reason: driver.ErrTerminated.Code(), Message: text, Retryable: true},
	})
}

// handler is the callback of the topic's subscription on a link. void, which the
// gate guards, ends its deliveries.
func (t *topic) handler(l *link, void *bool) nats.MsgHandler {
	waiting := t.newBacklog()
	return func(m *nats.Msg) {
		l.gate.RLock()
		if !l.closed && !*void {
			t.takeOrShed(m, waiting)
		}
		if n := t.taken.Add(1); waiting.lost == 0 {
			t.settled.Store(n)
		}
		l.gate.RUnlock()
	}
}

// register subscribes new topics on the link and ends others, several at a
// time, until the link ends. The next link subscribes the remaining ones.
func (b *Bus) register(l *link) {
	for {
		fresh, leaving := b.pending()
		if l.subscribe(fresh) != nil || l.unsubscribe(leaving) != nil || !l.wait(l.wanted, nil) {
			return
		}
	}
}

// pending returns the topics that are not subscribed yet, and the subscriptions
// to end.
func (b *Bus) pending() (fresh []*topic, leaving []*ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.fresh {
		if b.topics[t.key] == t && !t.active {
			fresh = append(fresh, t)
		}
	}
	leaving = b.leaving
	b.fresh, b.leaving = nil, nil
	return fresh, leaving
}

// standing returns all topics.
func (b *Bus) standing() (all []*topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.topics {
		all = append(all, t)
	}
	return all
}

// suspend records that the link has ended, and that no topic is active any more. At the
// same time the link stops to deliver: a subscription that begins later gets no report
// of what this link loses, and one that ends later gets one (S10).
func (b *Bus) suspend(l *link) {
	l.gate.Lock()
	defer l.gate.Unlock()
	l.closed = true
	b.mu.Lock()
	defer b.mu.Unlock()
	b.link.Store(nil)
	l.ended = true
	for _, t := range b.topics {
		if t.active {
			t.active, t.ready = false, make(chan struct{})
		}
		t.sub = nil
		for _, m := range t.members.All() {
			m.owed = m.live // until gap
		}
	}
	for _, e := range b.leaving {
		e.lost.Store(true)
		close(e.done)
	}
	b.leaving = nil
}

// gap reports to every subscription of the topics that messages may have been lost, also
// to one whose Subscribe has not returned if messages came before its confirmation. No
// message that came before follows. It holds b.mu meanwhile, so that no End returns
// between the end of the debt and the report.
func (b *Bus) gap(topics []*topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls.RLock()
	defer b.calls.RUnlock()
	for _, t := range topics {
		for _, m := range t.members.All() {
			if (m.live || t.tried < t.taken.Load()) && !b.quiet {
				m.sink.Gap(-1)
			}
			m.owed = false
		}
		t.tried = math.MaxUint64
	}
}

// subscribe makes the topics active on the link, with one confirmation for all.
// It ends those that the server refuses. It returns an error if the link has
// ended.
//
// A refusal that names no subject applies to one of several topics; then each
// is tried alone (S27).
func (l *link) subscribe(topics []*topic) error {
	if len(topics) == 0 {
		return nil
	}
	nameless, err := l.trySubscribe(topics)
	if err != nil || nameless == nil {
		return err
	}
	if len(topics) == 1 {
		l.bus.refuse(topics[0], nameless)
		return nil
	}
	l.bus.gap(topics) // S4: of messages that came after the first attempt
	for _, t := range topics {
		if err := l.subscribe([]*topic{t}); err != nil {
			return err
		}
	}
	return nil
}

// trySubscribe returns the refusal that named no subject, if one came. The
// topics are inactive then, and no message of this attempt follows.
func (l *link) trySubscribe(topics []*topic) (nameless, err error) {
	b := l.bus
	b.beginAttempt(topics)
	void := false // under l.gate
	subs := make([]*nats.Subscription, len(topics))
	for i, t := range topics {
		if subs[i], err = l.conn.QueueSubscribe(t.key.subject, t.key.queue, t.handler(l, &void)); err != nil {
			return nil, err
		}
		_ = subs[i].SetPendingLimits(-1, -1) // the bounds are the front's; fails with the link
	}
	if err := l.conn.FlushTimeout(forever); err != nil {
		return nil, err
	}
	l.settle()
	undone, nameless := b.conclude(l, topics, subs)
	l.gate.Lock()
	void = nameless != nil
	l.gate.Unlock()
	for _, sub := range undone {
		_ = sub.Unsubscribe() // fails with the link
	}
	return nameless, nil
}

// beginAttempt records the state before an attempt to subscribe topics.
func (b *Bus) beginAttempt(topics []*topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nameless = nil
	for _, t := range topics {
		t.tried = t.taken.Load()
	}
}

// conclude activates the topics that the server has confirmed on the link, and
// returns the subscriptions of the others, and the refusal that named no subject.
func (b *Bus) conclude(l *link, topics []*topic, subs []*nats.Subscription) (undone []*nats.Subscription, nameless error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.ended {
		return subs, nil // the next link subscribes all topics
	}
	nameless, b.nameless = b.nameless, nil
	for i, t := range topics {
		if nameless == nil && b.topics[t.key] == t {
			b.activate(t, subs[i])
		} else {
			undone = append(undone, subs[i])
		}
	}
	return undone, nameless
}

// activate records that the server has confirmed a topic. The caller holds
// b.mu.
func (b *Bus) activate(t *topic, sub *nats.Subscription) {
	t.sub, t.active, t.tried = sub, true, math.MaxUint64
	for _, m := range t.members.All() {
		m.live = true
	}
	close(t.ready)
}
