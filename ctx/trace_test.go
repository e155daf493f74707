package megactx_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	"github.com/megaframework/mega/lock"
)

// traced is a stage whose spans are kept.
func traced(t *testing.T) (*stage, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	s := newStage()
	s.host.Tracer = provider.Tracer("test")
	return s, spans
}

// said are a span's attributes.
func said(span sdktrace.ReadOnlySpan) map[string]any {
	all := map[string]any{}
	for _, a := range span.Attributes() {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

func TestARequestIsASpan(t *testing.T) {
	for _, x := range []struct {
		method, target string
		name           string
		status         int
		code           codes.Code
		route, failure any
	}{
		{"GET", "/products/7?q=x", "GET /products/{id}", 200, codes.Unset, "/products/{id}", nil},
		{"POST", "/fail", "POST /fail", 500, codes.Error, "/fail", "internal"},
		{"GET", "/busy", "GET /busy", 409, codes.Unset, "/busy", "lock.not_acquired"},
		{"GET", "/none", "GET", 404, codes.Unset, nil, "request.not_found"},
		{"BREW", "/products/7", "HTTP", 405, codes.Unset, nil, "request.method_not_allowed"},
	} {
		s, spans := traced(t)
		s.router.Get("/products/{id}", func(c *megactx.Ctx) error { return c.Text(200, "x") })
		s.router.Post("/fail", func(*megactx.Ctx) error { panic("ouch") })
		s.router.Get("/busy", func(*megactx.Ctx) error { return lock.ErrNotAcquired })
		s.ask(x.method, x.target, "", "User-Agent: test", "X-Request-Id: abc-1")
		ended := spans.Ended()
		if len(ended) != 1 {
			t.Fatalf("%s %s: %d spans", x.method, x.target, len(ended))
		}
		span, has := ended[0], said(ended[0])
		if span.Name() != x.name || span.SpanKind() != trace.SpanKindServer || span.Status().Code != x.code {
			t.Errorf("%s %s: %q, %v, %v", x.method, x.target, span.Name(), span.SpanKind(), span.Status())
		}
		for key, want := range map[string]any{
			"http.response.status_code": int64(x.status), "http.route": x.route, "error.type": x.failure, "url.scheme": "http",
			"url.path": strings.TrimSuffix(x.target, "?q=x"), "server.address": "example.com", "client.address": "192.0.2.1",
			"user_agent.original": "test", "network.protocol.version": "1.1", "mega.app.name": "web", "mega.request.id": "abc-1",
		} {
			if has[key] != want {
				t.Errorf("%s %s: %s is %v, want %v", x.method, x.target, key, has[key], want)
			}
		}
	}
}

func TestTheSDKOfTheProgramReceivesSpans(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(*megactx.Ctx) error { return nil })
	s.ask("GET", "/", "") // before the program installs it
	none, spans := otel.GetTracerProvider(), tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	defer otel.SetTracerProvider(none)
	s.ask("GET", "/", "")
	s.ask("GET", "/", "")
	if n := len(spans.Ended()); n != 2 {
		t.Errorf("two requests are %d spans", n)
	}
}

// The conventions have the port of the server apart from its address.
func TestASpanHasTheHostAndThePort(t *testing.T) {
	for host, want := range map[string][2]any{
		"example.com": {"example.com", nil}, "example.com:8080": {"example.com", int64(8080)}, "[::1]:80": {"::1", int64(80)}, "[::1]": {"::1", nil},
	} {
		s, spans := traced(t)
		s.router.Get("/", func(c *megactx.Ctx) error { return c.Text(200, "x") })
		s.ask("GET", "http://"+host+"/", "")
		if has := said(one(t, spans)); has["server.address"] != want[0] || has["server.port"] != want[1] {
			t.Errorf("%s: %v, %v", host, has["server.address"], has["server.port"])
		}
	}
}

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "Traceparent: 00-" + traceID + "-00f067aa0ba902b7-01"
)

