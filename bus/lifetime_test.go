package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

func TestSubscribeMeansActive(t *testing.T) {
	b := newBus(t, bus.Config{})
	for range suite.Scaled(10_000) {
		got := make(chan struct{})
		s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { close(got); return nil })
		publish(t, b, "a", "")
		<-got
		s.Stop()
	}
}

func TestStopDiscardsQueuedMessages(t *testing.T) {
	for name, opts := range map[string][]bus.SubOption{
		"serial":   {},
		"parallel": {bus.Concurrency(2)},
		"in lanes": {bus.Concurrency(2), bus.OrderBy(func(m *bus.Msg) string { return string(m.Data) })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				l := newGatedLog()
				s := subscribe(t, b, "a", l.handler, opts...)
				publishAll(t, b, "a", 1, 10)
				synctest.Wait()
				running := s.Stats().Running
				s.Stop()
				s.Stop()
				publishAll(t, b, "a", 11, 12)
				select {
				case <-s.Done():
					t.Error("it is done while a handler runs")
				default:
				}
				close(l.gate)
				<-s.Done()
				st := s.Stats()
				if len(l.all()) != running || st.Discarded != uint64(10-running) || s.Err() != nil {
					t.Errorf("handled %q, stats %+v, err %v", l.all(), st, s.Err())
				}
				checkSum(t, st)
				if total := b.Stats().Total; total.Handled != st.Handled || total.Discarded != st.Discarded {
					t.Errorf("the total is %+v", total)
				}
			})
		})
	}
}

// The end of the context is Stop also for the message behind the one that is
// being handled, whoever hears of the end first.
func TestEndOfTheContextStartsNothingMore(t *testing.T) {
	for range suite.Scaled(1000) {
		b := newBus(t, bus.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		queued := make(chan struct{})
		s, err := b.Subscribe(ctx, "a", func(ctx context.Context, _ *bus.Msg) error {
			<-queued
			cancel()
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		publishAll(t, b, "a", 1, 2)
		close(queued)
		<-s.Done()
		if st := s.Stats(); st.Handled != 1 || st.Discarded != 1 {
			t.Fatalf("one of two was under way when the context ended: %+v", st)
		}
	}
}

// After Stop has returned, only a handler that had been given its message
// before may still begin.
func TestStopMeansStopped(t *testing.T) {
	b := newBus(t, bus.Config{})
	publishing := true
	var publisher sync.WaitGroup
	var mu sync.RWMutex
	publisher.Go(func() {
		for {
			mu.RLock()
			ok := publishing
			mu.RUnlock()
			if !ok {
				return
			}
			publish(t, b, "a", "")
		}
	})
	for range suite.Scaled(2000) {
		var stopped atomic.Bool
		var late atomic.Int64
		s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error {
			if stopped.Load() {
				late.Add(1)
			}
			return nil
		})
		s.Stop()
		stopped.Store(true)
		<-s.Done()
		if n := late.Load(); n > 1 {
			t.Fatalf("%d handlers began after Stop", n)
		}
	}
	mu.Lock()
	publishing = false
	mu.Unlock()
	publisher.Wait()
}

func TestTheEndOfItsContextIsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		type key struct{}
		var ended error
		var value any
		s, err := b.Subscribe(context.WithValue(ctx, key{}, "v"), "a", func(ctx context.Context, _ *bus.Msg) error {
			value = ctx.Value(key{})
			<-ctx.Done()
			ended = context.Cause(ctx)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		publish(t, b, "a", "")
		synctest.Wait()
		gone := errors.New("the client has gone")
		cancel(gone)
		<-s.Done()
		if !errors.Is(ended, gone) || value != "v" || !errors.Is(s.Err(), context.Canceled) || !errors.Is(s.Err(), gone) {
			t.Errorf("the handler's context ended with %v and had %v, the subscription with %v", ended, value, s.Err())
		}
		if n := len(b.Stats().Subs); n != 0 {
			t.Errorf("%d subscriptions are left", n)
		}
		if _, err := b.Subscribe(ctx, "a", func(context.Context, *bus.Msg) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("subscribe with an ended context: %v", err)
		}
	})
}

func TestEveryCallIsLegalInAHandler(t *testing.T) {
	for name, call := range map[string]func(context.Context, *bus.Bus, *bus.Sub) error{
		"Stop":      func(_ context.Context, _ *bus.Bus, s *bus.Sub) error { s.Stop(); return nil },
		"Sub.Drain": func(ctx context.Context, _ *bus.Bus, s *bus.Sub) error { return s.Drain(ctx) },
		"Drain":     func(ctx context.Context, b *bus.Bus, _ *bus.Sub) error { return b.Drain(ctx) },
		"Flush":     func(ctx context.Context, b *bus.Bus, _ *bus.Sub) error { return b.Flush(ctx) },
		"Stats":     func(_ context.Context, b *bus.Bus, s *bus.Sub) error { s.Stats(); b.Stats(); return nil },
		"Publish":   func(ctx context.Context, b *bus.Bus, _ *bus.Sub) error { return b.Publish(ctx, "b", nil) },
		"Subscribe": func(ctx context.Context, b *bus.Bus, _ *bus.Sub) error {
			_, err := b.Subscribe(ctx, "b", func(context.Context, *bus.Msg) error { return nil })
			return err
		},
		"Request": func(ctx context.Context, b *bus.Bus, _ *bus.Sub) error {
			_, err := b.Request(ctx, "echo", nil)
			return err
		},
		"Close": func(_ context.Context, b *bus.Bus, _ *bus.Sub) error { return b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := bus.New(memoryBus(), bus.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				var s *bus.Sub
				var got error
				returned := false
				if _, err := b.Respond(t.Context(), "echo", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil }); err != nil {
					t.Fatal(err)
				}
				s, err = b.Subscribe(t.Context(), "a", func(ctx context.Context, _ *bus.Msg) error {
					got = call(ctx, b, s)
					returned = true
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				publish(t, b, "a", "")
				time.Sleep(time.Minute)
				synctest.Wait()
				if !returned || got != nil {
					t.Errorf("returned %v, %v", returned, got)
				}
			})
		})
	}
}

