package bus_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
)

// remote is the memory driver as one that can fail.
type remote struct {
	driver.Driver
	front driver.Front
	info  driver.Info

	mu    sync.Mutex // guards the fields below
	fail  map[string]error
	hang  map[string]bool
	sinks []driver.Sink
	ends  int
}

func newRemote() *remote {
	d := memoryBus()
	return &remote{Driver: d, info: d.Info(), fail: map[string]error{}, hang: map[string]bool{}}
}

func (r *remote) set(call string, err error, hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail[call], r.hang[call] = err, hang
}

func (r *remote) disturb(ctx context.Context, call string) error {
	r.mu.Lock()
	err, hang := r.fail[call], r.hang[call]
	r.mu.Unlock()
	if hang {
		<-ctx.Done()
		return errors.Join(err, ctx.Err())
	}
	return err
}

func (r *remote) Info() driver.Info { return r.info }

func (r *remote) Attach(f driver.Front) error {
	r.front = f
	return errors.Join(r.disturb(context.Background(), "Attach"), r.Driver.Attach(f))
}

func (r *remote) Publish(ctx context.Context, m driver.Message) error {
	if err := errors.Join(r.disturb(ctx, "Publish"), m.CheckSize(r.info.MaxPayload)); err != nil {
		return err
	}
	return r.Driver.Publish(ctx, m)
}

func (r *remote) Request(ctx context.Context, m driver.Message) error {
	if err := errors.Join(r.disturb(ctx, "Request"), m.CheckSize(r.info.MaxPayload)); err != nil {
		return err
	}
	return r.Driver.Request(ctx, m)
}

func (r *remote) Answer(ctx context.Context, request, answer driver.Message) error {
	if err := errors.Join(r.disturb(ctx, "Answer"), answer.CheckSize(r.info.MaxPayload)); err != nil {
		return err
	}
	return r.Driver.Answer(ctx, request, answer)
}

func (r *remote) Flush(ctx context.Context) error {
	return errors.Join(r.disturb(ctx, "Flush"), r.Driver.Flush(ctx))
}

func (r *remote) Close(ctx context.Context) error {
	return errors.Join(r.disturb(ctx, "Close"), r.Driver.Close(ctx))
}

func (r *remote) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	if err := r.disturb(ctx, "Subscribe"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.sinks = append(r.sinks, s.Sink)
	r.mu.Unlock()
	i, err := r.Driver.Subscribe(ctx, s)
	return &remoteInterest{i, r}, err
}

type remoteInterest struct {
	driver.Registration
	r *remote
}

func (i *remoteInterest) End(ctx context.Context) error {
	i.r.mu.Lock()
	i.r.ends++
	i.r.mu.Unlock()
	return errors.Join(i.r.disturb(ctx, "End"), i.Registration.End(ctx))
}

func newRemoteBus(t *testing.T, c bus.Config) (*bus.Bus, *remote) {
	t.Helper()
	r := newRemote()
	return busOn(t, r, c), r
}

func busOn(t *testing.T, d driver.Driver, c bus.Config) *bus.Bus {
	t.Helper()
	b, err := bus.New(d, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestADisconnectFailsTheRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b, r := newRemoteBus(t, bus.Config{Observer: &o})
		respond(t, b, "hang", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			_ = m.Reply(ctx, []byte("first"))
			<-ctx.Done()
			return nil, ctx.Err()
		})
		respond(t, b, "silent", func(ctx context.Context, m *bus.Msg) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
		cut := errors.New("connection reset")
		start := time.Now()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				if _, err := b.Request(t.Context(), "silent", nil); !errors.Is(err, bus.ErrDisconnected) || !errors.Is(err, cut) {
					t.Errorf("request: %v", err)
				}
				if got, err := gather(b, t.Context(), "hang"); len(got) != 1 || !errors.Is(err, bus.ErrDisconnected) {
					t.Errorf("request many: %q, %v", got, err)
				}
			})
		}
		synctest.Wait()
		r.front.Disconnected(cut)
		synctest.Wait() // the first have failed, the others are in flight
		r.front.Disconnected(cut)
		callers.Wait()
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}
		if state, err := b.State(); state != bus.StateDisconnected || !errors.Is(err, cut) {
			t.Errorf("the state is %s, %v", state, err)
		}
		time.Sleep(time.Minute)
		r.front.Connected()
		r.front.Connected()
		if state, err := b.State(); state != bus.StateConnected || err != nil {
			t.Errorf("the state is %s, %v", state, err)
		}
		synctest.Wait()
		cuts, back := of[bus.Disconnected](&o), of[bus.Connected](&o)
		if len(cuts) != 1 || !errors.Is(cuts[0].Err, cut) || len(back) != 1 || back[0].After != time.Minute || b.Stats().Cuts != 1 {
			t.Errorf("reported %+v and %+v", cuts, back)
		}
	})
}

func TestADisconnectWithoutAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		respond(t, b, "a", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { <-ctx.Done(); return nil, nil })
		time.AfterFunc(time.Second, func() { r.front.Disconnected(nil) })
		m, err := b.Request(t.Context(), "a", nil)
		if !errors.Is(err, bus.ErrDisconnected) || strings.Contains(err.Error(), "nil") {
			t.Errorf("got %v, %v", m, err)
		}
	})
}

// The driver may notice the deadline just before the context of the call ends with it.
func TestARequestThatTimesOutInTheDriverCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i, ctx := range []context.Context{t.Context(), ctx} {
			r.set("Request", fmt.Errorf("%w: %w", driver.ErrTimeout, context.DeadlineExceeded), ctx != t.Context())
			if _, err := b.Request(ctx, "a", nil); !errors.Is(err, bus.ErrTimeout) {
				t.Errorf("request %d: %v", i, err)
			}
			if n := b.Stats().TimedOut; int(n) != i+1 {
				t.Errorf("after request %d, %d count as timed out", i, n)
			}
		}
	})
}

func TestNextMessageCarriesTheGap(t *testing.T) {
	for name, c := range map[string]struct {
		gaps []int
		want string
	}{
		"known":          {[]int{3, 4}, "2 after 7"},
		"unknown":        {[]int{-1}, "2 after -1"},
		"known, unknown": {[]int{3, -1}, "2 after -1"},
		"unknown, known": {[]int{-1, 3}, "2 after -1"},
		"none":           {[]int{0}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o observed
				b, r := newRemoteBus(t, bus.Config{Observer: &o})
				l := newGatedLog()
				close(l.gate)
				s := subscribe(t, b, "a", l.handler)
				publish(t, b, "a", "1")
				synctest.Wait()
				for _, n := range c.gaps {
					r.sinks[0].Gap(n)
				}
				publishAll(t, b, "a", 2, 3)
				synctest.Wait()
				l.want(t, "1", c.want, "3")
				told := 0
				for _, m := range of[bus.Missed](&o) {
					if told += m.Count; m.Count == 0 {
						t.Error("reported that nothing was missed")
					}
				}
				if st := s.Stats(); told != c.gaps[0]+sumInts(c.gaps[1:]) || st.Missed+st.Gaps == 0 && name != "none" {
					t.Errorf("reported %d, stats are %+v", told, st)
				}
			})
		})
	}
}

func sumInts(ns []int) (total int) {
	for _, n := range ns {
		total += n
	}
	return total
}

func TestASubscriptionThatTheBackendRefusesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b, r := newRemoteBus(t, bus.Config{Observer: &o})
		s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return nil })
		refused := errors.New("permission withdrawn")
		r.sinks[0].Fail(refused)
		<-s.Done()
		synctest.Wait()
		told := of[bus.Ended](&o)
		if !errors.Is(s.Err(), refused) || len(told) != 1 || !errors.Is(told[0].Err, refused) || r.ends != 1 || len(b.Stats().Subs) != 0 {
			t.Errorf("it ended with %v, told %+v, %d ends", s.Err(), told, r.ends)
		}
	})
}

