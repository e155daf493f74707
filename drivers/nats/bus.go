package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/group"
)

// Bus is a bus driver of scope Fleet, on one connection at a time.
type Bus struct {
	config   Config
	info     driver.Info
	prefixes [3]string // of events, of requests, and none for answers
	inbox    inbox

	out    *outbox
	ledger ledger
	link   atomic.Pointer[link] // the connection in use; nil while there is none
	limit  atomic.Int64         // maximum bytes of a message on it

	links   uint64 // opened so far; the keeper's
	learned int64  // the limit of a message on the connection, if the server does not announce it; 0 if unknown. Changed between connections

	life    context.Context // of the goroutines
	end     context.CancelFunc
	running sync.WaitGroup // the keeper and attempts to connect

	mu      sync.Mutex // guards the fields below
	front   driver.Front
	topics  map[topicKey]*topic
	known   []named // that servers have named, the present ones first
	present int     // the number of present servers among them

	fresh    []*topic  // topics that are not subscribed yet
	leaving  []*ending // subscriptions to end
	nameless error     // the latest refusal that named no subject

	calls sync.RWMutex // held for reading while a front or a sink is called
	quiet bool         // under calls: no call begins any more
}

var _ driver.Driver = (*Bus)(nil)

func newBus(c Config) *Bus {
	b := &Bus{config: c, out: newOutbox(c.Buffer), topics: map[topicKey]*topic{}}
	b.life, b.end = context.WithCancel(context.Background())
	for _, k := range []driver.Kind{driver.Event, driver.Request} {
		b.prefixes[k] = c.prefix(k)
	}
	return b
}

// OpenBus connects, once: it returns an error if no server accepts this process
// before ctx ends. From then on the driver restores the connection after any loss,
// until Close.
//
// The error wraps driver.ErrInvalid if c can never work.
func OpenBus(ctx context.Context, c Config) (*Bus, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("open the bus: %w", err)
	}
	if _, err := c.options(); err != nil { // unreadable files
		return nil, fmt.Errorf("open the bus: %w", err)
	}
	b := newBus(c)
	l, err := b.connect(ctx)
	if err != nil {
		b.end()
		if isSilence(err) {
			err = c.unlessForeign(ctx, err)
		}
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	b.inbox.prefix = l.conn.NewInbox() + "."
	warnings, err := l.examine(ctx)
	if err != nil {
		b.end()
		l.close()
		return nil, fmt.Errorf("open the bus: %w", err)
	}
	b.info = driver.Info{
		Name: "nats", Scope: driver.Fleet, Copies: true, Lacks: lacks, Warnings: warnings,
	}
	b.guard(l)
	b.open(l)
	b.running.Go(func() { b.keep(l) })
	return b, nil
}

// lacks are the features that NATS does not have.
var lacks = []driver.Lack{
	{Rule: "S4", Why: "a loss between two servers of a cluster, or over a gateway or a leaf node, is not reported: the server of the publisher has confirmed the messages. When a member of a group leaves, its server may forward messages of the group to another server of the cluster, and subscriptions there that are in no group receive them twice"},
	{Rule: "S5", Why: "a server or a proxy that stood still for longer than 15 s may hold messages that were counted as lost, and deliver them after later ones of the next connection. Messages that wait between two servers of a cluster may arrive after later ones of the next connection, which leads to the other server"},
	{Rule: "S7", Why: "in a cluster of servers a new subscription spreads after Subscribe has returned: another server may miss what is published meanwhile"},
	{Rule: "S11", Why: "over leaf nodes and gateways, servers prefer the members of a group on the publisher's side: the others may get no message"},
	{Rule: "S12", Why: "the death of a responder is not reported: its request ends at the deadline. In a cluster of servers, or over leaf nodes, the others learn of a responder that begins or ends a moment later: a request meanwhile gets ErrNoResponders, or ends at the deadline"},
	{Rule: "S17", Why: "a server does not announce a max_payload that a reload has raised: the lower limit applies until the next connection"},
}

// Info implements [driver.Driver].
func (b *Bus) Info() driver.Info {
	info := b.info
	info.MaxPayload = int(b.limit.Load())
	return info
}

// Attach implements [driver.Driver]. It holds b.mu while it reports the state,
// because notify would report a new connection before it otherwise.
func (b *Bus) Attach(f driver.Front) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.front != nil {
		return fmt.Errorf("%w: a nats.Bus belongs to one bus.Bus", driver.ErrInvalid)
	}
	b.front = f
	if b.link.Load() == nil {
		f.Disconnected(driver.ErrDisconnected)
	}
	return nil
}

// notify calls call with the front, unless the bus is closed.
func (b *Bus) notify(call func(driver.Front)) {
	b.mu.Lock()
	f := b.front
	b.mu.Unlock()
	b.calls.RLock()
	defer b.calls.RUnlock()
	if f != nil && !b.quiet {
		call(f)
	}
}

// Flush implements [driver.Driver]. It returns when the server has confirmed
// everything that was accepted before, at once if nothing is left and there is no
// connection. If the connection ends meanwhile, Flush goes on with the next one. A loss
// or a refusal is reported by every Flush that is in progress, and by each later Flush
// until one of these has reported it (S28).
func (b *Bus) Flush(ctx context.Context) error {
	all, reported := b.ledger.state()
	err := b.settle(ctx)
	return errors.Join(b.ledger.report(all, reported, err != nil), err)
}

