package nats

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// Bus is a bus driver of scope Fleet, on one connection.
type Bus struct {
	config   Config
	conn     *nats.Conn
	info     driver.Info
	prefixes [2]string // of events, and of requests
	inbox    string    // of the answers to this driver's requests; a number is added

	pipe      atomic.Pointer[pipe] // of the latest connection
	shortcut  shortcut
	attempt   attempt
	most      atomic.Int64          // bytes of a message that the server takes
	unreached atomic.Pointer[error] // why the last server could not be
	epoch     atomic.Int64          // counts connections
	pipes     sync.WaitGroup
	closing   chan struct{}
	closed    chan struct{} // the client has called its last callback
	once      sync.Once     // of Close

	mu        sync.Mutex // guards the fields below
	front     driver.Front
	interests map[*interest]struct{}

	calls sync.RWMutex // held for reading while a front or a sink is called
	quiet bool         // under calls: nobody is called any more
}

var _ driver.Driver = (*Bus)(nil)

func newBus(c Config) *Bus {
	b := &Bus{config: c, closing: make(chan struct{}), closed: make(chan struct{}), interests: map[*interest]struct{}{}}
	for _, k := range []driver.Kind{driver.Event, driver.Request} {
		b.prefixes[k] = c.prefix(k)
	}
	return b
}

// options connect the client's callbacks. It calls them one after the other,
// in the order of what happened.
func (b *Bus) options() []nats.Option {
	return []nats.Option{
		nats.SetCustomDialer(dialer{b}), nats.CustomReconnectDelay(b.pause),
		nats.DisconnectErrHandler(b.disconnected),
		nats.ReconnectHandler(func(*nats.Conn) { b.connected() }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) { b.failed(s, err) }),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
	}
}

// dialer opens connections that do not block who writes.
type dialer struct{ b *Bus }

// Dial implements [nats.CustomDialer].
func (d dialer) Dial(network, address string) (net.Conn, error) {
	d.b.giveUp()
	d.b.attempt.begin()
	conn, err := (&net.Dialer{Timeout: d.b.config.dial}).Dial(network, address)
	if err != nil {
		d.b.unreached.Store(&err)
		return nil, err
	}
	p := newPipe(conn, stalls*d.b.config.ping)
	d.b.pipes.Go(p.run) // ends when the connection does
	d.b.pipe.Store(p)
	d.b.epoch.Add(1)
	return p, nil
}

// because adds why no server could be reached, which the client does not say.
func (b *Bus) because(err error) error {
	if why := b.unreached.Load(); why != nil && errors.Is(err, nats.ErrNoServers) {
		return fmt.Errorf("%w: %w", err, *why)
	}
	return err
}

// giveUp ends a connection before the next one is tried: the client leaves one
// open whose server did not greet.
func (b *Bus) giveUp() {
	if p := b.pipe.Load(); p != nil {
		_ = p.Close() // it is of no use any more
	}
}

// pause waits after the given number of times that no server could be reached:
// up to 5s, and never as long as anybody else. It does so itself, and not the
// client, so that nobody is on the client's way when that tries again.
func (b *Bus) pause(times int) time.Duration {
	b.giveUp()
	b.attempt.end()
	most := min(50*time.Millisecond<<min(times, 10), 5*time.Second)
	select {
	case <-time.After(most/4 + rand.N(most*3/4)):
	case <-b.closing:
		return 0
	}
	b.shortcut.client.Lock()
	defer b.shortcut.client.Unlock()
	b.attempt.begin()
	return 0
}

// open asks the server what it can do and makes the inbox.
func (b *Bus) open(ctx context.Context) error {
	b.info = driver.Info{
		Name: "nats", Scope: driver.Fleet, MaxPayload: int(b.conn.MaxPayload()), Copies: true,
		Lacks: []driver.Lack{{Rule: "S12", Why: "the death of a responder is not told to who asked: it is a timeout"}},
	}
	b.most.Store(b.conn.MaxPayload())
	err := b.prepare(ctx)
	if err != nil {
		b.shut()
		<-b.closed
		b.pipes.Wait()
	}
	return err
}