// Later ends of a subscription that has ended, and whose handler still runs,
// change nothing.
func TestTheFirstEndOfASubscriptionCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b, r := newRemoteBus(t, bus.Config{Observer: &o})
		l := newGatedLog()
		s := subscribe(t, b, "a", l.handler)
		publish(t, b, "a", "1")
		synctest.Wait()
		s.Stop()
		s.Stop()
		r.sinks[0].Fail(errors.New("permission withdrawn"))
		close(l.gate)
		<-s.Done()
		synctest.Wait()
		if told := of[bus.Ended](&o); s.Err() != nil || len(told) != 0 || r.ends != 1 {
			t.Errorf("it ended with %v, reported %+v, and its registration %d times", s.Err(), told, r.ends)
		}
	})
}

// hasty refuses a subscription before it confirms it, and after it has passed on first, if
// that is not nil.
type hasty struct {
	*remote
	first *driver.Message
}

func (h hasty) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	i, err := h.remote.Subscribe(ctx, s)
	if h.first != nil {
		s.Sink.Deliver(*h.first)
		synctest.Wait()
	}
	s.Sink.Fail(driver.ErrRefused)
	return i, err
}

func TestASubscriptionThatIsRefusedBeforeItIsConfirmed(t *testing.T) {
	for name, first := range map[string]*driver.Message{"at once": nil, "while a handler runs": {Subject: "a"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRemote()
				b := busOn(t, hasty{r, first}, bus.Config{})
				ctx, end := foreign{t.Context(), make(chan struct{})}, make(chan struct{})
				_, err := b.Subscribe(ctx, "a", func(context.Context, *bus.Msg) error { <-end; return nil })
				close(end)
				synctest.Wait()
				if st := b.Stats(); !errors.Is(err, bus.ErrRefused) || r.ends != 1 || len(st.Subs) != 0 {
					t.Errorf("subscribe: %v; its registration ended %d times; left: %+v", err, r.ends, st.Subs)
				}
			})
		})
	}
}

func TestASubscriptionThatFailsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		h := func(context.Context, *bus.Msg) error { return nil }
		refused := errors.New("permission denied")
		r.set("Subscribe", refused, false)
		if _, err := b.Subscribe(t.Context(), "a", h); !errors.Is(err, refused) || !errors.Is(err, bus.ErrDisconnected) {
			t.Errorf("refused: %v", err)
		}
		r.set("Subscribe", nil, true)
		start := time.Now()
		if _, err := b.Subscribe(t.Context(), "a", h); !errors.Is(err, bus.ErrDisconnected) || errors.Is(err, context.DeadlineExceeded) || time.Since(start) != driver.CallTimeout {
			t.Errorf("no word: %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Subscribe(ctx, "a", h); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an impatient caller: %v", err)
		}
		if st := b.Stats(); len(st.Subs) != 0 {
			t.Errorf("left before Close: %+v", st.Subs)
		}
		var closed error
		var subscriber sync.WaitGroup
		subscriber.Go(func() { _, closed = b.Subscribe(t.Context(), "a", h) })
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		subscriber.Wait()
		if !errors.Is(closed, bus.ErrClosed) {
			t.Errorf("closed meanwhile: %v", closed)
		}
		if st := b.Stats(); len(st.Subs) != 0 {
			t.Errorf("left: %+v", st.Subs)
		}
	})
}

func TestASubscriptionBegunWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		r.set("Subscribe", nil, true)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var got error
		var subscriber sync.WaitGroup
		subscriber.Go(func() { _, got = b.Subscribe(ctx, "a", func(context.Context, *bus.Msg) error { return nil }) })
		synctest.Wait()
		if err := b.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		subscriber.Wait()
		if !errors.Is(got, bus.ErrClosed) && !errors.Is(got, bus.ErrDraining) {
			t.Errorf("got %v", got)
		}
	})
}

func TestDriverErrorsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		respond(t, b, "a", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
		odd := errors.New("odd")
		calls := map[string]func(context.Context) error{
			"Publish": func(ctx context.Context) error { return b.Publish(ctx, "a", nil) },
			"Flush":   b.Flush,
			"Request": func(ctx context.Context) error { _, err := b.Request(ctx, "a", nil); return err },
		}
		begin := map[string]string{"Publish": "publish a: ", "Flush": "flush: ", "Request": "request a: "}
		for name, c := range map[string]struct {
			err  error
			hang bool
			want []error
		}{
			"odd":          {odd, false, []error{odd, bus.ErrDisconnected}},
			"disconnected": {driver.ErrDisconnected, false, []error{bus.ErrDisconnected}},
			"overloaded":   {fmt.Errorf("buffer: %w", driver.ErrOverloaded), false, []error{bus.ErrOverloaded}},
			"no room":      {driver.ErrOverloaded, true, []error{context.DeadlineExceeded}},
			"no word":      {nil, true, []error{context.DeadlineExceeded}},
		} {
			for call, do := range calls {
				r.set(call, c.err, c.hang)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := do(ctx)
				cancel()
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("%s, %s: got %v, want %v", call, name, err, want)
					}
				}
				if err != nil && !strings.HasPrefix(err.Error(), begin[call]) {
					t.Errorf("%s, %s: the text is %v", call, name, err)
				}
				if c.err == nil && errors.Is(err, bus.ErrDisconnected) {
					t.Errorf("%s, %s: the end of a context is no outage: %v", call, name, err)
				}
			}
		}
		r.set("Request", nil, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := calls["Request"](ctx); !errors.Is(err, bus.ErrTimeout) {
			t.Errorf("a request that is not sent in time: %v", err)
		}
	})
}

func TestNoRoomUntilTheContextEndsIsOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		r.set("Publish", driver.ErrOverloaded, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := b.Publish(ctx, "a", nil)
		if !errors.Is(err, bus.ErrOverloaded) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestFlushIsBoundedByItsContextOrTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{Timeout: time.Second})
		r.set("Flush", nil, true)
		flush := func(ctx context.Context, want time.Duration) {
			start := time.Now()
			if err := b.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != want {
				t.Errorf("after %v, want %v: %v", time.Since(start), want, err)
			}
		}
		flush(t.Context(), time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		flush(ctx, time.Minute)
	})
}

func TestFailedAnswerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b, r := newRemoteBus(t, bus.Config{Observer: &o})
		respond(t, b, "a", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil }, bus.Name("stock"))
		r.set("Answer", driver.ErrOverloaded, false)
		if _, err := b.Request(t.Context(), "a", nil); !errors.Is(err, bus.ErrTimeout) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if told := of[bus.AnswerFailed](&o); len(told) != 1 || told[0].Name != "stock" || !errors.Is(told[0].Err, bus.ErrOverloaded) {
			t.Errorf("reported %+v", told)
		}
	})
}

func TestDisconnectedResponder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		asked := make(chan struct{}, 1)
		respond(t, b, "a", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return nil, nil
		})
		go func() {
			<-asked
			r.front.Fail(1, driver.ErrDisconnected)
			r.front.Fail(99, driver.ErrDisconnected) // nobody's
		}()
		if _, err := b.Request(t.Context(), "a", nil); !errors.Is(err, bus.ErrDisconnected) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheEndOfOneRequestLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		respond(t, b, "a", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { <-ctx.Done(); return nil, nil })
		var errs [3]error
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() { _, errs[i] = b.Request(t.Context(), "a", nil) })
			synctest.Wait()
		}
		r.front.Fail(2, driver.ErrDisconnected)
		synctest.Wait()
		if errs[0] != nil || !errors.Is(errs[1], bus.ErrDisconnected) || errs[2] != nil {
			t.Errorf("after the end of the second: %v", errs)
		}
		r.front.Fail(0, driver.ErrDisconnected) // all
		synctest.Wait()
		if !errors.Is(errs[0], bus.ErrDisconnected) || !errors.Is(errs[2], bus.ErrDisconnected) {
			t.Errorf("after the end of all: %v", errs)
		}
		callers.Wait()
	})
}