// Publishing never waits for a handler, so a mutex that both take is no
// deadlock.
func TestAMutexThatPublisherAndHandlerTake(t *testing.T) {
	b := newBus(t, bus.Config{})
	var mu sync.Mutex
	s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		return nil
	})
	mu.Lock()
	for range suite.Scaled(70_000) { // more than the buffer takes
		publish(t, b, "a", "")
	}
	mu.Unlock()
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	checkSum(t, s.Stats())
}

func TestTwoSubscriptionsThatFeedEachOtherAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o})
		forward := func(to string) bus.Handler {
			return func(ctx context.Context, m *bus.Msg) error { return b.Publish(ctx, to, m.Data) }
		}
		subscribe(t, b, "a", forward("b"), bus.Buffer(1, 1))
		subscribe(t, b, "b", forward("a"), bus.Buffer(1, 1))
		publish(t, b, "a", "x")
		synctest.Wait()
		failed := of[bus.HandlerFailed](&o)
		if st := b.Stats(); len(failed) != 1 || !errors.Is(failed[0].Err, bus.ErrCycle) || st.Published != bus.MaxHops+1 {
			t.Errorf("reported %+v after %d messages", failed, st.Published)
		}
	})
}

func TestSubDrainHandlesQueuedMessagesAndAcceptsNoMore(t *testing.T) {
	for name, opts := range map[string][]bus.SubOption{
		"serial":   {},
		"parallel": {bus.Concurrency(3)},
		"in lanes": {bus.Concurrency(3), bus.OrderBy(func(m *bus.Msg) string { return string(m.Data) })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				var l log
				s := subscribe(t, b, "a", func(ctx context.Context, m *bus.Msg) error {
					time.Sleep(time.Second)
					return l.handler(ctx, m)
				}, opts...)
				publishAll(t, b, "a", 1, 10)
				go func() {
					time.Sleep(time.Second / 2)
					publishAll(t, b, "a", 11, 12)
				}()
				if err := s.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				if n := len(l.all()); n != 10 {
					t.Errorf("handled %d of 10", n)
				}
				if err := errors.Join(s.Drain(t.Context()), s.Err()); err != nil {
					t.Errorf("a second Drain: %v", err)
				}
				checkSum(t, s.Stats())
			})
		})
	}
}

func TestSubDrainEndsAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var ended error
		s := subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			<-ctx.Done()
			ended = context.Cause(ctx)
			return nil
		}, bus.Name("ledger"))
		publishAll(t, b, "a", 1, 5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := s.Drain(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second || err.Error() != "drain ledger: context deadline exceeded: 4 messages were not handled and 1 handlers were still running" {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		<-s.Done()
		if ended == nil || !strings.Contains(ended.Error(), "draining") {
			t.Errorf("the handler's context ended with %v", ended)
		}
		checkSum(t, s.Stats())
	})
}

// A handler, and a goroutine with its context, waits for the handlers of other
// subscriptions, and not for itself.
func TestAHandlerThatDrainsWaitsForOtherSubscriptions(t *testing.T) {
	for name, drain := range map[string]func(context.Context, *bus.Bus, *bus.Sub) error{
		"Sub.Drain": func(ctx context.Context, _ *bus.Bus, s *bus.Sub) error { return s.Drain(ctx) },
		"Drain":     func(ctx context.Context, b *bus.Bus, _ *bus.Sub) error { return b.Drain(ctx) },
		"in a goroutine": func(ctx context.Context, b *bus.Bus, _ *bus.Sub) error {
			err := make(chan error)
			go func() { err <- b.Drain(ctx) }()
			return <-err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				start := time.Now()
				slow := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { time.Sleep(time.Minute); return nil })
				var took time.Duration
				drains := subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
					err := drain(ctx, b, slow)
					took = time.Since(start)
					return err
				})
				publish(t, b, "a", "")
				time.Sleep(time.Hour)
				synctest.Wait()
				if took != time.Minute || drains.Stats().Failed != 0 {
					t.Errorf("after %v: %+v", took, drains.Stats())
				}
			})
		})
	}
}

// Two handlers would wait for each other: one drains the Bus, and the other one drains
// the subscription of the first.
func TestAHandlerMayDrainASubscriptionThatDrainsTheBus(t *testing.T) {
	for name, x := range map[string]struct{ ofSub, ofBus time.Duration }{ // when each of the two begins
		"Drain, then Sub.Drain": {2 * time.Second, time.Second},
		"Sub.Drain, then Drain": {time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				first := subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
					time.Sleep(x.ofBus)
					return b.Drain(ctx)
				})
				second := subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
					time.Sleep(x.ofSub)
					return first.Drain(ctx)
				})
				publish(t, b, "a", "")
				time.Sleep(time.Hour)
				for _, s := range []*bus.Sub{first, second} {
					select {
					case <-s.Done():
					default:
						t.Fatalf("a handler does not return: %+v", s.Stats())
					}
				}
				if n := first.Stats().Failed + second.Stats().Failed; n != 0 {
					t.Errorf("%d handlers have failed", n)
				}
			})
		})
	}
}

// Each handler drains the subscription of the next one, and the last one that of the
// first: without an exception all of them would wait for ever.
func TestHandlersMayDrainSubscriptionsInACircle(t *testing.T) {
	for name, x := range map[string]struct {
		n     int
		apart time.Duration // between the calls
		outer bool          // the Bus is drained meanwhile
	}{
		"two":                  {n: 2, apart: time.Second},
		"two at once":          {n: 2},
		"five":                 {n: 5, apart: time.Second},
		"five at once":         {n: 5},
		"while the Bus drains": {n: 3, apart: time.Second, outer: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				subs := make([]*bus.Sub, x.n)
				for i := range subs {
					subs[i] = subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
						time.Sleep(time.Second + time.Duration(i)*x.apart)
						return subs[(i+1)%x.n].Drain(ctx)
					})
				}
				publish(t, b, "a", "")
				if x.outer {
					time.Sleep(time.Second + x.apart/2)
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					if err := b.Drain(ctx); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Hour)
				for _, s := range subs {
					select {
					case <-s.Done():
					default:
						t.Fatalf("a handler does not return: %+v", s.Stats())
					}
					if s.Stats().Failed != 0 {
						t.Errorf("a handler has failed: %+v", s.Stats())
					}
				}
			})
		})
	}
}

