package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// prefix returns the prefix of a kind's subjects on NATS.
func (c Config) prefix(k driver.Kind) string {
	if k == driver.Request {
		return c.Prefix + c.RequestPrefix
	}
	return c.Prefix + c.EventPrefix
}

// allowed refuses a subject or pattern of a kind without a prefix if it would
// match the other kind, or answers (S3).
func (b *Bus) allowed(k driver.Kind, s string) error {
	switch {
	case k == driver.Event && b.config.Raw:
		return b.config.allowed(s, b.config.RequestPrefix, "events", "requests")
	case k == driver.Request && b.config.RawRequests:
		return b.config.allowed(s, b.config.EventPrefix, "requests", "events")
	}
	return nil
}

// allowed refuses a subject or pattern that matches one below the prefix of the other
// kind or of answers. The default prefix of answers needs no check: the front refuses
// subjects that begin with its first character.
func (c Config) allowed(s, prefix, these, others string) error {
	err := apart(s, prefix, these, others)
	inbox, below := strings.CutPrefix(c.InboxPrefix+".", c.Prefix)
	if err != nil || !below || inbox == "" || inbox == "." {
		return err
	}
	return apart(s, inbox, these, "answers")
}

func apart(s, prefix, these, others string) error {
	first, _, _ := strings.Cut(s, ".")
	if first == "*" || first == ">" {
		return fmt.Errorf("%w: %q begins with a wildcard, and %s have no prefix", driver.ErrBadSubject, s, these)
	}
	if s+"." == prefix || overlap(s, prefix+">") {
		return fmt.Errorf("%w: %q is or matches a subject below the prefix of %s", driver.ErrBadSubject, s, others)
	}
	return nil
}

// Publish implements [driver.Driver].
func (b *Bus) Publish(ctx context.Context, m driver.Message) error {
	if err := b.allowed(driver.Event, m.Subject); err != nil {
		return err
	}
	it := item{subject: m.Subject, kind: driver.Event}
	if m.Hops > 0 || !m.Deadline.IsZero() {
		it.special = newSpecial(&m)
	}
	return b.put(ctx, &m, &it)
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
	inbox, err := b.openInbox(ctx, l, m.Deadline)
	if err != nil {
		return err
	}
	it := item{subject: m.Subject, kind: driver.Request, special: newSpecial(&m)}
	it.special.reply = b.inbox.prefix + strconv.FormatUint(m.ID, 36)
	it.special.ctx, it.special.link, it.special.inbox = ctx, l, inbox
	return b.put(ctx, &m, &it)
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
		return nil // a foreign publisher that expects no answer
	}
	answer.Subject = to
	if answer.Err == nil && !answer.End && isNoResponders(&nats.Msg{Header: nats.Header(answer.Header), Data: answer.Data}) {
		answer.Header = maps.Clone(answer.Header)
		answer.Header.Set(keyAnswer, "1")
	}
	return b.put(ctx, &answer, &item{subject: to, kind: driver.Answer, special: newSpecial(&answer)})
}

func newSpecial(m *driver.Message) *special {
	s := &special{m: *m}
	s.m.Data, s.m.Header = nil, nil // the outbox copies them
	return s
}

// put accepts a message.
func (b *Bus) put(ctx context.Context, m *driver.Message, it *item) error {
	if b.life.Err() != nil {
		return driver.ErrClosed
	}
	if len(m.Header) == 0 {
		return b.accept(ctx, m, it, nil, m.Size()+serviceErrorSize(m.Err))
	}
	// Iterating over a map is the largest cost here, so it happens once.
	var few [8]pair
	header, size := listHeader(few[:0], m)
	return b.accept(ctx, m, it, header, size+serviceErrorSize(m.Err))
}

func (b *Bus) accept(ctx context.Context, m *driver.Message, it *item, header []pair, size int) error {
	if most := int(b.limit.Load()); size > most { // S17
		return &driver.TooLargeError{Subject: m.Subject, Size: size, Limit: most}
	}
	it.size = int32(size) //nolint:gosec // the limit is one
	return b.out.put(ctx, m, it, header, b.life.Done())
}

// listHeader appends the header of m to list, and returns the size of m too.
func listHeader(list []pair, m *driver.Message) ([]pair, int) {
	bare := *m
	bare.Header = nil
	size := bare.Size()
	if size == len(m.Data) { // without a header, Size omits the header's first line
		size += len("NATS/1.0\r\n\r\n")
	}
	for key, values := range m.Header {
		list = append(list, pair{key, values})
		for _, v := range values {
			size += len(key) + len(": ") + len(v) + len("\r\n")
		}
	}
	return list, size
}

// requestTime is the timeout of a request from a foreign client, which sends no
// deadline (S12).
const requestTime = 5 * time.Second

// arrived converts a message of the server to the front's form. The client
// allocates new memory for each message.
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

// inbox is the subject of the answers to the requests of this bus: the prefix
// and the number of the request. The first request subscribes to it.
type inbox struct{ prefix string }

func (i inbox) key() topicKey { return topicKey{subject: i.prefix + "*"} }

// openInbox returns the inbox's topic when answers can arrive. It waits at most
// until deadline, and while the link lasts (S12).
func (b *Bus) openInbox(ctx context.Context, l *link, deadline time.Time) (*topic, error) {
	key := b.inbox.key()
	b.mu.Lock()
	t := b.topics[key]
	if t == nil {
		t = b.newTopic(key)
		t.take = b.answer
	}
	active := t.active
	b.mu.Unlock()
	if active {
		return t, nil
	}
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := b.await(bounded, t, l.over)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", driver.ErrTimeout, err)
	}
	return t, err
}

// answer handles an answer, or the server's report that no responder exists.
func (b *Bus) answer(m *nats.Msg) {
	id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, b.inbox.prefix), 36, 64)
	if err != nil {
		return // no request has that inbox
	}
	b.notify(func(f driver.Front) {
		if isNoResponders(m) {
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

// keyAnswer is in an answer that would be the server's report without it. FromWire
// removes it.
const keyAnswer = "Bus-Answer"

// The header of an answer that is an error, in the form of NATS's own services.
const (
	keyServiceError     = "Nats-Service-Error"
	keyServiceErrorCode = "Nats-Service-Error-Code"
)

// serviceError adds an error to h, the header of an answer that no one else has,
// so that foreign clients understand it. It returns h.
func serviceError(h nats.Header, err *driver.RemoteError) nats.Header {
	h[keyServiceErrorCode] = []string{err.Reason}
	h[keyServiceError] = []string{oneLine(err.Message)}
	return h
}

// serviceErrorSize returns the bytes that serviceError adds to a header.
func serviceErrorSize(err *driver.RemoteError) int {
	if err == nil {
		return 0
	}
	const rest = len(keyServiceErrorCode) + len(keyServiceError) + 2*len(": \r\n")
	return rest + len(err.Reason) + len(oneLine(err.Message))
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
	return &driver.RemoteError{Reason: code, Message: text}
}

// isNoResponders reports whether the server has answered that no responder
// exists. A responder's answer may also have a header Status, but then it has others
// too.
func isNoResponders(m *nats.Msg) bool {
	if len(m.Data) > 0 || m.Header.Get("Status") != "503" {
		return false
	}
	for key := range m.Header {
		if key != "Status" && key != "Description" && !strings.HasPrefix(key, "Nats-") {
			return false
		}
	}
	return true
}