// settle waits until the server has confirmed everything that was accepted before. If
// ctx ends earlier, its error has the number of messages that are not confirmed (S21).
func (b *Bus) settle(ctx context.Context) error {
	if b.ledger.isAway() && b.out.left() == 0 {
		return nil
	}
	err := b.ledger.confirmed(ctx, b.out.count(), b.kickFlusher, b.life.Done())
	if err == nil || ctx.Err() == nil {
		return err
	}
	n := b.unconfirmed()
	if n == 0 {
		return nil // the server has all of them
	}
	err = fmt.Errorf("%d accepted messages not confirmed: %w", n, err)
	if b.link.Load() == nil {
		err = fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
	}
	return err
}

// unconfirmed returns how many of the accepted messages are neither confirmed nor lost.
func (b *Bus) unconfirmed() int {
	if b.ledger.isAway() {
		return b.out.left()
	}
	return int(b.ledger.open(b.out.count())) //nolint:gosec // they fit into the memory
}

func (b *Bus) kickFlusher() {
	if l := b.link.Load(); l != nil {
		wake(l.kick)
	}
}

// Close implements [driver.Driver]. Without a connection it does not wait for one.
func (b *Bus) Close(ctx context.Context) (err error) {
	switch n := b.unconfirmed(); {
	case b.life.Err() != nil || n == 0:
	case b.link.Load() != nil:
		err = b.settle(ctx)
	default:
		err = fmt.Errorf("%w: %d accepted messages not confirmed", driver.ErrDisconnected, n) // S4
	}
	b.end()
	b.calls.Lock()
	b.quiet = true
	b.calls.Unlock()
	gone := make(chan struct{})
	go func() { b.running.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-ctx.Done(): // a dialer of the user may take longer; the attempt then ends later
		if err == nil {
			err = ctx.Err()
		}
	}
	return err
}

// keep restores the connection until Close. Its goroutine owns the links; l is
// the first one.
func (b *Bus) keep(l *link) {
	for l != nil {
		next := b.serve(l)
		l = b.restore(next)
	}
}

// open makes l the link in use: the limit of messages is known, and the writer
// may begin.
func (b *Bus) open(l *link) {
	b.measure(l)
	b.ledger.restart()
	b.link.Store(l)
}

// measure reads the limit of a message. The server may change it at any time,
// or may have announced a higher limit than it accepts.
func (b *Bus) measure(l *link) {
	most := l.conn.MaxPayload()
	if b.learned > 0 {
		most = min(most, b.learned)
	}
	b.limit.Store(most) // S17
}

// serve runs a link until it ends, or until there is a successor, which it returns. It
// accounts for the unconfirmed messages.
func (b *Bus) serve(l *link) (next *link) {
	var running sync.WaitGroup
	running.Go(func() { b.write(l) })
	running.Go(func() { b.confirm(l) })
	running.Go(func() { b.register(l) })
	next = b.successor(l)
	b.suspend(l)
	l.close()
	running.Wait()
	if next == nil {
		b.learnServers(l) // those that have joined meanwhile
	}
	why := l.reason()
	lost := b.ledger.cut(why, b.out.abandon())
	b.learn(why, lost)
	if b.life.Err() != nil {
		return next
	}
	b.notify(func(f driver.Front) {
		f.Disconnected(fmt.Errorf("%w: %w", driver.ErrDisconnected, why))
		if lost.messages > 0 {
			f.Lost(lost.messages, lost.bytes, fmt.Errorf("%w: %w", driver.ErrDisconnected, why)) // S28
		}
	})
	return next
}

// learn derives the limit of the next connection from the end of the last one,
// because some servers do not announce the limit of an account, or a new limit
// (S17).
func (b *Bus) learn(why error, lost sequence) {
	b.learned = 0
	if isTooLarge(why) && lost.largest > 0 {
		b.learned = int64(lost.largest) - 1
	}
}

// restore connects again, or uses l if there is one, and makes every subscription
// active, before anything that was queued is sent. It returns nil after Close.
func (b *Bus) restore(l *link) *link {
	b.gap(b.standing())
	for attempt := 0; ; attempt++ {
		if !b.pause(attempt) {
			if l != nil {
				l.close()
			}
			return nil
		}
		var err error
		if l == nil {
			l, err = b.connect(b.life)
		}
		if err == nil {
			err = b.resume(l)
		}
		if b.life.Err() != nil {
			if err == nil {
				l.close() // before Close returns: it delivers nothing after that (S22)
			}
			return nil
		}
		if err == nil {
			b.open(l)
			b.notify(driver.Front.Connected)
			return l
		}
		l = nil
		b.notify(func(f driver.Front) { f.Disconnected(fmt.Errorf("%w: %w", driver.ErrDisconnected, err)) })
	}
}

// pause waits before an attempt to connect, for up to 5s. The time differs
// between processes. It returns false after Close.
func (b *Bus) pause(attempt int) bool { return group.Sleep(b.life, backoff(attempt)) }

// guard starts the watchdog of a link.
func (b *Bus) guard(l *link) {
	b.running.Go(func() { l.watch(b.config.silence) })
}

// resume makes every subscription active on a new link. If the link ends
// meanwhile, it may have delivered messages already.
func (b *Bus) resume(l *link) error {
	b.guard(l) // the server may fall silent before it has confirmed them
	if l.subscribe(b.standing()) != nil {
		l.close()
		b.suspend(l)
		b.gap(b.standing())
		why := l.reason()
		if isTooLong(why) {
			b.refuseLongest(why)
		}
		return why
	}
	return nil
}

// isTooLong reports whether the server has closed the connection because of the
// length of a subject.
func isTooLong(err error) bool { return containsFold(err.Error(), "maximum control line") }

// isTooLarge reports whether the server has closed the connection because of
// the size of a message.
func isTooLarge(err error) bool {
	return errors.Is(err, nats.ErrMaxPayload) || containsFold(err.Error(), "maximum payload violation")
}