// The handler that closes a circle is the only one that does not wait, and a Drain that
// has given up is in no circle.
func TestSubDrainInAHandlerWaitsUnlessItClosesACircle(t *testing.T) {
	for name, x := range map[string]struct{ bound, want time.Duration }{
		"the other waits":   {time.Hour, 2 * time.Second}, // at once when it closes the circle
		"the other gave up": {time.Second, time.Minute},   // when the other handler returns
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBus(t, bus.Config{})
				start := time.Now()
				var first, second *bus.Sub
				var took time.Duration
				first = subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
					time.Sleep(time.Millisecond) // the second one has the message
					ctx, cancel := context.WithTimeout(ctx, x.bound)
					defer cancel()
					_ = second.Drain(ctx)
					time.Sleep(time.Until(start.Add(time.Minute)))
					return nil
				})
				second = subscribe(t, b, "a", func(context.Context, *bus.Msg) error {
					time.Sleep(2 * time.Second)
					err := first.Drain(context.Background())
					took = time.Since(start)
					return err
				})
				publish(t, b, "a", "")
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if took != x.want {
					t.Errorf("Drain has returned after %v, want %v", took, x.want)
				}
			})
		})
	}
}

func TestDrainRefusesNewSubscriptionsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		respond(t, b, "echo", func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil })
		var errs [3]error
		var state bus.State
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			time.Sleep(time.Second)
			_, errs[0] = b.Subscribe(ctx, "b", func(context.Context, *bus.Msg) error { return nil })
			errs[1] = b.Publish(ctx, "c", nil)
			_, errs[2] = b.Request(ctx, "echo", nil)
			state, _ = b.State()
			return nil
		})
		publish(t, b, "a", "")
		var drains sync.WaitGroup
		for range 3 {
			drains.Go(func() {
				if err := b.Drain(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		drains.Wait()
		if !errors.Is(errs[0], bus.ErrDraining) || errs[1] != nil || errs[2] != nil || state != bus.StateDraining {
			t.Errorf("during the drain: %v, %s", errs, state)
		}
		if err := b.Drain(t.Context()); err != nil {
			t.Errorf("a later Drain: %v", err)
		}
	})
}

func TestDrainNamesStuckSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := bus.New(memoryBus(), bus.Config{})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		subscribe(t, b, "a", func(context.Context, *bus.Msg) error { <-release; return nil }, bus.Name("ledger"))
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error { <-ctx.Done(); return nil }, bus.Name("polite"))
		subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return nil }, bus.Name("quick"))
		publishAll(t, b, "a", 1, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err = b.Drain(ctx)
		left, ok := errors.AsType[*bus.UnfinishedError](err)
		if !ok || !errors.Is(err, context.DeadlineExceeded) || len(left.Subs) != 2 || left.Subs[0].Name != "ledger" || left.Subs[0].Running != 1 || left.Subs[0].Pending != 2 {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > 1500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		close(release)
		synctest.Wait()
		checkSum(t, b.Stats().Total)
	})
}

