package request

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/lock"
)

// instrumentation is the name of the tracer.
const instrumentation = "github.com/megaframework/mega/ctx"

// tracing finds the Tracer of a Host.
type tracing struct {
	global atomic.Pointer[trace.Tracer] // the global provider's, once there is one
}

// tracer returns the tracer, or nil if nothing records spans, so that they cost
// nothing.
func (h *Host) tracer() trace.Tracer {
	if h.Tracer != nil {
		return h.Tracer
	}
	if known := h.tracing.global.Load(); known != nil {
		return *known
	}
	provider := otel.GetTracerProvider()
	if isPlaceholder(provider) {
		return nil
	}
	t := provider.Tracer(instrumentation)
	h.tracing.global.Store(&t)
	return t
}

// isPlaceholder reports whether p is the API's provider before an SDK is
// installed. Nothing would record its spans.
func isPlaceholder(p trace.TracerProvider) bool {
	t := reflect.TypeOf(p)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "go.opentelemetry.io/otel/internal/global"
}

// beginSpan continues the trace of a request, or begins one. The span is nil if
// nothing records it.
func (h *Host) beginSpan(ctx context.Context, r *http.Request) (context.Context, trace.Span) {
	carrier := propagation.HeaderCarrier(r.Header)
	if len(r.Header["Traceparent"]) > 0 {
		ctx = propagation.TraceContext{}.Extract(ctx, carrier)
	}
	if len(r.Header["Baggage"]) > 0 {
		ctx = propagation.Baggage{}.Extract(ctx, carrier)
	}
	tracer := h.tracer()
	if tracer == nil {
		return ctx, nil
	}
	return tracer.Start(ctx, methodOf(r.Method), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(h.requestAttributes(r)...))
}

// methodOf bounds the number of span names: a client can send any method.
func methodOf(method string) string {
	known := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}
	if slices.Contains(known, method) {
		return method
	}
	return "HTTP"
}

// requestAttributes returns the attributes of OpenTelemetry's semantic
// conventions.
func (h *Host) requestAttributes(r *http.Request) []attribute.KeyValue {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil { // no port
		host = strings.Trim(r.Host, "[]")
	}
	all := []attribute.KeyValue{
		attribute.String("http.request.method", r.Method),
		attribute.String("url.scheme", scheme),
		attribute.String("url.path", r.URL.Path),
		attribute.String("server.address", host),
		attribute.String("network.protocol.version", strings.TrimPrefix(r.Proto, "HTTP/")),
		attribute.String("mega.app.name", h.App.Name),
	}
	if methodOf(r.Method) != r.Method {
		all[0] = attribute.String("http.request.method", "_OTHER")
		all = append(all, attribute.String("http.request.method_original", r.Method))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		all = append(all, attribute.Int("server.port", int(n)))
	}
	if client, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		all = append(all, attribute.String("client.address", client))
	}
	if agent := r.UserAgent(); agent != "" {
		all = append(all, attribute.String("user_agent.original", agent))
	}
	return all
}

// endSpan ends the span of a request with its outcome.
func (h *Host) endSpan(rec *record, o outcome, r Finished) {
	if rec.span == nil {
		return
	}
	if r.Route != "" {
		rec.span.SetName(methodOf(r.Method) + " " + r.Route)
		rec.span.SetAttributes(attribute.String("http.route", r.Route))
	}
	rec.span.SetAttributes(attribute.String("mega.request.id", rec.id))
	if r.Status != 0 {
		rec.span.SetAttributes(attribute.Int("http.response.status_code", r.Status))
	}
	if o.code != "" {
		rec.span.SetAttributes(attribute.String("error.type", o.code))
	}
	if o.errStatus >= 500 || r.Status >= 500 || r.Status == 0 { // a client's mistake is not the service's error
		rec.span.SetStatus(codes.Error, o.code)
		if o.err != nil {
			rec.span.AddEvent("exception", trace.WithAttributes(
				attribute.String("exception.type", fmt.Sprintf("%T", o.err)),
				attribute.String("exception.message", h.masked(o.err.Error())), // RecordError would not mask it
			))
		}
	}
	rec.span.End()
}

func (h *Host) masked(text string) string {
	if h.Mask != nil {
		return h.Mask(text)
	}
	return mask.Text(text)
}

// traceOf returns the id of the trace that ctx belongs to, or "".
func traceOf(ctx context.Context) string {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		return span.TraceID().String()
	}
	return ""
}

// Wait is the span around a wait for a lock, and the record of the wait for
// the page of an error. The zero value records nothing.
type Wait struct {
	span trace.Span
	use  *lockUse
}

// BeginWait begins a span beside ctx, not on it: the work under the lock is no
// part of the wait. Its caller is a method of the Ctx.
func (w *Work) BeginWait(ctx context.Context, l *lock.Locker, keys ...string) Wait {
	if w == nil {
		return Wait{}
	}
	wait := Wait{use: w.inspect(keys)}
	tracer := w.Host.tracer()
	if tracer == nil {
		return wait
	}
	_, wait.span = tracer.Start(ctx, "lock.acquire", trace.WithAttributes(
		attribute.String("mega.lock.key_class", keyClass(keys...)),
		attribute.String("mega.lock.driver", l.Info().Name),
	))
	return wait
}

// End ends the wait with its outcome.
func (w *Wait) End(lease *lock.Lease, err error) {
	if err != nil {
		w.Refused(err)
		return
	}
	w.Granted(lease)
}

// Granted ends the wait with one or several leases, the innermost first.
func (w *Wait) Granted(leases ...*lock.Lease) {
	w.use.granted(leases[0])
	if w.span == nil {
		return
	}
	w.span.SetAttributes(
		attribute.Bool("mega.lock.contended", slices.ContainsFunc(leases, (*lock.Lease).Contended)),
		attribute.String("mega.lock.fence", strconv.FormatUint(leases[0].Fence(), 10)),
	)
	w.endSpan()
}

// Refused ends the wait without a lease, unless the wait has ended, and the work
// under a lease with the result of With.
func (w *Wait) Refused(err error) {
	w.use.end(err)
	if w.span == nil {
		return
	}
	setError(w.span, err)
	w.endSpan()
}

func (w *Wait) endSpan() {
	w.span.End()
	w.span = nil
}

// keyClass returns the common part of keys that differ in their ids: "order:*",
// or the key itself if it has no colon. Whole keys may name people. Keys of
// several classes have the classes in order, "order:*, stock:*".
func keyClass(keys ...string) string {
	classes := make([]string, len(keys))
	for i, key := range keys {
		classes[i] = key
		if class, _, ok := strings.Cut(key, ":"); ok {
			classes[i] = class + ":*"
		}
	}
	slices.Sort(classes)
	return strings.Join(slices.Compact(classes), ", ")
}
