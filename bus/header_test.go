package bus_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/megaframework/mega/bus"
)

func TestHeadersTravelAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var got bus.Headers
		subscribe(t, b, "a", func(_ context.Context, m *bus.Msg) error { got = m.Header; return nil })
		publish(t, b, "a", "", bus.Header("X-Case", "1"), bus.Header("x-case", "ä€ 😀"), bus.Header("X-Case", ""), bus.ID("42"))
		synctest.Wait()
		want := bus.Headers{"X-Case": {"1", ""}, "x-case": {"ä€ 😀"}, bus.KeyID: {"42"}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestBadHeadersAreRefused(t *testing.T) {
	b := newBus(t, bus.Config{})
	many := make([]bus.PubOption, 65)
	for i := range many {
		many[i] = bus.Header(fmt.Sprint("k", i), "v")
	}
	if err := b.Publish(t.Context(), "a", nil, many[:64]...); err != nil {
		t.Errorf("64 keys: %v", err)
	}
	if err := b.Publish(t.Context(), "a", nil, bus.Header("k", strings.Repeat("v", bus.MaxHeader-1))); err != nil {
		t.Errorf("8 KiB: %v", err)
	}
	for name, opts := range map[string][]bus.PubOption{
		"65 keys":           many,
		"over 8 KiB":        {bus.Header("k", strings.Repeat("v", bus.MaxHeader))},
		"an empty key":      {bus.Header("", "v")},
		"a space in a key":  {bus.Header("a b", "v")},
		"a colon in a key":  {bus.Header("a:b", "v")},
		"an umlaut":         {bus.Header("ä", "v")},
		"CR":                {bus.Header("k", "a\rb")},
		"LF":                {bus.Header("k", "a\nX: y")},
		"NUL":               {bus.Header("k", "a\x00b")},
		"a space in front":  {bus.Header("k", " v")},
		"a tab behind":      {bus.Header("k", "v\t")},
		"invalid UTF-8":     {bus.Header("k", "\xff")},
		"a reserved key":    {bus.Header("Bus-Hops", "1")},
		"an id as a header": {bus.Header(bus.KeyID, "1")},
		"reserved for NATS": {bus.Header("nats-Msg-Id", "1")},
		"a bad id":          {bus.ID("a\nb")},
	} {
		if err := b.Publish(t.Context(), "a", nil, opts...); !errors.Is(err, bus.ErrBadHeader) {
			t.Errorf("%s: got %v, want ErrBadHeader", name, err)
		}
		if _, err := b.Request(t.Context(), "a", nil, opts...); !errors.Is(err, bus.ErrBadHeader) {
			t.Errorf("%s: request: got %v, want ErrBadHeader", name, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add("k", "v")
	f.Add("X-Long", "a b")
	f.Add("Nats-X", "")
	f.Add("k", "a\r\nb")
	f.Fuzz(func(t *testing.T, key, value string) {
		b := newBus(t, bus.Config{})
		got := make(chan bus.Headers, 1)
		subscribe(t, b, "a", func(_ context.Context, m *bus.Msg) error { got <- m.Header; return nil })
		err := b.Publish(t.Context(), "a", nil, bus.Header(key, value))
		switch {
		case err != nil && !errors.Is(err, bus.ErrBadHeader):
			t.Errorf("%q: %q: %v", key, value, err)
		case err != nil:
		case strings.ContainsAny(key+value, "\r\n\x00") || !utf8.ValidString(value) || strings.ContainsAny(key, ": "):
			t.Errorf("%q: %q was accepted", key, value)
		default:
			if h := <-got; !maps.EqualFunc(h, bus.Headers{key: {value}}, func(a, b []string) bool { return reflect.DeepEqual(a, b) }) {
				t.Errorf("%q: %q became %q", key, value, h)
			}
		}
	})
}

const (
	traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceState  = "rojo=00f067aa0ba902b7"
)

func TestTraceAndBaggageArePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var event, request bus.Headers
		respond(t, b, "c", func(_ context.Context, m *bus.Msg) ([]byte, error) { request = m.Header; return nil, nil })
		subscribe(t, b, "b", func(_ context.Context, m *bus.Msg) error { event = m.Header; return nil })
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			_, err := b.Request(ctx, "c", nil)
			return errors.Join(err, b.Publish(ctx, "b", nil, bus.Header("own", "1"), bus.Header("baggage", "mine=1")))
		})
		publish(t, b, "a", "", bus.Header("traceparent", traceParent), bus.Header("tracestate", traceState), bus.Header("baggage", "user=7"), bus.Header("baggage", "tenant=1"), bus.Header("own", "0"))
		synctest.Wait()
		if want := (bus.Headers{"traceparent": {traceParent}, "tracestate": {traceState}, "baggage": {"user=7", "tenant=1"}}); !reflect.DeepEqual(request, want) {
			t.Errorf("the request has %q, want %q", request, want)
		}
		if want := (bus.Headers{"traceparent": {traceParent}, "tracestate": {traceState}, "baggage": {"mine=1"}, "own": {"1"}}); !reflect.DeepEqual(event, want) {
			t.Errorf("the event has %q, want %q", event, want)
		}
	})
}