func TestATraceGoesOn(t *testing.T) {
	s, spans := traced(t)
	s.router.Get("/", func(c *megactx.Ctx) error {
		_, span := s.host.Tracer.Start(c, "inside")
		span.End()
		c.Go("task", func(c *megactx.Ctx) error {
			_, span := s.host.Tracer.Start(c, "task")
			span.End()
			return nil
		})
		return c.Text(200, baggage.FromContext(c).Member("tenant").Value())
	})
	if w := s.ask("GET", "/", "", parent, "Tracestate: a=b", "Baggage: tenant=blue"); w.Body.String() != "blue" {
		t.Errorf("the baggage is %q", w.Body)
	}
	if err := s.host.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	byName := map[string]sdktrace.ReadOnlySpan{}
	for _, span := range spans.Ended() {
		byName[span.Name()] = span
	}
	request := byName["GET /"]
	if got := request.Parent(); got.SpanID().String() != "00f067aa0ba902b7" || !got.IsRemote() || got.TraceState().Get("a") != "b" {
		t.Errorf("the request's parent is %+v", got)
	}
	for _, name := range []string{"inside", "task"} {
		if span := byName[name]; span == nil || span.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("the span %q is not below the request's", name)
		}
	}
}

func TestTheLogNamesTheTrace(t *testing.T) {
	with, _ := traced(t)
	for name, s := range map[string]*stage{"with an SDK": with, "without": newStage()} {
		s.router.Get("/", func(c *megactx.Ctx) error { c.Log.Info("inside"); return nil })
		s.ask("GET", "/", "", parent)
		if n := strings.Count(s.log.String(), `"trace_id":"`+traceID+`"`); n != 2 {
			t.Errorf("%s: %d lines name the trace:\n%s", name, n, s.log)
		}
	}
	bare := newStage()
	bare.ask("GET", "/", "")
	if strings.Contains(bare.log.String(), "trace_id") {
		t.Errorf("without a trace the log has %s", bare.log)
	}
}

func TestTheLogOfAMessageNamesTheTrace(t *testing.T) {
	s, _ := traced(t)
	handle := s.host.Handle(func(std context.Context, _ *bus.Msg) error {
		c, ok := megactx.From(std)
		if !ok {
			return errors.New("no Ctx")
		}
		c.Log.Info("inside")
		return nil
	})
	ctx, span := s.host.Tracer.Start(t.Context(), "publisher")
	defer span.End()
	if err := handle(ctx, &bus.Msg{Subject: "order.paid"}); err != nil {
		t.Error(err)
	}
	if id := span.SpanContext().TraceID().String(); !strings.Contains(s.log.String(), `"trace_id":"`+id+`"`) {
		t.Errorf("no line names the trace %s:\n%s", id, s.log)
	}
}

func TestAWaitForALockIsASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, spans := traced(t)
		s.host.Locker, _ = newLocker(t)
		c := outside(t.Context(), s.host)
		ways := map[string]func(key string) error{
			"With": func(key string) error {
				return c.Lock.With(key, func(c *megactx.Ctx) error { time.Sleep(time.Minute); return errors.New("of the work") }, lock.Wait(time.Second))
			},
			"Acquire": func(key string) error {
				lease, err := c.Lock.Acquire(key, lock.Wait(time.Second))
				if err == nil {
					err = lease.Release()
				}
				return err
			},
			"TryAcquire": func(key string) error {
				lease, err := c.Lock.TryAcquire(key)
				if err == nil {
					err = lease.Release()
				}
				return err
			},
		}
		for name, take := range ways {
			spans.Reset()
			_ = take("order:42:customer")
			last := one(t, spans)
			has := said(last)
			if last.Name() != "lock.acquire" || last.EndTime().Sub(last.StartTime()) != 0 || last.Status().Code != codes.Unset ||
				has["mega.lock.key_class"] != "order:*" || has["mega.lock.contended"] != false || has["mega.lock.fence"] == "" || has["mega.lock.driver"] != "memory" {
				t.Errorf("%s: took %v, %v, %v", name, last.EndTime().Sub(last.StartTime()), last.Status(), has)
			}
			if strings.Contains(fmt.Sprint(has), "customer") {
				t.Errorf("%s: the key is told: %v", name, has)
			}
		}
		held, err := c.Detach().Lock.Acquire("order:42:customer")
		if err != nil {
			t.Fatal(err)
		}
		for name, take := range ways {
			spans.Reset()
			err := take("order:42:customer")
			last := one(t, spans)
			if !errors.Is(err, lock.ErrNotAcquired) || last.Status().Code != codes.Error || said(last)["error.type"] != "lock.not_acquired" {
				t.Errorf("%s of a busy key: %v, %v, %v", name, err, last.Status(), said(last))
			}
		}
		spans.Reset()
		time.AfterFunc(500*time.Millisecond, func() { _ = held.Release() })
		if err := ways["Acquire"]("order:42:customer"); err != nil {
			t.Fatal(err)
		}
		last := one(t, spans)
		if last.EndTime().Sub(last.StartTime()) != 500*time.Millisecond || said(last)["mega.lock.contended"] != true {
			t.Errorf("a wait of 500 ms: %v, %v", last.EndTime().Sub(last.StartTime()), said(last))
		}
		held, err = c.Detach().Lock.Acquire("order:1")
		if err != nil {
			t.Fatal(err)
		}
		for _, keys := range [][]string{{"order:1", "order:2"}, {"order:2", "order:3"}} {
			spans.Reset()
			time.AfterFunc(500*time.Millisecond, func() { _ = held.Release() })
			if err := c.Lock.WithAll(keys, func(*megactx.Ctx) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if got, want := said(one(t, spans))["mega.lock.contended"], keys[0] == "order:1"; got != want {
				t.Errorf("%v: contended is %v, want %v", keys, got, want)
			}
		}
		again, err := c.Detach().Lock.Acquire("order:1")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(500*time.Millisecond, func() { _ = again.Release() })
		err = c.Lock.With("order:1", func(c *megactx.Ctx) error {
			spans.Reset()
			return c.Lock.WithAll([]string{"order:2"}, func(*megactx.Ctx) error {
				if said(one(t, spans))["mega.lock.contended"] != false {
					t.Error("the locks are contended because of a lease around them")
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func one(t *testing.T, spans *tracetest.SpanRecorder) sdktrace.ReadOnlySpan {
	t.Helper()
	if ended, began := spans.Ended(), spans.Started(); len(ended) != 1 || len(began) != 1 {
		t.Fatalf("%d spans began and %d ended, want one", len(began), len(ended))
	}
	return spans.Ended()[0]
}

func TestTheErrorOfASpanIsMasked(t *testing.T) {
	const password = "hunter2hunter2"
	for _, mask := range []func(string) string{nil, func(s string) string { return strings.ReplaceAll(s, password, "***") }} {
		s, spans := traced(t)
		s.host.Mask = mask
		s.router.Get("/", func(*megactx.Ctx) error { return errors.New("dial redis://app:" + password + "@cache:6379: refused") })
		s.ask("GET", "/", "")
		events := one(t, spans).Events()
		if text := fmt.Sprint(events); len(events) != 1 || strings.Contains(text, password) || !strings.Contains(text, "refused") {
			t.Errorf("got %s", text)
		}
	}
}

func TestAnAbortedRequestIsAnErrorOfItsSpan(t *testing.T) {
	s, spans := traced(t)
	s.router.Get("/", func(*megactx.Ctx) error { panic(http.ErrAbortHandler) })
	func() {
		defer func() { _ = recover() }()
		s.ask("GET", "/", "")
	}()
	if span := one(t, spans); span.Status().Code != codes.Error || said(span)["error.type"] != "request.aborted" || said(span)["http.route"] != "/" {
		t.Errorf("got %v, %v", span.Status(), said(span))
	}
}

func BenchmarkRequest(b *testing.B) {
	for name, prepare := range map[string]func(h *request.Host){
		"without an SDK": func(*request.Host) {},
		"with an SDK": func(h *request.Host) {
			h.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropped{})).Tracer("bench")
		},
		"with a timeout": func(h *request.Host) {
			if err := h.SetLimits(request.Limits{Timeout: time.Minute}); err != nil {
				b.Fatal(err)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			h := &request.Host{Log: slog.New(slog.NewJSONHandler(nowhere{}, nil))}
			prepare(h)
			router := router.New(h)
			router.Get("/products/{id}", func(c *megactx.Ctx) error { return c.Text(200, c.Param("id")) })
			handler := router.Handler()
			r := httptest.NewRequest("GET", "/products/7", nil)
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}

// dropped takes spans and keeps none.
type dropped struct{ sdktrace.SpanProcessor }

func (dropped) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	s.SetAttributes(attribute.Bool("seen", true))
}
func (dropped) OnEnd(sdktrace.ReadOnlySpan) {}

// The bus recovers the panic of a handler, after the span of its message.
func TestSpanOfAMessageEndsWithAPanicOfItsHandler(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("ouch") }, "Goexit": runtime.Goexit} {
		s, spans := traced(t)
		handle := s.host.Handle(func(context.Context, *bus.Msg) error { fail(); return nil })
		answer := s.host.Answer(func(context.Context, *bus.Msg) (any, error) { fail(); return nil, nil })
		for _, call := range []func(){
			func() { _ = handle(t.Context(), &bus.Msg{Subject: "order.paid"}) },
			func() { _, _ = answer(t.Context(), &bus.Msg{Subject: "order.paid"}) },
		} {
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { _ = recover() }()
				call()
			})
			wg.Wait()
		}
		ended := spans.Ended()
		if len(ended) != 2 {
			t.Fatalf("%s: %d spans", name, len(ended))
		}
		if event, request := ended[0].SpanKind(), ended[1].SpanKind(); event != trace.SpanKindConsumer || request != trace.SpanKindServer {
			t.Errorf("%s: the span of an event is a %v, that of a request a %v", name, event, request)
		}
		for _, span := range ended {
			if span.Status().Code != codes.Error || said(span)["error.type"] != "internal" {
				t.Errorf("%s: %v, %v", name, span.Status(), said(span))
			}
		}
	}
}

func TestARequestToManyIsASpan(t *testing.T) {
	s, spans := traced(t)
	s.host.Bus = newBus(t)
	if _, err := s.host.Bus.Respond(t.Context(), "x", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	c, _ := megactx.From(s.host.Context(t.Context()))
	for subject, failure := range map[string]any{"x": nil, "nobody": "bus.no_responders"} {
		for _, err := range c.Bus.RequestMany(subject, 1, bus.Count(1)) {
			if (err != nil) != (failure != nil) {
				t.Errorf("%s: %v", subject, err)
			}
		}
		ended := spans.Ended()
		span := ended[len(ended)-1]
		if span.Name() != "request "+subject || span.SpanKind() != trace.SpanKindClient || said(span)["error.type"] != failure {
			t.Errorf("%s: %q, %v, %v", subject, span.Name(), span.SpanKind(), said(span))
		}
	}
}

// ErrEnd is how a responder ends its answers, not a failure.
func TestTheEndOfAnswersIsNoErrorOfASpan(t *testing.T) {
	s, spans := traced(t)
	s.host.Bus = newBus(t)
	_, err := s.host.Bus.RespondValue(t.Context(), "x", s.host.Answer(func(context.Context, *bus.Msg) (any, error) {
		return nil, fmt.Errorf("that was all: %w", bus.ErrEnd)
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.host.Bus.RequestMany(t.Context(), "x", nil) {
		t.Error(err)
	}
	if span := one(t, spans); span.Status().Code != codes.Unset || said(span)["error.type"] != nil {
		t.Errorf("%v, %v", span.Status(), said(span))
	}
}
