package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

func TestManyRequestsDoNotMixUp(t *testing.T) {
	b := newBus(t, bus.Config{})
	respond(t, b, "echo", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		if rand.IntN(4) == 0 {
			time.Sleep(time.Millisecond)
		}
		return m.Data, nil
	})
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for i := range suite.Scaled(2000) {
				ctx, cancel := context.WithCancel(t.Context())
				if i%2 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(200))*time.Microsecond, cancel)
				}
				want := strconv.Itoa(rand.Int())
				m, err := b.Request(ctx, "echo", []byte(want))
				if err == nil && string(m.Data) != want {
					t.Errorf("got %s, want %s", m.Data, want)
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	if st := b.Stats(); st.InFlight != 0 {
		t.Errorf("%d requests are left", st.InFlight)
	}
}

func TestALateAnswerIsDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Timeout: time.Second})
		respond(t, b, "slow", func(_ context.Context, m *bus.Msg) ([]byte, error) {
			if string(m.Data) == "late" {
				time.Sleep(2 * time.Second) // whatever its context says
			}
			return m.Data, nil
		})
		if _, err := b.Request(t.Context(), "slow", []byte("late")); !errors.Is(err, bus.ErrTimeout) {
			t.Errorf("got %v", err)
		}
		for range 5 {
			if m, err := b.Request(t.Context(), "slow", []byte("next")); err != nil || string(m.Data) != "next" {
				t.Errorf("got %v, %v", m, err)
			}
			time.Sleep(time.Second)
		}
		if st := b.Stats(); st.Late != 1 || st.TimedOut != 1 || st.Requested != 6 {
			t.Errorf("stats are %+v", st)
		}
	})
}

func TestTheFirstAnswerWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		for i := range 3 {
			respond(t, b, "who", func(context.Context, *bus.Msg) ([]byte, error) {
				time.Sleep(time.Duration(i) * time.Second)
				return strconv.AppendInt(nil, int64(i), 10), nil
			}, bus.Group(""))
		}
		m, err := b.Request(t.Context(), "who", nil)
		if err != nil || string(m.Data) != "0" {
			t.Errorf("got %v, %v", m, err)
		}
		time.Sleep(time.Minute)
		if st := b.Stats(); st.Late != 2 {
			t.Errorf("%d late answers, want 2", st.Late)
		}
	})
}

func TestOneOfAGroupAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var asked atomic.Int64
		for range 3 {
			respond(t, b, "who", func(context.Context, *bus.Msg) ([]byte, error) { asked.Add(1); return nil, nil })
		}
		if _, err := b.Request(t.Context(), "who", nil); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("%d were asked", n)
		}
	})
}

func TestTheBudgetIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var left []time.Duration
		respond(t, b, "a", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			deadline, _ := ctx.Deadline()
			left = append(left, time.Until(deadline))
			return nil, nil
		}, bus.Concurrency(1))
		respond(t, b, "b", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			time.Sleep(time.Second)
			_, err := b.Request(ctx, "a", nil)
			return nil, err
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err1 := b.Request(t.Context(), "a", nil)
		_, err2 := b.Request(ctx, "a", nil)
		_, err3 := b.Request(ctx, "a", nil, bus.Expires(time.Second))
		_, err4 := b.Request(t.Context(), "b", nil)
		_, err5 := b.Request(t.Context(), "a", nil, bus.Expires(time.Hour))
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			t.Error(err)
		}
		if want := []time.Duration{5 * time.Second, time.Minute, time.Second, 4 * time.Second, 5 * time.Second}; !slices.Equal(left, want) {
			t.Errorf("%v were left, want %v", left, want)
		}
	})
}

func TestARequestToOneselfTimesOutAndHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		respond(t, b, "self", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			if len(m.Data) == 0 {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := b.Request(ctx, "self", []byte("inner"))
				return nil, err
			}
			return m.Data, nil
		}, bus.Concurrency(1))
		if _, err := b.Request(t.Context(), "self", nil); !isRemote(err, "bus.timeout") {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if m, err := b.Request(t.Context(), "self", []byte("x")); err != nil || string(m.Data) != "x" {
			t.Errorf("afterwards: %v, %v", m, err)
		}
	})
}

func TestAChainOfRequestsHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		depth := 0
		respond(t, b, "down", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			left, err := strconv.Atoi(string(m.Data))
			if left == 0 || err != nil {
				return nil, err
			}
			depth++
			_, err = b.Request(ctx, "down", strconv.AppendInt(nil, int64(left-1), 10))
			return nil, err
		})
		if _, err := b.Request(t.Context(), "down", []byte("31")); err != nil {
			t.Errorf("31 levels: %v", err)
		}
		_, err := b.Request(t.Context(), "down", []byte("33"))
		if e, ok := errors.AsType[*bus.RemoteError](err); !ok || e.Reason != "bus.cycle" {
			t.Errorf("33 levels: %v", err)
		}
	})
}

func TestARequestThatFindsNoRoomFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		hang := make(chan struct{})
		s := respond(t, b, "a", func(context.Context, *bus.Msg) ([]byte, error) { <-hang; return nil, nil }, bus.Concurrency(1), bus.Buffer(1, 1<<20))
		var errs [3]error
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() { _, errs[i] = b.Request(t.Context(), "a", nil) })
			synctest.Wait()
		}
		if e, ok := errors.AsType[*bus.RemoteError](errs[2]); !ok || e.Reason != "bus.overloaded" || !e.Retryable {
			t.Errorf("no room: %v", errs[2])
		}
		s.Stop()
		synctest.Wait()
		if e, ok := errors.AsType[*bus.RemoteError](errs[1]); !ok || e.Reason != "bus.terminated" || !e.Retryable {
			t.Errorf("stopped: %v", errs[1])
		}
		close(hang)
		callers.Wait()
		if errs[0] != nil {
			t.Errorf("the one in flight: %v", errs[0])
		}
	})
}

func TestTheReasonOfAnErrorIsACode(t *testing.T) {
	b := newBus(t, bus.Config{})
	respond(t, b, "a", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		return nil, &bus.RemoteError{Reason: string(m.Data), Message: "no"}
	})
	longest := strings.Repeat("r", 64)
	for reason, want := range map[string]string{
		"a.-_z": "a.-_z", "AZ09": "AZ09", longest: longest,
		"": "error", longest + "r": "error", "a b": "error", "@": "error", "[": "error", "`": "error", "{": "error", "/": "error", ":": "error", "ä": "error",
	} {
		if _, err := b.Request(t.Context(), "a", []byte(reason)); !isRemote(err, want) {
			t.Errorf("%q: got %v, want %q", reason, err, want)
		}
	}
}

