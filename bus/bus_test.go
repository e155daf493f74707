package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
)

// log is what handlers have seen, in order.
type log struct {
	mu   sync.Mutex
	seen []string
}

func (l *log) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, s)
}

func (l *log) handler(_ context.Context, m *bus.Msg) error {
	l.add(string(m.Data))
	return nil
}

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

func (l *log) want(t *testing.T, want ...string) {
	t.Helper()
	if got := l.all(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPublishReachesMatchingSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var exact, one, rest, other log
		subscribe(t, b, "orders.eu.created", exact.handler)
		subscribe(t, b, "orders.*.created", one.handler)
		subscribe(t, b, "orders.>", rest.handler)
		subscribe(t, b, "orders", other.handler)
		publish(t, b, "orders.eu.created", "1")
		publish(t, b, "orders.us.created", "2")
		publish(t, b, "orders.us", "3")
		synctest.Wait()
		exact.want(t, "1")
		one.want(t, "1", "2")
		rest.want(t, "1", "2", "3")
		other.want(t)
	})
}

func TestRequestReachesItsResponder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		subscribe(t, b, ">", func(context.Context, *bus.Msg) error { t.Error("an event"); return nil })
		respond(t, b, "double.*", func(_ context.Context, m *bus.Msg) ([]byte, error) {
			return append(m.Data, m.Data...), nil
		})
		m, err := b.Request(t.Context(), "double.it", []byte("ab"))
		if err != nil || string(m.Data) != "abab" {
			t.Errorf("got %v, %v", m, err)
		}
	})
}

func TestAnOptionThatFailsSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var l log
		subscribe(t, b, "a", l.handler)
		respond(t, b, "a", func(context.Context, *bus.Msg) ([]byte, error) { l.add("request"); return nil, nil })
		broken := errors.New("broken")
		_, requestErr := b.Request(t.Context(), "a", nil, bus.Fail(broken))
		_, manyErr := gather(b, t.Context(), "a", bus.Fail(broken))
		for _, err := range []error{b.Publish(t.Context(), "a", nil, bus.Fail(broken)), requestErr, manyErr} {
			if !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		l.want(t)
	})
}

func TestTheCallSiteOfASubscriptionCanBeSet(t *testing.T) {
	b := newBus(t, bus.Config{})
	if s := subscribe(t, b, "a", ignore, bus.Site("app.go:7")); s.Stats().Site != "app.go:7" {
		t.Errorf("got %q", s.Stats().Site)
	}
}

func TestStatsListSubscriptionsByName(t *testing.T) {
	b := newBus(t, bus.Config{})
	var want, got []string
	for name := 'a'; name <= 'j'; name++ {
		want = append(want, string(name))
		subscribe(t, b, "x", func(context.Context, *bus.Msg) error { return nil }, bus.Name(string(name)))
	}
	for _, s := range b.Stats().Subs {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestAMessageHasTheNameOfItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var l log
		h := func(_ context.Context, m *bus.Msg) error { l.add(m.Subscription()); return nil }
		subscribe(t, b, "a", h, bus.Name("ledger"))
		subscribe(t, b, "*", h)
		respond(t, b, "a", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
		publish(t, b, "a", "")
		m, err := b.Request(t.Context(), "a", nil)
		if err != nil || m.Subscription() != "" {
			t.Errorf("an answer: %q, %v", m.Subscription(), err)
		}
		synctest.Wait()
		if got := slices.Sorted(slices.Values(l.all())); !slices.Equal(got, []string{"*", "ledger"}) {
			t.Errorf("got %q", got)
		}
	})
}

func TestRequestFailsAsItsResponderDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		fail := map[string]error{
			"plain":  errors.New("no"),
			"coded":  fmt.Errorf("sell: %w", bus.ErrOverloaded),
			"cut":    bus.ErrDisconnected,
			"ended":  bus.ErrTerminated,
			"late":   bus.ErrTimeout,
			"remote": fmt.Errorf("sell: %w", &bus.RemoteError{Reason: "stock.gone", Message: "none left", Retryable: true}),
		}
		respond(t, b, "fail.*", func(_ context.Context, m *bus.Msg) ([]byte, error) {
			if m.Subject == "fail.panic" {
				panic("secret")
			}
			return nil, fail[m.Subject[len("fail."):]]
		})
		for name, want := range map[string]bus.RemoteError{
			"plain":  {Reason: "error", Message: "no"},
			"coded":  {Reason: "bus.overloaded", Message: "sell: bus: overloaded", Retryable: true},
			"cut":    {Reason: "bus.disconnected", Message: bus.ErrDisconnected.Error(), Retryable: true},
			"ended":  {Reason: "bus.terminated", Message: bus.ErrTerminated.Error(), Retryable: true},
			"late":   {Reason: "bus.timeout", Message: bus.ErrTimeout.Error()},
			"remote": {Reason: "stock.gone", Message: "none left", Retryable: true},
			"panic":  {Reason: "panic", Message: "the responder panicked"},
		} {
			_, err := b.Request(t.Context(), "fail."+name, nil)
			if got, ok := errors.AsType[*bus.RemoteError](err); !ok || *got != want {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
		if _, err := b.Request(t.Context(), "nobody", nil); !errors.Is(err, bus.ErrNoResponders) {
			t.Errorf("nobody: got %v", err)
		}
	})
}

func TestRequestTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		respond(t, b, "slow", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
			<-ctx.Done() // which has the request's deadline
			time.Sleep(time.Second)
			return []byte("late"), nil
		})
		start := time.Now()
		_, err := b.Request(t.Context(), "slow", nil)
		if !errors.Is(err, bus.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("after %v got %v", time.Since(start), err)
		}
		time.Sleep(2 * time.Second)
		if st := b.Stats(); st.Late != 1 || st.InFlight != 0 {
			t.Errorf("stats are %+v", st)
		}
	})
}

func TestDrainHandlesQueuedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var seen log
		subscribe(t, b, "a", func(ctx context.Context, m *bus.Msg) error {
			time.Sleep(time.Second)
			if err := b.Publish(ctx, "b", m.Data); err != nil {
				t.Error(err)
			}
			return seen.handler(ctx, m)
		})
		for i := range 10 {
			publish(t, b, "a", fmt.Sprint(i))
		}
		if err := b.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		seen.want(t, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
		if err := b.Publish(t.Context(), "a", nil); !errors.Is(err, bus.ErrClosed) {
			t.Errorf("publish after drain: %v", err)
		}
	})
}