// Total has the numbers of the subscriptions that run and of those that have
// ended.
func TestTotalHasEveryNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		hold := make(chan struct{})
		s := subscribe(t, b, "a", func(_ context.Context, m *bus.Msg) error {
			if string(m.Data) == "panic" {
				panic("no")
			}
			<-hold
			return nil
		}, bus.Buffer(1, 1<<20))
		zero := map[string]bool{}
		check := func() {
			t.Helper()
			synctest.Wait()
			one, total := s.Stats(), b.Stats().Total
			if one.SubID = total.SubID; one != total {
				t.Errorf("the total is %+v, want %+v", total, one)
			}
			for field, v := range reflect.ValueOf(total).Fields() {
				if !v.IsZero() {
					delete(zero, field.Name)
				}
			}
		}
		for field := range reflect.TypeFor[bus.SubStats]().Fields() {
			zero[field.Name] = true
		}
		delete(zero, "SubID")
		r.sinks[0].Gap(2)
		r.sinks[0].Gap(-1)
		publish(t, b, "a", "panic")
		synctest.Wait()
		publish(t, b, "a", "held")
		synctest.Wait()
		publish(t, b, "a", "expires", bus.Expires(time.Second))
		publish(t, b, "a", "is dropped")
		time.Sleep(time.Minute)
		hold <- struct{}{}
		synctest.Wait()
		publish(t, b, "a", "held")
		synctest.Wait()
		publish(t, b, "a", "is discarded")
		check()
		s.Stop()
		close(hold)
		check()
		if len(zero) > 0 {
			t.Errorf("no message was counted in %v", slices.Sorted(maps.Keys(zero)))
		}
	})
}

// A driver that cannot confirm the end of a subscription costs one gap, also where
// two calls drain it at once.
func TestTwoDrainsCountOneGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		var l log
		s := subscribe(t, b, "a", l.handler)
		r.set("End", nil, true)
		drained := make(chan error, 2)
		for _, drain := range []func(context.Context) error{s.Drain, b.Drain} {
			go func() { drained <- drain(t.Context()) }()
		}
		for range 2 {
			if err := <-drained; err != nil {
				t.Error(err)
			}
		}
		if n := s.Stats().Gaps; n != 1 {
			t.Errorf("%d gaps, want 1", n)
		}
	})
}

func TestADriverThatCannotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		var l log
		s := subscribe(t, b, "a", l.handler)
		r.set("End", nil, true)
		publish(t, b, "a", "1")
		start := time.Now()
		if err := s.Drain(t.Context()); err != nil || time.Since(start) != driver.CallTimeout {
			t.Errorf("drain without word: %v after %v", err, time.Since(start))
		}
		l.want(t, "1")
		s = subscribe(t, b, "a", l.handler)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain with a bound: %v", err)
		}
		r.set("Close", errors.New("cannot close"), false)
		if err := b.Close(); err == nil || !strings.Contains(err.Error(), "cannot close") {
			t.Errorf("close: %v", err)
		}
	})
}

// A backend that does not answer delays Drain beyond its context by the time that
// Close gives to handlers and to the driver, and no longer.
func TestDrainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		var l log
		subscribe(t, b, "a", l.handler)
		r.set("Flush", nil, true)
		r.set("Close", nil, true)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.Drain(ctx)
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 1500*time.Millisecond {
			t.Errorf("drain: %v after %v", err, took)
		}
	})
}

