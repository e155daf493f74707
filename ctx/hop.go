package megactx

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/megaframework/mega/bus"
)

// keyRequest carries the id of the request that led to a message.
const keyRequest = "X-Request-Id"

// Inject copies the trace, the baggage and the request id of ctx to the header
// of a message, for use as [bus.Config].Inject.
func Inject(ctx context.Context, h bus.Headers) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		propagation.TraceContext{}.Inject(ctx, h)
	}
	propagation.Baggage{}.Inject(ctx, h)
	if c, ok := ctx.Value(ctxKey{}).(*Ctx); ok && c.asked.id != "" {
		h.Set(keyRequest, c.asked.id)
	}
}

// Extract copies the trace and the baggage of a message to ctx, for use as
// [bus.Config].Extract.
func Extract(ctx context.Context, h bus.Headers) context.Context {
	if h.Get("traceparent") != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, h)
	}
	if h.Get("baggage") != "" {
		ctx = propagation.Baggage{}.Extract(ctx, h)
	}
	return ctx
}

// Handle returns a subscription handler of the app that calls fn. The Ctx of fn
// continues the request that the message comes from, in its log and its trace.
func (h *Host) Handle(fn func(*Ctx, *bus.Msg) error) bus.Handler {
	return func(std context.Context, m *bus.Msg) error {
		c, hop := h.receive(std, m)
		err := fn(c, m)
		hop.over(err)
		return err
	}
}

// Answer returns a responder of the app that calls fn, for
// [bus.Bus.RespondValue].
func (h *Host) Answer(fn func(*Ctx, *bus.Msg) (any, error)) func(context.Context, *bus.Msg) (any, error) {
	return func(std context.Context, m *bus.Msg) (any, error) {
		c, hop := h.receive(std, m)
		v, err := fn(c, m)
		hop.over(err)
		return v, err
	}
}

func (h *Host) receive(std context.Context, m *bus.Msg) (*Ctx, hop) {
	c := h.New(std)
	hop := c.beginHop(receiving, m.Subject)
	c = c.WithContext(hop.on(std))
	attrs := []any{"subject", m.Subject}
	if id := m.Header.Get(keyRequest); idRule.MatchString(id) {
		c.asked.id = id
		attrs = append(attrs, "request", id)
	}
	if id := traceOf(c); id != "" {
		attrs = append(attrs, "trace", id)
	}
	c.Log = c.Log.With(attrs...)
	return c, hop
}

// direction is the side of a message that a hop is on.
type direction struct {
	verb string
	kind trace.SpanKind
}

var (
	sending   = direction{"send", trace.SpanKindProducer}
	asking    = direction{"request", trace.SpanKindClient}
	receiving = direction{"process", trace.SpanKindConsumer}
)

// hop is the span around a message on one of its sides. The zero hop records
// nothing, for a tracer without a receiver.
type hop struct{ span trace.Span }

func (c *Ctx) beginHop(d direction, subject string) hop {
	if c.host == nil {
		return hop{}
	}
	tracer := c.host.tracer()
	if tracer == nil {
		return hop{}
	}
	_, span := tracer.Start(c, d.verb+" "+subject, trace.WithSpanKind(d.kind), trace.WithAttributes(
		attribute.String("messaging.operation.name", d.verb),
		attribute.String("messaging.destination.name", subject),
		attribute.String("mega.app.name", c.App.Name),
	))
	return hop{span}
}

// on returns ctx under the hop's span.
func (h hop) on(ctx context.Context) context.Context {
	if h.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, h.span)
}

func (h hop) over(err error) {
	if h.span == nil {
		return
	}
	if err != nil {
		code := problemOf(err, nil).Code
		h.span.SetAttributes(attribute.String("error.type", code))
		h.span.SetStatus(codes.Error, code)
	}
	h.span.End()
}