func TestAnAnswerHas64KeysAtMost(t *testing.T) {
	b := newBus(t, bus.Config{})
	respond(t, b, "a", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		for i := range bus.MaxKeys {
			if err := bus.ReplyHeader(ctx, fmt.Sprint("k", i), "v"); err != nil {
				return nil, err
			}
		}
		if err := bus.ReplyHeader(ctx, "one-more", "v"); !errors.Is(err, bus.ErrBadHeader) {
			return nil, fmt.Errorf("one more: %w", err)
		}
		return nil, bus.ReplyHeader(ctx, "k0", "second")
	})
	m, err := b.Request(t.Context(), "a", nil)
	if err != nil || len(m.Header) != bus.MaxKeys || len(m.Header["k0"]) != 2 {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestAnAnswerDoesNotChangeAfterItsResponderHasReturned(t *testing.T) {
	b := newBus(t, bus.Config{})
	leaked := make(chan context.Context, 1)
	respond(t, b, "a", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		leaked <- ctx
		return nil, bus.ReplyHeader(ctx, "k", "1")
	})
	m, err := b.Request(t.Context(), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.ReplyHeader(<-leaked, "late", "v"); err != nil || len(m.Header) != 1 {
		t.Errorf("a header that was added later: %v, and the answer has %v", err, m.Header)
	}
}

func TestTheContentTypeOfAnAnswerCountsAmongIts64Keys(t *testing.T) {
	b := newBus(t, bus.Config{})
	if _, err := bus.Answer(t.Context(), b, "a", func(ctx context.Context, keys int) (n int, err error) {
		for i := range keys {
			err = errors.Join(err, bus.ReplyHeader(ctx, fmt.Sprint("k", i), "v"))
		}
		return 0, err
	}); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{bus.MaxKeys - 1: "", bus.MaxKeys: "bus.bad_header"} {
		m, err := b.Request(t.Context(), "a", strconv.AppendInt(nil, int64(n), 10), bus.Header("Content-Type", "application/json"))
		if want == "" && (err != nil || len(m.Header) != bus.MaxKeys) || want != "" && !isRemote(err, want) {
			t.Errorf("%d keys and a Content-Type: %v, %v", n, m, err)
		}
	}
}

// gather collects what a RequestMany yields.
func gather(b *bus.Bus, ctx context.Context, subject string, opts ...bus.ManyOption) (answers []string, err error) {
	for m, e := range b.RequestMany(ctx, subject, nil, opts...) {
		if _, remote := errors.AsType[*bus.RemoteError](e); remote {
			answers = append(answers, "error")
		} else if e != nil {
			err = errors.Join(err, e)
		} else {
			answers = append(answers, string(m.Data))
		}
	}
	return answers, err
}

func TestRequestManyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		for i := range 4 {
			respond(t, b, "who", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
				time.Sleep(time.Duration(i*i) * time.Second / 2) // 0, 0.5s, 2s, 4.5s
				if i == 1 {
					return nil, errors.New("no")
				}
				return strconv.AppendInt(nil, int64(i), 10), nil
			}, bus.Group(""))
		}
		for name, c := range map[string]struct {
			opts []bus.ManyOption
			want []string
			took time.Duration
		}{
			"at the default deadline": {nil, []string{"0", "error", "2", "3"}, 5 * time.Second},
			"by count":                {[]bus.ManyOption{bus.Count(2)}, []string{"0", "error"}, time.Second / 2},
			"by a count of one":       {[]bus.ManyOption{bus.Count(1)}, []string{"0"}, 0},
			"by the deadline first":   {[]bus.ManyOption{bus.Stall(time.Hour)}, []string{"0", "error", "2", "3"}, 5 * time.Second},
			"by stall":                {[]bus.ManyOption{bus.Stall(time.Second)}, []string{"0", "error"}, 3 * time.Second / 2},
			"by its expiry":           {[]bus.ManyOption{bus.Expires(time.Second)}, []string{"0", "error"}, time.Second},
		} {
			start := time.Now()
			got, err := gather(b, t.Context(), "who", c.opts...)
			if !slices.Equal(got, c.want) || err != nil || time.Since(start) != c.took {
				t.Errorf("%s: got %q, %v after %v", name, got, err, time.Since(start))
			}
			time.Sleep(10 * time.Second)
		}
		if got, err := gather(b, t.Context(), "nobody"); len(got) > 0 || !errors.Is(err, bus.ErrNoResponders) {
			t.Errorf("nobody: %q, %v", got, err)
		}
		if _, err := gather(b, t.Context(), "who", bus.Count(0)); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("Count(0): %v", err)
		}
		if _, err := gather(b, t.Context(), "who", bus.Stall(0)); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("Stall(0): %v", err)
		}
		if st := b.Stats(); st.InFlight != 0 || st.TimedOut != 0 {
			t.Errorf("%d requests are left, and %d count as timed out", st.InFlight, st.TimedOut)
		}
	})
}