// A drain whose context ends before the backend has confirmed the end of a subscription
// is not complete: more messages may be on their way (S4, S21).
func TestDrainThatCannotEndASubscriptionFailsAndCountsAGap(t *testing.T) {
	for name, drain := range map[string]func(*bus.Bus, *bus.Sub, context.Context) error{
		"the bus":          func(b *bus.Bus, _ *bus.Sub, ctx context.Context) error { return b.Drain(ctx) },
		"the subscription": func(_ *bus.Bus, s *bus.Sub, ctx context.Context) error { return s.Drain(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o observed
				b, r := newRemoteBus(t, bus.Config{Observer: &o})
				s := subscribe(t, b, "a", ignore)
				r.set("End", nil, true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := drain(b, s, ctx)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				left, ok := errors.AsType[*bus.UnfinishedError](err)
				if name == "the bus" && (!ok || len(left.Subs) != 1 || left.Subs[0].Name != "a" || !strings.Contains(err.Error(), "its end is not confirmed")) {
					t.Errorf("got %v, want the subscription", err)
				}
				synctest.Wait()
				if told, total := of[bus.Missed](&o), b.Stats().Total; len(told) != 1 || told[0].Count != -1 || total.Gaps != 1 {
					t.Errorf("reported %+v, %d gaps", told, total.Gaps)
				}
			})
		})
	}
}

// A foreign publisher may send thousands of keys of a few bytes, which take many times
// their bytes in memory.
func TestTheMemoryOfManyKeysCountsInABuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, values, room = 10, 1000, 100_000
		b, r := newRemoteBus(t, bus.Config{})
		l := newGatedLog()
		s := subscribe(t, b, "a", l.handler, bus.Buffer(1000, room))
		publish(t, b, "a", "held")
		synctest.Wait()
		for range messages {
			keys := bus.Headers{}
			for i := range values {
				keys[strconv.Itoa(i)] = []string{""}
			}
			r.sinks[0].Deliver(driver.Message{Subject: "a", Header: keys})
			r.sinks[0].Deliver(driver.Message{Subject: "a", Header: bus.Headers{"a": make([]string, values)}})
		}
		least := int(unsafe.Sizeof("")) * values // of the strings alone
		if st := s.Stats(); st.Pending == 0 || st.Pending > room/least || st.PendingBytes < st.Pending*least || st.PendingBytes > room {
			t.Errorf("stats are %+v", st)
		}
		close(l.gate)
		synctest.Wait()
		if st := s.Stats(); st.PendingBytes != 0 {
			t.Errorf("stats are %+v", st)
		}
	})
}

func TestMessagesAfterTheEndAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		l := newGatedLog()
		s := subscribe(t, b, "a", l.handler)
		publishAll(t, b, "a", 1, 3)
		synctest.Wait()
		if n := r.sinks[0].Load(); n != 3 {
			t.Errorf("the load of a handler and two messages is %d", n)
		}
		var drain sync.WaitGroup
		drain.Go(func() {
			if err := s.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // its registration has ended, and its handler runs
		late := driver.Message{Subject: "a", Data: []byte("late")}
		if r.sinks[0].Deliver(late) {
			t.Error("a message was taken while it was drained")
		}
		close(l.gate)
		drain.Wait()
		if r.sinks[0].Deliver(late) {
			t.Error("a message was taken after it had ended")
		}
		l.want(t, "1", "2", "3")
		if n := r.sinks[0].Load(); n != 0 {
			t.Errorf("the load at the end is %d", n)
		}
		checkSum(t, s.Stats())
	})
}

// A context that is cancelled while the backend closes ends the Close.
func TestDrainEndsWithACancelledContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		r.set("Close", nil, true)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		time.AfterFunc(time.Second, cancel)
		if err := b.Drain(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestDrainReturnsTheErrorOfItsFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		r.set("Flush", driver.ErrDisconnected, false)
		if err := b.Drain(t.Context()); !errors.Is(err, bus.ErrDisconnected) {
			t.Errorf("got %v", err)
		}
		if err := b.Publish(t.Context(), "a", nil); !errors.Is(err, bus.ErrClosed) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// All Drains return the result of the first one.
func TestAFailedDrainFailsAllDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		r.set("Flush", driver.ErrRefused, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var errs [2]error
		var drains sync.WaitGroup
		for i, ctx := range []context.Context{ctx, t.Context()} {
			drains.Go(func() { errs[i] = b.Drain(ctx) })
			synctest.Wait()
		}
		drains.Wait()
		for i, err := range append(errs[:], b.Drain(ctx), b.Drain(t.Context())) {
			if !errors.Is(err, bus.ErrRefused) {
				t.Errorf("%d: got %v", i, err)
			}
		}
	})
}

