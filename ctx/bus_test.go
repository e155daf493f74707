package megactx_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	"github.com/megaframework/mega/lock"
)

type sale struct {
	Product string `json:"product"`
}

const sold = bus.Topic[sale]("product.sold")

// newBus is a bus as boot makes it.
func newBus(t *testing.T) *bus.Bus {
	t.Helper()
	b, err := bus.New(memory.NewBus(), bus.Config{Inject: megactx.Inject, Extract: megactx.Extract})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// answerOf serves one request by h and returns the answer.
func answerOf(t *testing.T, host *request.Host, h megactx.Handler, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := router.New(host)
	r.Post("/", h)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	request.Header.Set("Accept", "application/json")
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		request.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, request)
	return w
}

func TestEventContinuesItsRequest(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	host := &request.Host{Bus: newBus(t), App: request.App{Name: "web"}}
	type seen struct{ request, trace, tenant, product, app string }
	got := make(chan seen, 1)
	_, err := host.Bus.Subscribe(t.Context(), string(sold), host.Handle(func(ctx context.Context, m *bus.Msg) error {
		c, _ := megactx.From(ctx)
		var s sale
		err := m.Decode(&s)
		got <- seen{m.Header.Get("X-Request-Id"), trace.SpanContextFromContext(c).TraceID().String(), baggage.FromContext(c).Member("tenant").Value(), s.Product, c.App.Name}
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	w := answerOf(t, host, func(c *megactx.Ctx) error { return megactx.Publish(c, sold, sale{"lamp"}) },
		"X-Request-Id: r-1", "Traceparent: 00-"+id+"-b7ad6b7169203331-01", "Baggage: tenant=blue")
	if w.Code != http.StatusNoContent {
		t.Fatalf("answered %d: %s", w.Code, w.Body)
	}
	s := <-got
	if s != (seen{"r-1", id, "blue", "lamp", "web"}) {
		t.Errorf("the event came as %+v", s)
	}
}

func TestForgottenLeaseOfAMessageIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, told := newLocker(t)
		host := &request.Host{Bus: newBus(t), Locker: locker}
		leases := make(chan *lock.Lease, 4) // so that they are not garbage
		work := func(ctx context.Context, m *bus.Msg) error {
			c, _ := megactx.From(ctx)
			lease, err := c.Lock.Acquire(m.Subject)
			leases <- lease
			return err
		}
		_, err := host.Bus.Subscribe(t.Context(), string(sold), host.Handle(work))
		if err != nil {
			t.Fatal(err)
		}
		_, err = host.Bus.RespondValue(t.Context(), "stock.get", host.Answer(func(ctx context.Context, m *bus.Msg) (any, error) { return nil, work(ctx, m) }))
		if err != nil {
			t.Fatal(err)
		}
		c := outside(t.Context(), host)
		_, err = c.Bus.Subscribe("own.sold", func(c *megactx.Ctx, m *bus.Msg) error { return work(c, m) })
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Bus.Respond("own.get", func(c *megactx.Ctx, m *bus.Msg) (any, error) { return nil, work(c, m) })
		if err != nil {
			t.Fatal(err)
		}
		for _, subject := range []string{string(sold), "own.sold"} {
			if err := c.Bus.Publish(subject, sale{"lamp"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, subject := range []string{"stock.get", "own.get"} {
			if _, err := c.Bus.Request(subject, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second) // fake time: at the latest a TTL later
		synctest.Wait()
		for range 4 {
			lease := <-leases
			if cause := context.Cause(lease.Context()); lease.Err() == nil || !errors.Is(cause, megactx.ErrHandlerReturned) {
				t.Errorf("%s: the lease is %v, its context ended because of %v", lease.Key(), lease.Err(), cause)
			}
		}
		if all := told.forgotten(); len(all) != 4 {
			t.Errorf("forgotten: %+v, want four", all)
		}
	})
}

// unwatched is a context that counts the calls of Done, which cost the bus a timer.
type unwatched struct {
	context.Context
	calls *int
}

func (u unwatched) Done() <-chan struct{} { *u.calls++; return u.Context.Done() }

// The context of a message costs nothing until something waits for its end.
func TestContextOfAMessageWaitsForNothingByItself(t *testing.T) {
	calls := 0
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	var kept context.Context
	keep := func(ctx context.Context, _ *bus.Msg) error {
		kept = ctx
		c, _ := megactx.From(ctx)
		return c.Err()
	}
	host := &request.Host{}
	if err := host.Handle(keep)(unwatched{parent, &calls}, &bus.Msg{Subject: "x"}); err != nil || calls != 0 {
		t.Errorf("%v, %d calls of Done", err, calls)
	}
	if !errors.Is(kept.Err(), context.Canceled) || !errors.Is(context.Cause(kept), megactx.ErrHandlerReturned) {
		t.Errorf("after the handler: %v because of %v", kept.Err(), context.Cause(kept))
	}
	<-kept.Done()

	var below context.Context
	derive := func(ctx context.Context, m *bus.Msg) error {
		var end context.CancelFunc
		below, end = context.WithCancel(ctx)
		t.Cleanup(end)
		if below.Err() != nil {
			t.Error(below.Err())
		}
		return keep(ctx, m)
	}
	if err := host.Handle(derive)(unwatched{parent, &calls}, &bus.Msg{Subject: "x"}); err != nil {
		t.Error(err)
	}
	if !errors.Is(context.Cause(below), megactx.ErrHandlerReturned) {
		t.Errorf("below it: %v", context.Cause(below))
	}

	ended := func(ctx context.Context, _ *bus.Msg) error { cancel(); <-ctx.Done(); return ctx.Err() }
	if err := host.Handle(ended)(unwatched{parent, &calls}, &bus.Msg{Subject: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("with the subscription: %v", err)
	}
}

func TestCallIsAnswered(t *testing.T) {
	host := &request.Host{Bus: newBus(t)}
	c := outside(t.Context(), host)
	_, err := c.Bus.Respond("stock.get", func(_ *megactx.Ctx, m *bus.Msg) (any, error) {
		var s sale
		if err := m.Decode(&s); err != nil {
			return nil, err
		}
		return map[string]int{s.Product: 3}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := megactx.Call[sale, map[string]int](c, "stock.get", sale{"lamp"})
	if err != nil || got["lamp"] != 3 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestSubscriptionOfARequestEndsWithIt(t *testing.T) {
	host := &request.Host{Bus: newBus(t)}
	var sub *bus.Sub
	answerOf(t, host, func(c *megactx.Ctx) (err error) {
		sub, err = c.Bus.Subscribe("product.>", func(*megactx.Ctx, *bus.Msg) error { return nil })
		return err
	})
	select {
	case <-sub.Done():
	case <-time.After(5 * time.Second):
		t.Error("it goes on after the request")
	}
}

// The guide sends events of the bus to a stream like this. Its client leaves while an
// event is sent, before or after its request has ended.
func TestHandlerThatFailsByTheEndOfItsRequestHasNotFailed(t *testing.T) {
	for name, cause := range map[string]error{"write": nil, "client": context.Canceled, "shutdown": megactx.ErrShuttingDown} {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			s.host.Bus = newBus(t)
			var sent error
			s.router.Get("/", func(c *megactx.Ctx) error {
				return c.SSE(func(stream *megactx.Stream) error {
					sub, err := c.Bus.Subscribe("product.sold", func(*megactx.Ctx, *bus.Msg) error {
						sent = stream.Send("", "x")
						return sent
					})
					if err != nil {
						return err
					}
					if err := megactx.Publish(c, sold, sale{"lamp"}); err != nil {
						return err
					}
					<-sub.Done()
					return nil
				})
			})
			ctx, end := context.WithCancelCause(t.Context())
			w := &cutOff{httptest.NewRecorder(), func() {
				if cause != nil {
					end(cause)
				}
			}}
			s.router.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
			if err := s.host.Bus.Close(); err != nil { // the handler has returned
				t.Fatal(err)
			}
			if total := s.host.Bus.Stats().Total; !errors.Is(sent, errReset) || total.Failed != 0 {
				t.Errorf("Send returned %v, the counters are %+v", sent, total)
			}
		})
	}
}

func TestErrorsOfTheBusAreAnswers(t *testing.T) {
	host := &request.Host{Bus: newBus(t)}
	fails := func(err error) func(*megactx.Ctx, *bus.Msg) (any, error) {
		return func(*megactx.Ctx, *bus.Msg) (any, error) { return nil, err }
	}
	c := outside(t.Context(), host)
	if _, err := c.Bus.Respond("fails", fails(&bus.RemoteError{Reason: "stock.unknown", Message: "secret"})); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		do     megactx.Handler
		status int
		code   string
	}{
		"nobody":      {func(c *megactx.Ctx) error { _, err := c.Bus.Request("nobody", nil); return err }, 502, "bus.no_responders"},
		"remote":      {func(c *megactx.Ctx) error { _, err := c.Bus.Request("fails", nil); return err }, 502, "stock.unknown"},
		"subject":     {func(c *megactx.Ctx) error { return c.Bus.Publish("no spaces", nil) }, 400, "bus.bad_subject"},
		"too large":   {func(c *megactx.Ctx) error { return c.Bus.Publish("x", make([]byte, 2<<20)) }, 413, "bus.too_large"},
		"overloaded":  {func(*megactx.Ctx) error { return bus.ErrOverloaded }, 503, "bus.overloaded"},
		"refused":     {func(*megactx.Ctx) error { return bus.ErrRefused }, 502, "bus.refused"},
		"no answer":   {func(*megactx.Ctx) error { return bus.ErrTimeout }, 504, "bus.timeout"},
		"not encoded": {func(c *megactx.Ctx) error { return c.Bus.Publish("x", func() {}) }, 500, "internal"},
	} {
		w := answerOf(t, host, x.do)
		if w.Code != x.status || !strings.Contains(w.Body.String(), `"code":"`+x.code+`"`) || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: answered %d %s, want %d with %s", name, w.Code, w.Body, x.status, x.code)
		}
	}
}

func TestMissingBusIsAnError(t *testing.T) {
	var b megactx.Bus
	_, subscribed := b.Subscribe("x", nil)
	_, responds := b.Respond("x", nil)
	_, asked := b.Request("x", nil)
	var many error
	for _, err := range b.RequestMany("x", nil) {
		many = err
	}
	for name, err := range map[string]error{
		"publish": b.Publish("x", nil), "subscribe": subscribed, "respond": responds, "request": asked, "many": many, "flush": b.Flush(),
	} {
		if !errors.Is(err, megactx.ErrNotConfigured) || !strings.Contains(err.Error(), "no bus") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.Info().Name != "" || b.Stats().Published != 0 {
		t.Error("there is something")
	}
}

func TestSubscriberIsKnownByTheHandlersLine(t *testing.T) {
	host := &request.Host{Bus: newBus(t)}
	if _, err := outside(t.Context(), host).Bus.Subscribe("x", func(*megactx.Ctx, *bus.Msg) error { return nil }); err != nil {
		t.Fatal(err)
	}
	subs := host.Bus.Stats().Subs
	if len(subs) != 1 || !strings.Contains(subs[0].Site, "bus_test.go:") {
		t.Errorf("the subscriptions are %+v", subs)
	}
}
