package nats

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

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

// allowed refuses a subject or pattern of a kind without a prefix that would
// meet the other kind (S3).
func (b *Bus) allowed(k driver.Kind, s string) error {
	switch {
	case k == driver.Event && b.config.Raw:
		return apart(s, b.config.RequestPrefix, "events", "requests")
	case k == driver.Request && b.config.RawRequests:
		return apart(s, b.config.EventPrefix, "requests", "events")
	}
	return nil
}

func apart(s, prefix, these, others string) error {
	first, _, _ := strings.Cut(s, ".")
	if first == "*" || first == ">" {
		return fmt.Errorf("%w: %q begins with a wildcard, and %s have no prefix", driver.ErrBadSubject, s, these)
	}
	if strings.HasPrefix(s+".", prefix) {
		return fmt.Errorf("%w: %q is below the prefix of %s", driver.ErrBadSubject, s, others)
	}
	return nil
}

// Publish implements [driver.Driver].
func (b *Bus) Publish(ctx context.Context, m driver.Message) error {
	if err := b.allowed(driver.Event, m.Subject); err != nil {
		return err
	}
	return b.put(ctx, &item{m: m, prefix: b.prefixes[driver.Event]})
}

// Request implements [driver.Driver].
func (b *Bus) Request(ctx context.Context, m driver.Message) error {
	if err := b.allowed(driver.Request, m.Subject); err != nil {
		return err
	}
	l := b.link.Load()
	if l == nil {
		return b.unreachable()
	}
	if err := b.openInbox(ctx); err != nil {
		return err
	}
	reply := b.inbox.prefix + strconv.FormatUint(m.ID, 36)
	return b.put(ctx, &item{m: m, prefix: b.prefixes[driver.Request], reply: reply, ctx: ctx, link: l.number})
}

func (b *Bus) unreachable() error {
	if b.life.Err() != nil {
		return driver.ErrClosed
	}
	return driver.ErrDisconnected
}

// Answer implements [driver.Driver].
func (b *Bus) Answer(ctx context.Context, request, answer driver.Message) error {
	to, _ := request.Return.(string)
	if to == "" {
		return nil // a foreign publisher that waits for no answer
	}
	answer.Subject = to
	return b.put(ctx, &item{m: answer})
}

// put accepts a message.
func (b *Bus) put(ctx context.Context, it *item) error {
	if b.life.Err() != nil {
		return driver.ErrClosed
	}
	if err := it.m.CheckSize(int(b.limit.Load())); err != nil { // S17
		return err
	}
	it.size = it.m.Size()
	return b.out.put(ctx, it, b.life.Done())
}

// requestTime is what a request of a foreign client has, which sends no
// deadline (S12).
const requestTime = 5 * time.Second

// arrived is a message of the server as the front knows it. The client reads
// each into memory of its own.
func arrived(k driver.Kind, subject string, m *nats.Msg) driver.Message {
	message := driver.FromWire(k, subject, driver.Header(m.Header), m.Data)
	if k == driver.Request {
		message.Return = m.Reply
		if message.Deadline.IsZero() {
			message.Deadline = time.Now().Add(requestTime)
		}
	}
	return message
}

// inbox is where the answers to the requests of this bus arrive: the prefix and
// the number of the request. It is subscribed by the first request.
type inbox struct{ prefix string }

// openInbox returns when answers can arrive.
func (b *Bus) openInbox(ctx context.Context) error {
	key := topicKey{subject: b.inbox.prefix + "*"}
	b.mu.Lock()
	t := b.topics[key]
	if t == nil {
		t = b.newTopic(key)
		t.take = b.answer
	}
	active := t.active
	b.mu.Unlock()
	if active {
		return nil
	}
	return b.await(ctx, t)
}

// answer takes an answer, or the server's word that nobody responds.
func (b *Bus) answer(m *nats.Msg) {
	id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, b.inbox.prefix), 36, 64)
	if err != nil {
		return // no request has that inbox
	}
	b.tell(func(f driver.Front) {
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			f.Fail(id, driver.ErrNoResponders)
			return
		}
		remote := takeServiceError(m)
		a := arrived(driver.Answer, "", m)
		a.ID = id
		if a.Err == nil {
			a.Err = remote
		}
		f.Answer(a)
	})
}

// The header of an answer that is an error, as NATS's own services send it.
const (
	keyServiceError     = "Nats-Service-Error"
	keyServiceErrorCode = "Nats-Service-Error-Code"
)

// serviceError adds an error to the header of an answer, so that foreign clients
// understand it. The header is a copy of its own.
func serviceError(h nats.Header, err *driver.RemoteError) nats.Header {
	h[keyServiceErrorCode] = []string{err.Reason}
	h[keyServiceError] = []string{oneLine(err.Message)}
	return h
}

// oneLine returns the beginning of a text as the value of a header.
func oneLine(text string) string {
	const most = 256
	text = strings.ToValidUTF8(text[:min(len(text), most)], "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text))
}

// takeServiceError removes the error of a foreign service from the header and
// returns it, or nil.
func takeServiceError(m *nats.Msg) *driver.RemoteError {
	code, text := m.Header.Get(keyServiceErrorCode), m.Header.Get(keyServiceError)
	if code == "" && text == "" {
		return nil
	}
	delete(m.Header, keyServiceErrorCode)
	delete(m.Header, keyServiceError)
	return &driver.RemoteError{Reason: reason(code), Message: text}
}

// reason returns a foreign code if it is one of the bus's form.
func reason(code string) string {
	const most = 64
	if code == "" || len(code) > most || strings.ContainsFunc(code, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_", r)
	}) {
		return "error"
	}
	return code
}
