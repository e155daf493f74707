package request

import (
	"context"
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/lazyctx"
)

// IDHeader is the header of the id of a request, of HTTP and of the messages that
// the request leads to.
const IDHeader = "X-Request-Id"

// IDOf returns the id of the request that led to m, or "" without a valid one.
func IDOf(m *bus.Msg) string {
	if id := m.Header.Get(IDHeader); idRule.MatchString(id) {
		return id
	}
	return ""
}

// Handle returns a subscription handler of the app that calls fn. The context of fn
// has the work on the message, which continues the request that the message comes
// from, in its log and its trace. It ends when fn has returned.
func (h *Host) Handle(fn bus.Handler) bus.Handler {
	return func(std context.Context, m *bus.Msg) error {
		std, over := h.receive(std, receiving, m)
		err := errHandlerGone
		defer func() { over(err) }()
		err = fn(std, m)
		return err
	}
}

// Answer returns a responder of the app that calls fn, for [bus.Bus.RespondValue],
// with the context of Handle.
func (h *Host) Answer(fn func(context.Context, *bus.Msg) (any, error)) func(context.Context, *bus.Msg) (any, error) {
	return func(std context.Context, m *bus.Msg) (any, error) {
		std, over := h.receive(std, responding, m)
		err := errHandlerGone
		defer func() {
			if errors.Is(err, bus.ErrEnd) {
				err = nil // the end of its answers is no failure
			}
			over(err)
		}()
		v, err := fn(std, m)
		return v, err
	}
}

// errHandlerGone is the outcome of a message whose handler panicked or called
// runtime.Goexit, and of a request whose handler called runtime.Goexit. The bus
// recovers the panic of a message and reports it.
var errHandlerGone = errors.New("the handler did not return")

// receive returns the context of the work on m, and a function that ends the work with
// its outcome.
func (h *Host) receive(std context.Context, d direction, m *bus.Msg) (context.Context, func(error)) {
	span := h.beginMessage(std, d, m.Subject)
	std = span.Context(std)
	work := &Work{Host: h, attrs: []slog.Attr{slog.String("subject", m.Subject)}}
	if id := IDOf(m); id != "" {
		work.ID = id
		work.attrs = append(work.attrs, slog.String("request", id))
	}
	if id := traceOf(std); id != "" {
		work.attrs = append(work.attrs, slog.String("trace_id", id))
	}
	std, end := work.Handling(std)
	return std, func(err error) {
		end()
		span.End(err)
	}
}

// Handling returns the context for the handler of a message, which carries w, and a
// function to call when the handler has returned. The function ends the context.
func (w *Work) Handling(std context.Context) (context.Context, func()) {
	c := &messageContext{Context: std, work: w}
	return c, c.finish // ends forgotten leases and leftover goroutines
}

// messageContext is the context of the work on a message. It ends with the bus's
// context of the message, or when the handler has returned. It makes an inner context
// only when something waits for its end, or looks at it after that: the bus's context
// then makes a timer, which most handlers do not need.
type messageContext struct {
	context.Context // the bus's, under the span
	work            *Work
	lazy            lazyctx.State // ends when the handler has returned
}

// finish ends the context, unless the bus's has ended.
func (c *messageContext) finish() {
	if c.Context.Err() == nil {
		c.lazy.End(ErrHandlerReturned)
	}
}

// inner returns the inner context, which it makes at the first call.
func (c *messageContext) inner() context.Context {
	if in := c.lazy.Inner(); in != nil {
		return in
	}
	std := c.Context
	if c.lazy.Ended() { // the bus's context ends after the handler, too, for another cause
		std = context.WithoutCancel(std)
	}
	std, end := context.WithCancelCause(std)
	return c.lazy.Use(&lazyctx.Inner{Context: std, End: end}, ErrHandlerReturned)
}

// current returns the inner context if there is one or the handler has returned, and
// else the bus's.
func (c *messageContext) current() context.Context {
	if c.lazy.Inner() != nil || c.lazy.Ended() {
		return c.inner()
	}
	return c.Context
}

func (c *messageContext) Done() <-chan struct{} { return c.inner().Done() }

func (c *messageContext) Err() error { return c.current().Err() }

func (c *messageContext) Value(key any) any {
	if key == (Key{}) {
		return c.work
	}
	return c.current().Value(key)
}

// BeginSend begins the span of an event.
func (w *Work) BeginSend(ctx context.Context, subject string) MessageSpan {
	return w.beginMessage(ctx, sending, subject)
}

// BeginRequest begins the span of a request over the bus.
func (w *Work) BeginRequest(ctx context.Context, subject string) MessageSpan {
	return w.beginMessage(ctx, requesting, subject)
}

// direction is the side of a message that a span is on.
type direction struct {
	verb string
	kind trace.SpanKind
}

var (
	sending    = direction{"send", trace.SpanKindProducer}
	requesting = direction{"request", trace.SpanKindClient}
	receiving  = direction{"process", trace.SpanKindConsumer}
	responding = direction{"process", trace.SpanKindServer} // the other side of a client
)

// MessageSpan is the span of a message at its sender or at its receiver. The zero
// MessageSpan records nothing, for a tracer without a receiver.
type MessageSpan struct{ span trace.Span }

func (w *Work) beginMessage(ctx context.Context, d direction, subject string) MessageSpan {
	if w == nil {
		return MessageSpan{}
	}
	return w.Host.beginMessage(ctx, d, subject)
}

func (h *Host) beginMessage(ctx context.Context, d direction, subject string) MessageSpan {
	tracer := h.tracer()
	if tracer == nil {
		return MessageSpan{}
	}
	_, span := tracer.Start(ctx, d.verb+" "+subject, trace.WithSpanKind(d.kind), trace.WithAttributes(
		attribute.String("messaging.operation.name", d.verb),
		attribute.String("messaging.destination.name", subject),
		attribute.String("mega.app.name", h.App.Name),
	))
	return MessageSpan{span}
}

// Context returns ctx with the span as the parent of later ones.
func (s MessageSpan) Context(ctx context.Context) context.Context {
	if s.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// End ends the span with the outcome of the message.
func (s MessageSpan) End(err error) {
	if s.span == nil {
		return
	}
	setError(s.span, err)
	s.span.End()
}

// setError records err as the outcome of a span, unless it is nil.
func setError(span trace.Span, err error) {
	if err == nil {
		return
	}
	code := problemOf(err, nil).Code
	span.SetAttributes(attribute.String("error.type", code))
	span.SetStatus(codes.Error, code)
}