// A slow consumer gets the answers from before the deadline, and no later one.
func TestAnAnswerAfterTheDeadlineIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		respond(t, b, "who", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			for _, answer := range []string{"0", "1", "2"} {
				if err := m.Reply(context.WithoutCancel(ctx), []byte(answer)); err != nil {
					t.Error(err)
				}
				time.Sleep(800 * time.Millisecond) // fake
			}
			return nil, bus.ErrEnd
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var got []string
		for m, err := range b.RequestMany(ctx, "who", nil) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(m.Data))
			time.Sleep(5 * time.Second)
		}
		if late := b.Stats().Late; !slices.Equal(got, []string{"0", "1"}) || late != 2 {
			t.Errorf("got %v and %d late answers", got, late)
		}
	})
}

func TestAStallBeginsWithTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		respond(t, b, "slow", func(context.Context, *bus.Msg) ([]byte, error) { time.Sleep(2 * time.Second); return []byte("x"), nil })
		start := time.Now()
		if got, err := gather(b, t.Context(), "slow", bus.Stall(time.Second)); len(got) != 1 || err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("got %q, %v after %v", got, err, time.Since(start))
		}
	})
}

func TestAnswersThatWaitForTheConsumerAreYieldedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		respond(t, b, "count", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			for i := range 5 {
				if err := m.Reply(ctx, strconv.AppendInt(nil, int64(i), 10)); err != nil {
					return nil, err
				}
			}
			time.Sleep(2 * time.Second)
			return nil, bus.ErrEnd
		})
		var l log
		for m, err := range b.RequestMany(t.Context(), "count", nil) {
			synctest.Wait() // the others have come
			if err != nil {
				t.Fatal(err)
			}
			l.add(string(m.Data))
		}
		l.want(t, "0", "1", "2", "3", "4")
	})
}

// The consumer takes longer than the deadline allows.
func TestAnswersFromBeforeTheDeadlineAreYieldedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		respond(t, b, "count", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			for i := range 20 {
				if i == 10 {
					time.Sleep(2 * time.Second) // the others are late
				}
				if err := m.Reply(ctx, strconv.AppendInt(nil, int64(i), 10)); err != nil {
					return nil, err
				}
			}
			return nil, bus.ErrEnd
		})
		for name, limit := range map[string]func(context.Context) (context.Context, context.CancelFunc, bus.ManyOption){
			"of the context": func(ctx context.Context) (context.Context, context.CancelFunc, bus.ManyOption) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				return ctx, cancel, nil
			},
			"of the request": func(ctx context.Context) (context.Context, context.CancelFunc, bus.ManyOption) {
				return ctx, func() {}, bus.Expires(time.Second)
			},
		} {
			ctx, cancel, opt := limit(t.Context())
			n := 0
			for _, err := range b.RequestMany(ctx, "count", nil, opt) {
				if n++; err != nil {
					t.Errorf("the deadline %s: %v", name, err)
				}
				time.Sleep(time.Minute)
			}
			if cancel(); n != 10 {
				t.Errorf("the deadline %s: got %d answers, want the 10 from before it", name, n)
			}
		}
	})
}

func TestAReplyThatCannotBeSentFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{MaxPayload: 100})
		respond(t, b, "a", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			if err := m.Reply(ctx, make([]byte, 101)); !errors.Is(err, bus.ErrTooLarge) {
				t.Errorf("101 bytes: %v", err)
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if err := m.Reply(ended, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("an ended context: %v", err)
			}
			return nil, bus.ErrEnd
		})
		if got, err := gather(b, t.Context(), "a"); len(got) != 0 || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		for _, opt := range []bus.PubOption{{}, bus.Expires(time.Minute)} {
			var err error
			s := subscribe(t, b, "a", func(ctx context.Context, m *bus.Msg) error { err = m.Reply(ctx, nil); return nil })
			publish(t, b, "a", "", opt)
			synctest.Wait()
			if s.Stop(); !errors.Is(err, bus.ErrInvalid) {
				t.Errorf("an event: %v", err)
			}
		}
	})
}