func (b *Bus) prepare(ctx context.Context) error {
	if !b.conn.HeadersSupported() {
		return fmt.Errorf("the server %s knows no headers, which came with 2.2: %w", b.conn.ConnectedServerVersion(), driver.ErrUnsupported)
	}
	b.attempt.end()
	b.inbox = nats.NewInbox() + "."
	answers, err := b.conn.Subscribe(b.inbox+"*", b.answer)
	if err != nil {
		return err
	}
	if err := answers.SetPendingLimits(-1, -1); err != nil { // the front takes everything at once
		return err
	}
	if err := b.Flush(ctx); err != nil {
		return err
	}
	if err := b.refused(b.inbox + "*"); err != nil {
		return err
	}
	b.openShortcut()
	return nil
}

// refused returns why the server refused a subscription that was flushed.
func (b *Bus) refused(subject string) error {
	err := b.conn.LastError()
	if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+subject+`"`) {
		return err
	}
	return nil
}

// Info implements [driver.Driver].
func (b *Bus) Info() driver.Info { return b.info }

// Attach implements [driver.Driver].
func (b *Bus) Attach(f driver.Front) error {
	b.mu.Lock()
	b.front = f
	b.mu.Unlock()
	if !b.conn.IsConnected() {
		b.tell(func(f driver.Front) { f.Disconnected(driver.ErrDisconnected) })
	}
	return nil
}

// tell calls the front, unless that is over.
func (b *Bus) tell(what func(driver.Front)) {
	b.mu.Lock()
	f := b.front
	b.mu.Unlock()
	b.calls.RLock()
	defer b.calls.RUnlock()
	if f != nil && !b.quiet {
		what(f)
	}
}

func (b *Bus) disconnected(conn *nats.Conn, err error) {
	if conn.IsClosed() {
		return // by Close
	}
	if err == nil {
		err = nats.ErrDisconnected
	}
	b.tell(func(f driver.Front) { f.Disconnected(fmt.Errorf("%w: %w", driver.ErrDisconnected, err)) })
}

// connected tells every subscription of the gap before it tells the front, and
// the front when the server has every subscription: what others publish from
// then on arrives.
func (b *Bus) connected() {
	b.attempt.end()
	b.most.Store(b.conn.MaxPayload())
	for _, in := range b.standing() {
		in.mind()
	}
	if err := b.conn.FlushTimeout(b.config.dial); err != nil && !b.conn.IsConnected() {
		return // it is lost again, and the client will say so
	}
	b.openShortcut()
	b.tell(func(f driver.Front) { f.Connected() })
}

func (b *Bus) standing() []*interest {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*interest, 0, len(b.interests))
	for in := range b.interests {
		all = append(all, in)
	}
	return all
}

// failed hears what the server says later: that a subscription is not allowed.
func (b *Bus) failed(s *nats.Subscription, err error) {
	if s == nil || !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	for _, in := range b.standing() {
		if in.sub == s {
			in.fail(err)
		}
	}
}

// Flush implements [driver.Driver].
func (b *Bus) Flush(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded { // the client insists on one
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, driver.CallTimeout)
		defer cancel()
	}
	err := b.conn.FlushWithContext(ctx)
	if errors.Is(err, nats.ErrConnectionClosed) && !b.conn.IsClosed() {
		err = nats.ErrDisconnected // which is what the client means, while it waits for the server's word
	}
	if err != nil && ctx.Err() != nil && !b.conn.IsConnected() {
		return fmt.Errorf("%w: %w", driver.ErrDisconnected, ctx.Err())
	}
	return known(err)
}

// shut closes the connection, and lets nobody wait for another.
func (b *Bus) shut() {
	close(b.closing)
	b.conn.Close()
	b.attempt.forget()
}

// Close implements [driver.Driver].
func (b *Bus) Close(ctx context.Context) (err error) {
	b.once.Do(func() {
		if b.conn.IsConnected() {
			err = b.Flush(ctx)
		}
		standing := b.standing()
		b.shut()
		b.calls.Lock()
		b.quiet = true
		b.calls.Unlock()
		for _, in := range standing {
			<-in.done
		}
	})
	<-b.closed
	b.pipes.Wait()
	return err
}

// known puts the client's errors into the words of the boundary.
func known(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%w: %w", driver.ErrOverloaded, err)
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", driver.ErrTooLarge, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
}
