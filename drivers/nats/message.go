package nats

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// prefix is what NATS has before the subjects of a kind.
func (c Config) prefix(k driver.Kind) string {
	if k == driver.Request {
		return c.Prefix + c.RequestPrefix
	}
	return c.Prefix + c.EventPrefix
}

// allowed keeps events away from what is not theirs, under Raw.
func (b *Bus) allowed(k driver.Kind, s string) error {
	if !b.config.Raw || k != driver.Event {
		return nil
	}
	first, _, _ := strings.Cut(s, ".")
	if first == "*" || first == ">" {
		return fmt.Errorf("%w: %q begins with a wildcard, and events have no prefix", driver.ErrBadSubject, s)
	}
	if strings.HasPrefix(s+".", b.config.RequestPrefix) {
		return fmt.Errorf("%w: %q is where requests are", driver.ErrBadSubject, s)
	}
	return nil
}

// Publish implements [driver.Driver].
func (b *Bus) Publish(ctx context.Context, m driver.Message) error {
	if err := b.allowed(driver.Event, m.Subject); err != nil {
		return err
	}
	return b.send(ctx, frame{prefix: b.prefixes[driver.Event], subject: m.Subject}, &m)
}

// Request implements [driver.Driver].
func (b *Bus) Request(ctx context.Context, m driver.Message) error {
	if b.attempt.underWay() || !b.conn.IsConnected() {
		return driver.ErrDisconnected
	}
	reply := b.inbox + strconv.FormatUint(m.ID, 36)
	return b.send(ctx, frame{prefix: b.prefixes[driver.Request], subject: m.Subject, reply: reply}, &m)
}

// Answer implements [driver.Driver].
func (b *Bus) Answer(ctx context.Context, request, answer driver.Message) error {
	to, _ := request.Return.(string)
	if to == "" {
		return nil // a foreign publisher that waits for no answer
	}
	return b.send(ctx, frame{subject: to}, &answer)
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