// Handlers are counted, and not their requests. Another responder answers those that are
// negative.
func TestAResponderIsBlockedByAllOfItsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o})
		respond(t, b, "self", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			time.Sleep(time.Second) // fake: every request has come, and has its handler
			n, err := strconv.Atoi(string(m.Data))
			subject := "self"
			if n < 0 {
				subject, n = "other", -n
			}
			var all sync.WaitGroup
			for range n {
				all.Go(func() { _, _ = b.Request(ctx, subject, []byte("0")) })
			}
			all.Wait()
			return nil, err
		}, bus.Concurrency(2))
		for _, n := range []string{"1", "1", "2", "3", "1"} {
			if _, err := b.Request(t.Context(), "self", []byte(n)); err != nil {
				t.Errorf("%s requests: %v", n, err)
			}
			synctest.Wait()
		}
		respond(t, b, "other", func(context.Context, *bus.Msg) ([]byte, error) { time.Sleep(time.Second); return nil, nil })
		ask := func(data string) {
			var callers sync.WaitGroup
			for range 2 {
				callers.Go(func() { _, _ = b.Request(t.Context(), "self", []byte(data)) })
			}
			callers.Wait()
		}
		ask("-1")
		synctest.Wait()
		if told := of[bus.Blocked](&o); len(told) > 0 {
			t.Errorf("reported %+v", told)
		}
		ask("1")
		if told := of[bus.Blocked](&o); len(told) != 1 || told[0].Handlers != 2 {
			t.Errorf("reported %+v", told)
		}
		time.Sleep(time.Minute)
	})
}

func TestRequestManyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		respond(t, b, "who", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			err := m.Reply(ctx, []byte("0"))
			time.Sleep(2 * time.Second)
			return nil, err
		})
		respond(t, b, "silent", func(context.Context, *bus.Msg) ([]byte, error) { time.Sleep(2 * time.Second); return nil, nil })
		for name, c := range map[string]struct {
			subject string
			cancel  bool
			want    error
		}{
			"a deadline after an answer": {"who", false, nil},
			"a deadline without any":     {"silent", false, bus.ErrTimeout},
			"a caller that leaves":       {"who", true, context.Canceled},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if c.cancel {
				time.AfterFunc(time.Second/2, cancel)
			}
			if _, err := gather(b, ctx, c.subject); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
		if n := b.Stats().TimedOut; n != 1 {
			t.Errorf("%d requests count as timed out, want the one without an answer", n)
		}
		time.Sleep(5 * time.Second) // they return
	})
}

func TestAResponderMayAnswerBitByBit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newBus(t, bus.Config{Observer: &o})
		respond(t, b, "count", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			for i := range 3 {
				if err := m.Reply(ctx, strconv.AppendInt(nil, int64(i), 10)); err != nil {
					return nil, err
				}
			}
			return nil, fmt.Errorf("done: %w", bus.ErrEnd)
		})
		start := time.Now()
		got, err := gather(b, t.Context(), "count")
		if !slices.Equal(got, []string{"0", "1", "2"}) || err != nil || time.Since(start) != 0 {
			t.Errorf("got %q, %v after %v", got, err, time.Since(start))
		}
		for m, err := range b.RequestMany(t.Context(), "count", nil) {
			if err != nil || string(m.Data) != "0" {
				t.Errorf("got %v, %v", m, err)
			}
			break
		}
		synctest.Wait()
		if st := b.Stats(); st.InFlight != 0 || st.Total.Failed != 0 || len(of[bus.HandlerFailed](&o)) != 0 {
			t.Errorf("stats are %+v", st)
		}
		m, err := b.Request(t.Context(), "count", nil)
		if err != nil || string(m.Data) != "0" {
			t.Errorf("a plain request: %v, %v", m, err)
		}
		if err := m.Reply(t.Context(), nil); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("a reply to an answer: %v", err)
		}
	})
}

