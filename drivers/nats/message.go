package nats

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

func (b *Bus) prefix(k driver.Kind) string {
	if k == driver.Request {
		return b.config.Prefix + b.config.RequestPrefix
	}
	return b.config.Prefix + b.config.EventPrefix
}

// subject is what NATS calls a subject or a pattern. Under Raw, events stay
// away from what is not theirs.
func (b *Bus) subject(k driver.Kind, s string) (string, error) {
	if b.config.Raw && k == driver.Event {
		first, _, _ := strings.Cut(s, ".")
		if first == "*" || first == ">" {
			return "", fmt.Errorf("%w: %q begins with a wildcard, and events have no prefix", driver.ErrBadSubject, s)
		}
		if strings.HasPrefix(s+".", b.config.RequestPrefix) {
			return "", fmt.Errorf("%w: %q is where requests are", driver.ErrBadSubject, s)
		}
	}
	return b.names[k].find(s), nil
}

// Publish implements [driver.Driver].
func (b *Bus) Publish(ctx context.Context, m driver.Message) error {
	subject, err := b.subject(driver.Event, m.Subject)
	if err != nil {
		return err
	}
	return b.send(ctx, subject, "", &m)
}

// Request implements [driver.Driver].
func (b *Bus) Request(ctx context.Context, m driver.Message) error {
	subject, err := b.subject(driver.Request, m.Subject)
	if err != nil {
		return err
	}
	if !b.conn.IsConnected() {
		return driver.ErrDisconnected
	}
	return b.send(ctx, subject, b.inbox+strconv.FormatUint(m.ID, 36), &m)
}

// Answer implements [driver.Driver].
func (b *Bus) Answer(ctx context.Context, request, answer driver.Message) error {
	to, _ := request.Return.(string)
	if to == "" {
		return nil // a foreign publisher that waits for no answer
	}
	return b.send(ctx, to, "", &answer)
}

// send hands a message to the client, once there is room for it.
func (b *Bus) send(ctx context.Context, subject, reply string, m *driver.Message) error {
	if err := b.awaitRoom(ctx); err != nil {
		return err
	}
	h := m.Wire()
	if h == nil && reply == "" {
		return known(b.conn.Publish(subject, m.Data))
	}
	return known(b.conn.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Header: nats.Header(h), Data: m.Data}))
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

// arrived is a message of the server as the front knows it. The client reads
// each into memory of its own.
func arrived(k driver.Kind, subject string, m *nats.Msg) driver.Message {
	return driver.FromWire(k, subject, driver.Header(m.Header), m.Data)
}

// answer takes what comes back to the inbox.
func (b *Bus) answer(m *nats.Msg) {
	id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, b.inbox), 36, 64)
	if err != nil {
		return // nobody was told that inbox
	}
	b.tell(func(f driver.Front) {
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" { // the server's own words
			f.Fail(id, driver.ErrNoResponders)
			return
		}
		a := arrived(driver.Answer, "", m)
		a.ID = id
		f.Answer(a)
	})
}