func TestAnInvalidTraceIsNotPassedOn(t *testing.T) {
	bad := []string{
		"", "00", traceParent[:54], traceParent + "-x", "ff" + traceParent[2:], strings.ToUpper(traceParent),
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		strings.ReplaceAll(traceParent, "-", "_"), "01" + traceParent[2:] + "x",
	}
	for i := range traceParent {
		for _, c := range "/:`g" { // beside the hexadecimal digits
			bad = append(bad, traceParent[:i]+string(c)+traceParent[i+1:])
		}
	}
	for _, bad := range bad {
		synctest.Test(t, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			var passed bus.Headers
			subscribe(t, b, "b", func(_ context.Context, m *bus.Msg) error { passed = m.Header; return nil })
			subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error { return b.Publish(ctx, "b", nil) })
			publish(t, b, "a", "", bus.Header("traceparent", bad), bus.Header("tracestate", traceState))
			synctest.Wait()
			if passed != nil {
				t.Errorf("%q was passed on: %q", bad, passed)
			}
		})
	}
}

func TestATraceOfALaterVersionIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var passed log
		subscribe(t, b, "b", func(_ context.Context, m *bus.Msg) error { passed.add(m.Header.Get("traceparent")); return nil })
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error { return b.Publish(ctx, "b", nil) })
		later := []string{"01" + traceParent[2:], "fe" + traceParent[2:] + "-x", strings.NewReplacer("0", "9", "f", "a").Replace(traceParent)}
		for _, trace := range later {
			publish(t, b, "a", "", bus.Header("traceparent", trace))
		}
		synctest.Wait()
		passed.want(t, later...)
	})
}

func TestHooksCarryTheTrace(t *testing.T) {
	type spanKey struct{}
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{
			Inject: func(ctx context.Context, h bus.Headers) {
				if span, ok := ctx.Value(spanKey{}).(string); ok {
					h.Set("traceparent", span)
					h.Set("bad", "not\nsent")
					h.Set("Bus-Hops", "0")
				}
			},
			Extract: func(ctx context.Context, h bus.Headers) context.Context {
				return context.WithValue(ctx, spanKey{}, h.Get("traceparent")+"'")
			},
		})
		var got bus.Headers
		subscribe(t, b, "b", func(_ context.Context, m *bus.Msg) error { got = m.Header; return nil })
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error { return b.Publish(ctx, "b", nil) })
		if err := b.Publish(context.WithValue(t.Context(), spanKey{}, "span"), "a", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if want := (bus.Headers{"traceparent": {"span'"}}); !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestATraceOfTheCallerReplacesTheInjectedOne(t *testing.T) {
	b := newBus(t, bus.Config{Inject: func(_ context.Context, h bus.Headers) {
		h.Set("traceparent", "injected")
		h.Set("tracestate", "injected=1")
		h.Set("baggage", "injected=1")
		h.Set("x", "injected")
	}})
	respond(t, b, "a", func(_ context.Context, m *bus.Msg) ([]byte, error) { return fmt.Appendf(nil, "%q", m.Header), nil })
	for want, opts := range map[string][]bus.PubOption{
		`map["baggage":["injected=1"] "traceparent":["own"] "x":["injected"]]`:                               {bus.Header("traceparent", "own")},
		`map["baggage":["injected=1"] "traceparent":["injected"] "tracestate":["injected=1"] "x":["a" "b"]]`: {bus.Header("x", "a"), bus.Header("x", "b")},
		`map["baggage":["own=1"] "traceparent":["injected"] "tracestate":["injected=1"] "x":["injected"]]`:   {bus.Header("baggage", "own=1")},
	} {
		if m, err := b.Request(t.Context(), "a", nil, opts...); err != nil || string(m.Data) != want {
			t.Errorf("got %s, %v, want %s", m.Data, err, want)
		}
	}
}

func TestATraceThatDoesNotFitIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var got bus.Headers
		large := strings.Repeat("v", bus.MaxHeader-100)
		subscribe(t, b, "b", func(_ context.Context, m *bus.Msg) error { got = m.Header; return nil })
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			return b.Publish(ctx, "b", nil, bus.Header("k", large))
		})
		publish(t, b, "a", "", bus.Header("traceparent", traceParent), bus.Header("baggage", "b="+strings.Repeat("x", 200)))
		synctest.Wait()
		if want := (bus.Headers{"k": {large}, "traceparent": {traceParent}}); !reflect.DeepEqual(got, want) {
			t.Errorf("got the keys %q", got.Keys())
		}
	})
}
