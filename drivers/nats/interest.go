package nats

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// interest is a subscription at the server.
type interest struct {
	bus    *Bus
	kind   driver.Kind
	prefix int // bytes of the subject that are NATS's alone
	sink   driver.Sink
	sub    *nats.Subscription
	epoch  atomic.Int64  // the connection up to which the sink knows of gaps
	done   chan struct{} // the client has called its last callback
}

// Subscribe implements [driver.Driver].
func (b *Bus) Subscribe(ctx context.Context, s driver.Subscription) (driver.Interest, error) {
	if err := b.allowed(s.Kind, s.Pattern); err != nil {
		return nil, err
	}
	prefix := b.prefixes[s.Kind]
	subject := prefix + s.Pattern
	in := &interest{bus: b, kind: s.Kind, prefix: len(prefix), sink: s.Sink, done: make(chan struct{})}
	in.epoch.Store(b.epoch.Load())
	if err := in.subscribe(subject, queue(s)); err != nil {
		return nil, known(err)
	}
	b.mu.Lock()
	b.interests[in] = struct{}{}
	b.mu.Unlock()
	if err := b.confirm(ctx, subject); err != nil {
		b.forget(in)
		_ = in.sub.Unsubscribe() // fails on a connection that is closed, and then there is nothing left
		return nil, err
	}
	return in, nil
}

// queue is the name of a group: see the package's documentation.
func queue(s driver.Subscription) string {
	if s.Group == "" {
		return ""
	}
	return s.Group + ":" + s.Pattern
}

func (in *interest) subscribe(subject, queue string) (err error) {
	in.sub, err = in.bus.conn.QueueSubscribe(subject, queue, in.take)
	if err != nil {
		return err
	}
	in.sub.SetClosedHandler(func(string) { close(in.done) })
	if !in.sub.IsValid() { // it may have ended before the handler was there
		return nats.ErrConnectionClosed
	}
	return in.sub.SetPendingLimits(-1, -1) // the bounds are the front's, whose queue never blocks
}

// confirm returns once the server has the subscription.
func (b *Bus) confirm(ctx context.Context, subject string) error {
	if err := b.Flush(ctx); err != nil {
		return err
	}
	if err := b.refused(subject); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrTerminated, err)
	}
	return nil
}

func (b *Bus) forget(in *interest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.interests, in)
}

// take hands a message to the sink, after what it has to know first.
func (in *interest) take(m *nats.Msg) {
	in.mind()
	in.bus.calls.RLock()
	defer in.bus.calls.RUnlock()
	if in.bus.quiet {
		return
	}
	message := arrived(in.kind, m.Subject[in.prefix:], m)
	if in.kind == driver.Request {
		message.Return = m.Reply
	}
	in.sink.Deliver(message)
}

// mind tells the sink, once for each connection but its first, that messages
// may have been lost. A message may be here before the client says that it is
// connected again, so both ask.
func (in *interest) mind() {
	now := in.bus.epoch.Load()
	if known := in.epoch.Load(); known == now || !in.epoch.CompareAndSwap(known, now) {
		return
	}
	in.bus.calls.RLock()
	defer in.bus.calls.RUnlock()
	if !in.bus.quiet {
		in.sink.Gap(-1)
	}
}

// fail ends the interest because the server refuses it.
func (in *interest) fail(cause error) {
	in.bus.forget(in)
	_ = in.sub.Unsubscribe() // the server does not have it anyway
	in.bus.calls.RLock()
	defer in.bus.calls.RUnlock()
	if !in.bus.quiet {
		in.sink.Fail(fmt.Errorf("%w: %w", driver.ErrTerminated, cause))
	}
}

// End implements [driver.Interest]. The client's drain is what it takes: the
// server confirms, and what it had sent before that is handed over. The client
// looks every 100 ms whether that is so, which is too seldom.
func (in *interest) End(ctx context.Context) error {
	in.bus.forget(in)
	if !in.bus.conn.IsConnected() {
		_ = in.sub.Unsubscribe() // it is not renewed; on a closed connection there is nothing to end
		return nil
	}
	if err := in.sub.Drain(); err != nil { // it has ended before
		return nil //nolint:nilerr // which is what was asked for
	}
	if in.bus.Flush(ctx) == nil { // else the client's drain ends by itself
		in.finish(ctx)
	}
	select {
	case <-in.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish ends the subscription, of which the server sends no more, as soon as
// everything was handed over.
func (in *interest) finish(ctx context.Context) {
	for wait := 20 * time.Microsecond; ctx.Err() == nil; wait = min(2*wait, 5*time.Millisecond) {
		if n, _, err := in.sub.Pending(); err != nil || n == 0 {
			_ = in.sub.Unsubscribe() // fails if the client was quicker
			return
		}
		time.Sleep(wait)
	}
}
