package bus

import (
	"context"
	"fmt"

	"github.com/megaframework/mega/bus/driver"
)

// Topic is a subject, or a pattern, of events that carry a T:
//
//	const Sold = bus.Topic[Sale]("product.sold")
type Topic[T any] string

// Publish encodes v and publishes it. It is JSON unless the options have a
// [Header] that names another Content-Type.
func (t Topic[T]) Publish(ctx context.Context, b *Bus, v T, opts ...PubOption) error {
	data, err := b.Encode(v, opts...)
	if err != nil {
		return fmt.Errorf("publish %s: %w", shorten(string(t)), err)
	}
	return b.Publish(ctx, string(t), data, opts...)
}

// Subscribe calls h with the decoded value of each event. An event that cannot
// be decoded is reported as an ErrDecode of the handler and does not affect
// later ones. MsgFrom(ctx) returns the message itself.
func (t Topic[T]) Subscribe(ctx context.Context, b *Bus, h func(context.Context, T) error, opts ...SubOption) (*Sub, error) {
	return b.subscribe(ctx, string(t), driver.Event, typedHandler(h), atCallSite(opts))
}

func typedHandler[T any](h func(context.Context, T) error) Handler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, m *Msg) error {
		var v T
		if err := m.Decode(&v); err != nil {
			return err
		}
		return h(ctx, v)
	}
}

// Call requests subject with req, encoded as [Topic.Publish] does, and decodes
// the answer. See [Bus.Request] for the errors; an answer that cannot be
// decoded fails with ErrDecode.
func Call[Req, Resp any](ctx context.Context, b *Bus, subject string, req Req, opts ...PubOption) (resp Resp, err error) {
	data, err := b.Encode(req, opts...)
	if err != nil {
		return resp, fmt.Errorf("call %s: %w", shorten(subject), err)
	}
	m, err := b.Request(ctx, subject, data, opts...)
	if err != nil {
		return resp, err
	}
	err = m.Decode(&resp)
	return resp, err
}

// Answer responds to pattern with the result of fn for each request, in the
// encoding of the request. A request that cannot be decoded is answered with an
// error that has the code of ErrDecode.
func Answer[Req, Resp any](ctx context.Context, b *Bus, pattern string, fn func(context.Context, Req) (Resp, error), opts ...SubOption) (*Sub, error) {
	return b.subscribe(ctx, pattern, driver.Request, typedResponder(fn), atCallSite(opts))
}

// RespondValue answers requests whose subject matches pattern with the result
// of fn, in the encoding of the request; bytes are sent unchanged.
func (b *Bus) RespondValue(ctx context.Context, pattern string, fn func(context.Context, *Msg) (any, error), opts ...SubOption) (*Sub, error) {
	var h Handler
	if fn != nil {
		h = func(ctx context.Context, m *Msg) error {
			v, err := fn(ctx, m)
			if err != nil {
				return err
			}
			if data, ok := v.([]byte); ok {
				return keepAnswer(ctx, m, data, "")
			}
			return m.setAnswer(ctx, v)
		}
	}
	return b.subscribe(ctx, pattern, driver.Request, h, atCallSite(opts))
}

func typedResponder[Req, Resp any](fn func(context.Context, Req) (Resp, error)) Handler {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, m *Msg) error {
		var req Req
		if err := m.Decode(&req); err != nil {
			return err
		}
		resp, err := fn(ctx, req)
		if err != nil {
			return err
		}
		return m.setAnswer(ctx, resp)
	}
}

// setAnswer encodes v as the request is.
func (m *Msg) setAnswer(ctx context.Context, v any) error {
	contentType := m.Header.Get(KeyContentType)
	c, err := m.codec(contentType)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDecode, err)
	}
	data, err := c.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer, a %T: %w", v, err)
	}
	return keepAnswer(ctx, m, data, contentType)
}

// Encode encodes v as [Topic.Publish] does with these options. It returns ErrInvalid
// for a Content-Type without a codec, and otherwise the error of the codec.
func (b *Bus) Encode(v any, opts ...PubOption) ([]byte, error) {
	c, err := b.codecs.find(contentType(opts))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	data, err := c.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", v, err)
	}
	return data, nil
}
