package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// shortcut is the way of messages past the client, which encodes and copies
// them a second time, straight into the pipe below it. It is open while the
// connection stands: the client has to buffer what is sent while it does not.
//
// The two ways never overtake each other. When the connection ends, its pipe
// takes nothing more, before the client takes the first message for the next
// one. And the shortcut opens when nobody is on the client's way, and what the
// client held is in the pipe.
type shortcut struct {
	pipe   atomic.Pointer[pipe] // nil while it is closed
	client sync.RWMutex         // held for reading while on the client's way
}

// send hands a message over, once there is room for it.
func (b *Bus) send(ctx context.Context, f frame, m *driver.Message) error {
	if err := b.awaitRoom(ctx); err != nil {
		return err
	}
	if err := b.checkSize(m); err != nil {
		return err
	}
	for {
		p := b.shortcut.pipe.Load()
		if p == nil {
			if err := b.awaitAttempt(ctx); err != nil {
				return err
			}
			if sent, err := b.sendByClient(&f, m); sent {
				return known(err)
			}
			continue
		}
		if p.send(&f, m) == nil {
			return nil
		}
		if m.Kind == driver.Request {
			return driver.ErrDisconnected // the client would send it later
		}
		b.shortcut.pipe.CompareAndSwap(p, nil)
	}
}

// awaitAttempt waits while one to connect is under way.
func (b *Bus) awaitAttempt(ctx context.Context) error {
	select {
	case <-b.attempt.over():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: the server is being connected to: %w", driver.ErrOverloaded, ctx.Err())
	}
}

// sendByClient does nothing if the shortcut has opened meanwhile, or the client
// is busy with connecting.
func (b *Bus) sendByClient(f *frame, m *driver.Message) (sent bool, err error) {
	b.shortcut.client.RLock()
	defer b.shortcut.client.RUnlock()
	if b.shortcut.pipe.Load() != nil || b.attempt.underWay() {
		return false, nil
	}
	return true, b.conn.PublishMsg(f.msg(m))
}

// checkSize does what the client does: another server may take less than the
// one that the front knows of.
func (b *Bus) checkSize(m *driver.Message) error {
	const surely = 1 << 10 // every server takes that
	if len(m.Data) > surely {
		return m.CheckSize(int(b.most.Load()))
	}
	return nil
}

// openShortcut opens it for the connection that stands, if it can. With TLS it
// cannot, since the client encrypts.
func (b *Bus) openShortcut() {
	b.shortcut.client.Lock()
	defer b.shortcut.client.Unlock()
	p := b.pipe.Load()
	if !b.conn.IsConnected() || b.pipe.Load() != p { // so p is not one that is still being greeted
		return
	}
	if _, err := b.conn.TLSConnectionState(); !errors.Is(err, nats.ErrConnectionNotTLS) || !b.conn.HeadersSupported() {
		return
	}
	for range 100 { // others may have the client subscribe meanwhile
		if b.pass() {
			b.shortcut.pipe.Store(p)
			return
		}
	}
}

// pass makes the client pass on what it holds. It does so before it waits for
// an answer, which nobody does here.
func (b *Bus) pass() bool {
	over, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	_ = b.conn.FlushWithContext(over)
	n, err := b.conn.Buffered()
	return n == 0 && err == nil
}

// awaitRoom waits while too much is waiting to be sent on a connection that
// stands.
func (b *Bus) awaitRoom(ctx context.Context) error {
	for {
		p := b.pipe.Load()
		if p.size.Load() < int64(b.config.Buffer) {
			return nil
		}
		room := p.change()
		n := p.size.Load()
		if n < int64(b.config.Buffer) {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d bytes wait for the server: %w", driver.ErrOverloaded, n, ctx.Err())
		}
	}
}
