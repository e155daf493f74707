package megactx

import (
	"context"
	"fmt"
	"iter"
	"runtime"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
)

// Bus is a view of the process's message bus that is bound to a Ctx. Its
// messages carry the trace and the request id of the Ctx. Its calls and
// subscriptions end with the Ctx.
//
// A value is encoded as JSON, unless an option has a header that names another
// Content-Type. Bytes are sent unchanged.
//
// A method returns the errors of the same method of [bus.Bus]; on the zero Bus it
// returns ErrNotConfigured.
type Bus struct {
	bus *bus.Bus
	ctx *Ctx
}

// Publish sends an event to the subscribers of subject. It returns once the bus has
// accepted the event, and does not wait for handlers: see [bus.Bus.Publish].
func (b Bus) Publish(subject string, v any, opts ...bus.PubOption) (err error) {
	if b.bus == nil {
		return errNoBus
	}
	data, err := b.encode(v, opts)
	if err != nil {
		return fmt.Errorf("publish %s: %w", subject, err)
	}
	span := b.ctx.work.BeginSend(b.ctx, subject)
	err = b.bus.Publish(span.Context(b.ctx), subject, data, opts...)
	span.End(err)
	return err
}

// Request sends a request to a responder of subject and returns the answer. It
// waits until the Ctx ends, or for 5 s if the Ctx has no deadline; the Ctx of a
// request has one. For the errors see [bus.Bus.Request].
func (b Bus) Request(subject string, v any, opts ...bus.PubOption) (answer *bus.Msg, err error) {
	if b.bus == nil {
		return nil, errNoBus
	}
	data, err := b.encode(v, opts)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, err)
	}
	span := b.ctx.work.BeginRequest(b.ctx, subject)
	answer, err = b.bus.Request(span.Context(b.ctx), subject, data, opts...)
	span.End(err)
	return answer, err
}

// RequestMany sends a request to all responders of subject and yields their
// answers; see [bus.Bus.RequestMany].
func (b Bus) RequestMany(subject string, v any, opts ...bus.ManyOption) iter.Seq2[*bus.Msg, error] {
	if b.bus == nil {
		return failing(errNoBus)
	}
	var sent []bus.PubOption // of the request: its Content-Type decides
	for _, o := range opts {
		if o, ok := o.(bus.PubOption); ok {
			sent = append(sent, o)
		}
	}
	data, err := b.encode(v, sent)
	if err != nil {
		return failing(fmt.Errorf("request %s: %w", subject, err))
	}
	return func(yield func(*bus.Msg, error) bool) {
		span := b.ctx.work.BeginRequest(b.ctx, subject)
		var failed error
		defer func() { span.End(failed) }()
		for m, err := range b.bus.RequestMany(span.Context(b.ctx), subject, data, opts...) {
			if failed = err; !yield(m, err) {
				return
			}
		}
	}
}

func failing(err error) iter.Seq2[*bus.Msg, error] {
	return func(yield func(*bus.Msg, error) bool) { yield(nil, err) }
}

func (b Bus) encode(v any, opts []bus.PubOption) ([]byte, error) {
	if data, ok := v.([]byte); ok {
		return data, nil
	}
	return b.bus.Encode(v, opts...)
}

// Subscribe calls h with every event whose subject matches pattern, one after
// the other. It ends when the subscription is stopped or this Ctx ends: in a
// handler, when the request is over. The Ctx that h receives ends when h has
// returned, and can answer the request, as a stream does. An error of h by which this
// Ctx has ended, such as that its client has left, is no failure.
func (b Bus) Subscribe(pattern string, h func(*Ctx, *bus.Msg) error, opts ...bus.SubOption) (*bus.Sub, error) {
	opts = atCallSite(opts)
	switch {
	case b.bus == nil:
		return nil, errNoBus
	case h == nil:
		return b.bus.Subscribe(b.ctx, pattern, nil, opts...) // returns an error that describes the mistake
	}
	return b.bus.Subscribe(b.ctx, pattern, func(std context.Context, m *bus.Msg) error {
		std, over := b.ctx.work.Handling(std)
		defer over()
		err := h(b.ctx.WithContext(std), m)
		if b.ctx.endedWith(err) {
			return nil
		}
		return err
	}, opts...)
}

// Respond answers requests whose subject matches pattern with the result of r,
// in the encoding of the request. It ends when the subscription is stopped or
// this Ctx ends. The Ctx that r receives ends when r has returned.
func (b Bus) Respond(pattern string, r func(*Ctx, *bus.Msg) (any, error), opts ...bus.SubOption) (*bus.Sub, error) {
	opts = atCallSite(opts)
	switch {
	case b.bus == nil:
		return nil, errNoBus
	case r == nil:
		return b.bus.RespondValue(b.ctx, pattern, nil, opts...) // returns an error that describes the mistake
	}
	return b.bus.RespondValue(b.ctx, pattern, func(std context.Context, m *bus.Msg) (any, error) {
		std, over := b.ctx.work.Handling(std)
		defer over()
		return r(b.ctx.WithContext(std), m)
	}, opts...)
}

// atCallSite adds the call site of the caller of its caller. An option of that
// caller has precedence.
func atCallSite(opts []bus.SubOption) []bus.SubOption {
	_, file, line, _ := runtime.Caller(2)
	return append([]bus.SubOption{bus.Site(fmt.Sprintf("%s:%d", file, line))}, opts...)
}

// Flush waits until the backend has accepted everything that was published
// before.
func (b Bus) Flush() error {
	if b.bus == nil {
		return errNoBus
	}
	return b.bus.Flush(b.ctx)
}

// Stats returns the counters of this process's bus, or zero without a
// configured bus.
func (b Bus) Stats() bus.Stats {
	if b.bus == nil {
		return bus.Stats{}
	}
	return b.bus.Stats()
}

// Info returns the driver that carries the messages and its guarantees, or zero
// without a configured bus.
func (b Bus) Info() driver.Info {
	if b.bus == nil {
		return driver.Info{}
	}
	return b.bus.Info()
}

// Publish sends v as an event of its topic, as [Bus.Publish] does.
func Publish[T any](c *Ctx, topic bus.Topic[T], v T, opts ...bus.PubOption) error {
	return c.Bus.Publish(string(topic), v, opts...)
}

// Call requests subject with req, as [Bus.Request] does, and decodes the
// answer. It returns bus.ErrDecode if the answer cannot be decoded.
func Call[Req, Resp any](c *Ctx, subject string, req Req, opts ...bus.PubOption) (resp Resp, err error) {
	m, err := c.Bus.Request(subject, req, opts...)
	if err != nil {
		return resp, err
	}
	err = m.Decode(&resp)
	return resp, err
}