// unsure is a driver whose first End of a registration finds out late that messages
// may be lost. A second one has nothing to add.
type unsure struct{ *remote }

type unsureRegistration struct {
	driver.Registration
	first atomic.Bool
}

func (d unsure) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	i, err := d.remote.Subscribe(ctx, s)
	return &unsureRegistration{Registration: i}, err
}

func (i *unsureRegistration) End(ctx context.Context) error {
	if i.first.Swap(true) {
		return nil
	}
	time.Sleep(time.Second)
	return errors.Join(i.Registration.End(ctx), driver.ErrDisconnected)
}

// Of two drains at once, the one that the driver answers first does not hide the gap
// that the other one is told of (S4).
func TestTheGapOfADrainIsCountedBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := busOn(t, unsure{newRemote()}, bus.Config{})
		s := subscribe(t, b, "a", ignore)
		var drains sync.WaitGroup
		for range 2 {
			drains.Go(func() {
				if err := s.Drain(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		drains.Wait()
		if st, total := s.Stats(), b.Stats().Total; st.Gaps != 1 || total.Gaps != 1 {
			t.Errorf("%d gaps are counted, %d in total", st.Gaps, total.Gaps)
		}
	})
}

// interrupted is a driver whose calls return err once it is closed.
type interrupted struct {
	*remote
	closed chan struct{}
	err    error
}

func (d *interrupted) wait() error { <-d.closed; return d.err }

func (d *interrupted) Publish(context.Context, driver.Message) error { return d.wait() }
func (d *interrupted) Request(context.Context, driver.Message) error { return d.wait() }
func (d *interrupted) Flush(context.Context) error                   { return d.wait() }
func (d *interrupted) Subscribe(context.Context, driver.Subscription) (driver.Registration, error) {
	return nil, d.wait()
}

func (d *interrupted) Close(ctx context.Context) error {
	close(d.closed)
	return d.remote.Close(ctx)
}

func TestCallsThatCloseInterruptsAreErrClosed(t *testing.T) {
	for _, odd := range []error{errors.New("use of closed connection"), bus.ErrNoResponders, bus.ErrTimeout, context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			b, err := bus.New(&interrupted{newRemote(), make(chan struct{}), odd}, bus.Config{})
			if err != nil {
				t.Fatal(err)
			}
			var calls sync.WaitGroup
			for name, call := range map[string]func() error{
				"Publish":     func() error { return b.Publish(t.Context(), "a", nil) },
				"Flush":       func() error { return b.Flush(t.Context()) },
				"Request":     func() error { _, err := b.Request(t.Context(), "a", nil); return err },
				"RequestMany": func() error { _, err := gather(b, t.Context(), "a"); return err },
				"Subscribe":   func() error { _, err := b.Subscribe(t.Context(), "a", ignore); return err },
			} {
				calls.Go(func() {
					if err := call(); !errors.Is(err, bus.ErrClosed) || errors.Is(err, odd) {
						t.Errorf("%s, %v: got %v", name, odd, err)
					}
				})
			}
			synctest.Wait()
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			calls.Wait()
		})
	}
}