func TestMiddlewareWrapsHandlersAndResponders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		mark := func(name string) bus.Middleware {
			return func(next bus.Handler) bus.Handler {
				return func(ctx context.Context, m *bus.Msg) error {
					l.add("> " + name)
					defer l.add("< " + name)
					return next(ctx, m)
				}
			}
		}
		b := newBus(t, bus.Config{Use: []bus.Middleware{mark("bus")}})
		subscribe(t, b, "a", l.handler, bus.Use(mark("outer"), mark("inner")))
		publish(t, b, "a", "event")
		synctest.Wait()
		l.want(t, "> bus", "> outer", "> inner", "event", "< inner", "< outer", "< bus")

		refuse := func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Msg) error {
				if len(m.Data) == 0 {
					return &bus.RemoteError{Reason: "empty", Message: "nothing to do"}
				}
				changed := *m
				changed.Data = append([]byte("!"), m.Data...)
				return next(ctx, &changed)
			}
		}
		replace := func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Msg) error { return next(ctx, &bus.Msg{Data: m.Data}) }
		}
		respond(t, b, "echo", func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil }, bus.Use(refuse, replace))
		if m, err := b.Request(t.Context(), "echo", []byte("x")); err != nil || string(m.Data) != "!x" {
			t.Errorf("got %v, %v", m, err)
		}
		_, err := b.Request(t.Context(), "echo", nil)
		if e, ok := errors.AsType[*bus.RemoteError](err); !ok || e.Reason != "empty" {
			t.Errorf("got %v", err)
		}
		forget := func(next bus.Handler) bus.Handler {
			return func(_ context.Context, m *bus.Msg) error { return next(context.Background(), &bus.Msg{Data: m.Data}) }
		}
		respond(t, b, "nowhere", func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil }, bus.Use(forget))
		if m, err := b.Request(t.Context(), "nowhere", []byte("x")); !isRemote(err, "error") {
			t.Errorf("a middleware that replaces the message and the context: %v, %v", m, err)
		}
	})
}

func TestMsgFromIsTheMessageAtHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		subscribe(t, b, "a", func(ctx context.Context, m *bus.Msg) error {
			inner, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if got, ok := bus.MsgFrom(inner); !ok || got != m {
				t.Errorf("got %v, %v", got, ok)
			}
			return nil
		})
		publish(t, b, "a", "")
		synctest.Wait()
		if _, ok := bus.MsgFrom(t.Context()); ok {
			t.Error("there is a message outside of a handler")
		}
	})
}

// The wait for the next answer uses one timer.
func TestAStallCostsNothingPerAnswer(t *testing.T) {
	const answers = 500
	b := newBus(t, bus.Config{})
	respond(t, b, "count", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		for range answers {
			if err := m.Reply(ctx, nil); err != nil {
				return nil, err
			}
		}
		return nil, bus.ErrEnd
	})
	cost := func(opt bus.ManyOption) float64 {
		return testing.AllocsPerRun(10, func() {
			if got, err := gather(b, t.Context(), "count", opt); len(got) != answers || err != nil {
				t.Errorf("%d answers, %v", len(got), err)
			}
		})
	}
	if with, without := cost(bus.Stall(time.Minute)), cost(nil); with > without+answers/2 {
		t.Errorf("%v allocations for %d answers with Stall, %v without", with, answers, without)
	}
}

// The deadline of a responder's context is the deadline of its caller. A responder
// that returns the error of its context answers at that instant: which of them is
// first must not decide about the error.
func TestResponderThatEndsWithItsDeadlineTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		for subject, end := range map[string]func(context.Context) error{
			"context": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			"request": func(ctx context.Context) error { _, err := b.Request(ctx, "silent", nil); return err },
		} {
			respond(t, b, subject, func(ctx context.Context, _ *bus.Msg) ([]byte, error) { return nil, end(ctx) })
		}
		respond(t, b, "silent", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
		for _, subject := range []string{"context", "request"} {
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				if _, err := b.Request(ctx, subject, nil); !errors.Is(err, bus.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: got %v, want ErrTimeout", subject, err)
					cancel()
					break
				}
				cancel()
			}
		}
		for range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			for _, err := range b.RequestMany(ctx, "context", nil) {
				if !errors.Is(err, bus.ErrTimeout) {
					t.Fatalf("RequestMany: got %v, want ErrTimeout", err)
				}
			}
			cancel()
		}
	})
}