// Drain cannot wait for a handler that calls it, and the messages behind that one are
// discarded.
func TestDrainInAHandlerNamesTheMessagesBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := bus.New(memoryBus(), bus.Config{})
		if err != nil {
			t.Fatal(err)
		}
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			time.Sleep(time.Second) // fake: the other messages are queued
			err = b.Drain(ctx)
			return nil
		})
		publishAll(t, b, "a", 1, 3)
		time.Sleep(time.Minute)
		synctest.Wait()
		left, ok := errors.AsType[*bus.UnfinishedError](err)
		if !ok || len(left.Subs) != 1 || left.Subs[0].Pending != 2 {
			t.Errorf("got %v", err)
		}
		if total := b.Stats().Total; total.Handled != 1 || total.Discarded != 2 {
			t.Errorf("got %+v", total)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var cause error
		s := subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		})
		kept := make(chan *bus.Msg, 100)
		respond(t, b, "hang", func(ctx context.Context, m *bus.Msg) ([]byte, error) { kept <- m; <-ctx.Done(); return nil, ctx.Err() })
		publishAll(t, b, "a", 1, 5)
		var requests sync.WaitGroup
		for range 100 {
			requests.Go(func() {
				if _, err := b.Request(t.Context(), "hang", nil); !errors.Is(err, bus.ErrClosed) {
					t.Errorf("a request in flight: %v", err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		if err := b.Close(); err != nil || time.Since(start) != 0 {
			t.Errorf("close after %v: %v", time.Since(start), err)
		}
		requests.Wait()
		if !errors.Is(cause, bus.ErrClosed) || !errors.Is(s.Err(), bus.ErrClosed) {
			t.Errorf("the handler's context ended with %v, the subscription with %v", cause, s.Err())
		}
		checkSum(t, b.Stats().Total)
		errs := afterClose(t, b)
		errs["Reply"] = (<-kept).Reply(t.Context(), nil)
		for name, err := range errs {
			if !errors.Is(err, bus.ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
		if err := b.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Errorf("Drain of a subscription that is over: %v", err)
		}
		s.Stop()
	})
}

func afterClose(t *testing.T, b *bus.Bus) map[string]error {
	t.Helper()
	ctx := t.Context()
	errs := map[string]error{
		"Publish": b.Publish(ctx, "a", nil),
		"Flush":   b.Flush(ctx),
		"Drain":   b.Drain(ctx),
	}
	_, errs["Request"] = b.Request(ctx, "a", nil)
	_, errs["Subscribe"] = b.Subscribe(ctx, "a", func(context.Context, *bus.Msg) error { return nil })
	_, errs["Respond"] = b.Respond(ctx, "a", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
	for _, err := range b.RequestMany(ctx, "a", nil) {
		errs["RequestMany"] = err
	}
	return errs
}

func TestCloseNamesAHandlerThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := bus.New(memoryBus(), bus.Config{})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		subscribe(t, b, "a", func(context.Context, *bus.Msg) error { <-release; return nil }, bus.Name("ledger"))
		publish(t, b, "a", "")
		synctest.Wait()
		start := time.Now()
		err = b.Close()
		if err == nil || !strings.Contains(err.Error(), "ledger (") || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		close(release)
	})
}

func TestTheErrorOfAnEndNamesTenSubscriptionsAtMost(t *testing.T) {
	for n, want := range map[int]string{1: "1 subscriptions", 10: "10 subscriptions", 11: "11 subscriptions"} {
		text := (&bus.UnfinishedError{Subs: slices.Repeat([]bus.SubStats{{Running: 1}}, n)}).Error()
		if !strings.Contains(text, want) || strings.Count(text, "running") != min(n, 10) || strings.HasSuffix(text, "…") != (n > 10) {
			t.Errorf("%d: %s", n, text)
		}
	}
}

func TestEndsThatMeet(t *testing.T) {
	for range suite.Scaled(300) {
		b, err := bus.New(memoryBus(), bus.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		s, err := b.Subscribe(ctx, "a", func(ctx context.Context, m *bus.Msg) error { return b.Publish(ctx, "b", m.Data) })
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, f := range []func(){
			s.Stop,
			cancel,
			func() { _ = s.Drain(t.Context()) },
			func() { _ = b.Drain(t.Context()) },
			func() { _ = b.Close() },
			func() { _ = b.Publish(t.Context(), "a", nil) },
			func() { _, _ = b.Subscribe(t.Context(), "a", func(context.Context, *bus.Msg) error { return nil }) },
			func() { b.Stats() },
		} {
			all.Go(f)
		}
		all.Wait()
		<-s.Done()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		checkSum(t, b.Stats().Total)
	}
}

func TestOptionsOutOfBounds(t *testing.T) {
	b := newBus(t, bus.Config{})
	h := func(context.Context, *bus.Msg) error { return nil }
	outer := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Msg) error { return next(ctx, m) }
	}
	for name, c := range map[string]struct {
		pattern string
		h       bus.Handler
		opt     bus.SubOption
		want    error
	}{
		"pattern":             {"a..b", h, bus.SubOption{}, bus.ErrBadSubject},
		"group":               {"a", h, bus.Group("a b"), bus.ErrBadGroup},
		"a long group":        {"a", h, bus.Group(strings.Repeat("g", 65)), bus.ErrBadGroup},
		"no handler":          {"a", nil, bus.SubOption{}, bus.ErrInvalid},
		"concurrency":         {"a", h, bus.Concurrency(0), bus.ErrInvalid},
		"a high concurrency":  {"a", h, bus.Concurrency(bus.MaxConcurrency + 1), bus.ErrInvalid},
		"messages":            {"a", h, bus.Buffer(0, 1), bus.ErrInvalid},
		"bytes":               {"a", h, bus.Buffer(1, 0), bus.ErrInvalid},
		"policy":              {"a", h, bus.OnFull(7), bus.ErrInvalid},
		"a policy below 0":    {"a", h, bus.OnFull(-1), bus.ErrInvalid},
		"many messages":       {"a", h, bus.Buffer(bus.MaxBuffer+1, 1), bus.ErrInvalid},
		"no middleware":       {"a", h, bus.Use(nil), bus.ErrInvalid},
		"nil from middleware": {"a", h, bus.Use(outer, func(bus.Handler) bus.Handler { return nil }), bus.ErrInvalid},
	} {
		if _, err := b.Subscribe(t.Context(), c.pattern, c.h, c.opt); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if _, err := b.Respond(t.Context(), "a", nil); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("no responder: %v", err)
	}
	if _, err := bus.Topic[int]("a").Subscribe(t.Context(), b, nil); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("no handler of a topic: %v", err)
	}
	if _, err := bus.Answer[int, int](t.Context(), b, "a", nil); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("no function of Answer: %v", err)
	}
	for _, c := range []bus.Config{
		{Timeout: -1}, {MaxPayload: -1}, {StuckAfter: -1},
		{Use: []bus.Middleware{nil}}, {Codecs: map[string]bus.Codec{"text/x": nil}},
	} {
		if _, err := bus.New(memoryBus(), c); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := bus.New(nil, bus.Config{}); err == nil {
		t.Error("New without a driver")
	}
	if n := len(b.Stats().Subs); n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}

func TestPayloadsUpToTheLimitAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{MaxPayload: 100})
		var got []int
		subscribe(t, b, "a", func(_ context.Context, m *bus.Msg) error {
			if m.Data == nil {
				t.Error("the data are nil")
			}
			got = append(got, len(m.Data))
			return nil
		})
		respond(t, b, "reply", func(_ context.Context, m *bus.Msg) ([]byte, error) { return make([]byte, 101), nil })
		for _, n := range []int{0, 1, 100} {
			if err := b.Publish(t.Context(), "a", make([]byte, n)); err != nil {
				t.Error(err)
			}
		}
		if err := b.Publish(t.Context(), "a", nil); err != nil {
			t.Error(err)
		}
		err := b.Publish(t.Context(), "a", make([]byte, 101))
		if e, ok := errors.AsType[*bus.TooLargeError](err); !ok || e.Size != 101 || e.Limit != 100 || !errors.Is(err, bus.ErrTooLarge) {
			t.Errorf("101 bytes: %v", err)
		}
		if err := b.Publish(t.Context(), "a", make([]byte, 90), bus.Header("k", "v")); !errors.Is(err, bus.ErrTooLarge) {
			t.Errorf("90 bytes and a header: %v", err)
		}
		_, err = b.Request(t.Context(), "reply", nil)
		if e, ok := errors.AsType[*bus.RemoteError](err); !ok || e.Reason != "bus.too_large" {
			t.Errorf("a large answer: %v", err)
		}
		synctest.Wait()
		if fmt.Sprint(got) != "[0 1 100 0]" {
			t.Errorf("got %v", got)
		}
	})
}

func TestPublishCopiesItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		l := newGatedLog()
		subscribe(t, b, "a", l.handler)
		data := []byte("original")
		if err := b.Publish(t.Context(), "a", data); err != nil {
			t.Fatal(err)
		}
		copy(data, "scribble")
		close(l.gate)
		synctest.Wait()
		l.want(t, "original")
	})
}

func TestWithAnEndedContextNothingIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var l log
		subscribe(t, b, "a", l.handler)
		respond(t, b, "a", func(context.Context, *bus.Msg) ([]byte, error) { t.Error("asked"); return nil, nil })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Publish(ctx, "a", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("publish: %v", err)
		}
		if _, err := b.Request(ctx, "a", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("request: %v", err)
		}
		synctest.Wait()
		l.want(t)
	})
}

// Whoever drains a second time hears what the first one has found, in every
// moment of it.
func TestDrainsAtOnceAgree(t *testing.T) {
	for range suite.Scaled(300) {
		b := newBus(t, bus.Config{})
		errs := make(chan error)
		for range 5 {
			go func() { errs <- b.Drain(t.Context()) }()
		}
		for range 5 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
}
