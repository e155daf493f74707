package megactx

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/lock"
)

// Inject copies the trace, the baggage and the request id of ctx to the header
// of a message, for use as [bus.Config].Inject.
func Inject(ctx context.Context, h bus.Headers) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		propagation.TraceContext{}.Inject(ctx, h)
	}
	propagation.Baggage{}.Inject(ctx, h)
	if work := request.Of(ctx); work != nil && work.ID != "" {
		h.Set(request.IDHeader, work.ID)
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

// Identify adds the app and the request of ctx to a lock's Holder, for use as
// [lock.Config].Identify.
func Identify(ctx context.Context, h *lock.Holder) {
	if c, ok := ctx.Value(ctxKey{}).(*Ctx); ok {
		h.App = c.App.Name
		if c.work != nil {
			h.Request = c.work.ID
		}
	}
}
