package bus

import (
	"context"
	"fmt"

	"github.com/megaframework/mega/bus/driver"
)

// Msg is a message that a handler gets, or the answer to a request. It must not
// be changed, since its data are shared with the other subscriptions of this
// process. It may be kept.
type Msg struct {
	Subject string  // of an answer, the subject of its request
	Header  Headers // nil if there is none
	Data    []byte  // not nil
	// Missed is the number of messages of the subscription that were lost
	// between the message handled before and this one, because the buffer was
	// full or the backend dropped them. It is -1 if the number is unknown, as
	// after an outage. See [OnGap] for a copy of a state that messages update.
	Missed int

	bus      *Bus
	delivery *delivery // nil for an answer
}

// ID returns the id that the sender set with [ID], or "".
func (m *Msg) ID() string { return m.Header.Get(KeyID) }

// Subscription returns the name of the subscription that got the message, see
// [Name], or "" for an answer.
func (m *Msg) Subscription() string {
	if m.delivery == nil {
		return ""
	}
	return m.delivery.sub.name
}

// Decode decodes the data into v, with the codec of the Content-Type, or as
// JSON without a Content-Type. The error wraps ErrDecode.
func (m *Msg) Decode(v any) error {
	contentType := m.Header.Get(KeyContentType)
	c, err := m.codec(contentType)
	if err == nil {
		err = c.Unmarshal(m.Data, v)
	}
	if err != nil {
		return fmt.Errorf("%w %s into %T: %w", ErrDecode, m.Subject, v, err)
	}
	return nil
}

func (m *Msg) codec(contentType string) (Codec, error) {
	if m.bus == nil {
		return codecs(nil).find(contentType)
	}
	return m.bus.codecs.find(contentType)
}

// Reply sends an answer to a request before the one that the responder returns:
// a responder may answer a [Bus.RequestMany] with several answers, and end them
// by returning ErrEnd. Reply fails if m is not a request.
func (m *Msg) Reply(ctx context.Context, data []byte) error {
	d := m.delivery
	if d == nil || d.request() == nil {
		return fmt.Errorf("reply to %s: %w", m.Subject, invalid("it is no request"))
	}
	b := d.sub.bus
	if b.isClosed() {
		return fmt.Errorf("reply to %s: %w", m.Subject, ErrClosed)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("reply to %s: %w", m.Subject, contextError(ctx))
	}
	a := driver.Message{Kind: driver.Answer, Subject: m.Subject, ID: d.extra.request.ID, More: true, Data: b.own(data)}
	if d.extra.answer != nil {
		a.Header = cloneHeader(d.extra.answer.header) // the responder may add to its own
	}
	if err := b.checkSize(&a); err != nil {
		return fmt.Errorf("reply to %s: %w", m.Subject, err)
	}
	if err := b.driver.Answer(ctx, d.extra.request, a); err != nil {
		return b.refused(ctx, "reply to", m.Subject, err)
	}
	return nil
}