// The backend's limit may change: the driver checks it, and Info has the one
// of now.
func TestTheBackendsLimitIsTheDriversAndMayChange(t *testing.T) {
	r := newRemote()
	r.info.MaxPayload = 100
	r.info.Lacks = []driver.Lack{{Rule: "S11", Why: "test"}}
	b, err := bus.New(r, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Publish(t.Context(), "a", make([]byte, 11)); err != nil {
		t.Error(err)
	}
	r.info.MaxPayload = 10
	for verb, err := range map[string]error{
		"publish": b.Publish(t.Context(), "a", make([]byte, 11)),
		"request": func() error { _, err := b.Request(t.Context(), "a", make([]byte, 11)); return err }(),
	} {
		large, ok := errors.AsType[*bus.TooLargeError](err)
		if !ok || large.Subject != "a" || large.Size < 11 || large.Limit != 10 {
			t.Errorf("%s: got %v", verb, err)
		}
	}
	if want := r.info; !reflect.DeepEqual(b.Info(), want) {
		t.Errorf("info is %+v, want %+v", b.Info(), want)
	}
}

func TestADriverServesOneFront(t *testing.T) {
	d := memoryBus()
	b, err := bus.New(d, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := bus.New(d, bus.Config{}); !errors.Is(err, bus.ErrInvalid) {
		t.Errorf("a second front: %v", err)
	}
}

// A panic under CrashOnPanic ends the program, which is therefore another one.
func TestCrashOnPanicCrashes(t *testing.T) {
	const child = "MEGA_TEST_CRASH"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestCrashOnPanicCrashes$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "panic: out of paper") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	b := newBus(t, bus.Config{})
	s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { panic("out of paper") }, bus.CrashOnPanic())
	publish(t, b, "a", "")
	<-s.Done()
}

// On a busy machine the end of a subscription at the backend may take longer than
// the handlers have. Close waits for it, and reports no error.
func TestCloseWaitsForTheEndOfSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := b.Subscribe(ctx, "a", func(context.Context, *bus.Msg) error { return nil }); err != nil {
			t.Fatal(err)
		}
		r.set("End", nil, true)
		cancel()
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// sluggish is a driver that ends a registration within a second, and does not
// look at the context.
type sluggish struct {
	*remote
	ended atomic.Bool
}

type sluggishRegistration struct {
	driver.Registration
	d *sluggish
}

func (d *sluggish) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	i, err := d.remote.Subscribe(ctx, s)
	return sluggishRegistration{i, d}, err
}

func (i sluggishRegistration) End(ctx context.Context) error {
	time.Sleep(time.Second)
	i.d.ended.Store(true)
	return i.Registration.End(ctx)
}

func TestCloseWaitsForADriverThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &sluggish{remote: newRemote()}
		b := busOn(t, d, bus.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := b.Subscribe(ctx, "a", ignore); err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		if err := b.Close(); err != nil || !d.ended.Load() {
			t.Errorf("closed with %v, the call to the driver has returned: %v", err, d.ended.Load())
		}
	})
}

// A Drain in a handler does not wait for the handler, and waits for the end of
// its registration.
func TestDrainInAHandlerWaitsForTheRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &sluggish{remote: newRemote()}
		b := busOn(t, d, bus.Config{})
		returned := false
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			if err := b.Drain(ctx); err != nil || !d.ended.Load() {
				t.Errorf("drained with %v, the registration has ended: %v", err, d.ended.Load())
			}
			returned = true
			return nil
		})
		publish(t, b, "a", "")
		time.Sleep(time.Minute)
		synctest.Wait()
		if !returned {
			t.Error("it has not returned")
		}
	})
}

// An observer that hangs is user code: Close leaves it after the time that
// handlers have.
func TestCloseLeavesAnObserverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		b, err := bus.New(newRemote(), bus.Config{Observer: observer(func(bus.Event) { <-hang })})
		if err != nil {
			t.Fatal(err)
		}
		subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return errors.New("no") })
		publish(t, b, "a", "1")
		synctest.Wait()
		began := time.Now()
		if err := b.Close(); err == nil || !strings.Contains(err.Error(), "observer") {
			t.Errorf("close: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		close(hang)
	})
}
