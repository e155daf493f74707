package guide_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/limittest"
	"github.com/megaframework/mega/megatest"
)

// What 07-locks-in-practice.md shows of limits.

// counter allows n calls, and begins anew after each per.
type counter struct {
	n     int
	per   time.Duration
	start time.Time
	used  int
}

func (c *counter) allow(now time.Time) bool {
	if now.Sub(c.start) >= c.per {
		c.start, c.used = now, 0
	}
	c.used++
	return c.used <= c.n
}

// bucket is a token bucket, filled with n tokens per per.
type bucket struct {
	n, tokens float64
	per       time.Duration
	last      time.Time
}

func (b *bucket) allow(now time.Time) bool {
	b.tokens = min(b.n, b.tokens+b.n*float64(now.Sub(b.last))/float64(b.per))
	if b.last = now; b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func TestHandBuiltWindowsLetNearlyTwiceTheRateThrough(t *testing.T) {
	const n, per = 5, 800 * time.Millisecond
	start := time.Unix(0, 0)
	c, b := &counter{n: n, per: per}, &bucket{n: n, tokens: n, per: per, last: start}
	for _, x := range []struct {
		name  string
		allow func(time.Time) bool
		quiet int // ms after the first call
	}{
		{"counter", c.allow, 799},
		{"bucket", b.allow, 0},
	} {
		var grants []limittest.Grant
		ask := func(ms int) {
			if at := start.Add(time.Duration(ms) * time.Millisecond); x.allow(at) {
				grants = append(grants, limittest.Grant{From: at, To: at, Units: 1})
			}
		}
		ask(0)
		for ms := x.quiet; ms < 1600; ms++ {
			for range n {
				ask(ms)
			}
		}
		if worst, _ := limittest.Worst(grants, per); worst != 2*n-1 {
			t.Errorf("%s: %d calls in %v; the page says %d", x.name, worst, per, 2*n-1)
		}
	}
}

var acme = limit.Limit{Rates: []limit.Rate{{N: 5, Per: 800 * time.Millisecond}, limit.PerDay(10_000)}}

func order(ctx *mega.Ctx, call func(*mega.Ctx) error) error {
	return ctx.Limit.With("partner:acme", acme, func(ctx *mega.Ctx, _ *limit.Permit) error {
		return call(ctx)
	}, limit.MaxWait(3*time.Second))
}

func TestOrdersOfThePageAreCallsOfThePartner(t *testing.T) {
	called := 0
	kit := megatest.New(t, megatest.Config{}, mega.Routes(func(r mega.Router) {
		r.Post("/order", func(ctx *mega.Ctx) error {
			return order(ctx, func(*mega.Ctx) error { called++; return nil })
		})
	}))
	kit.Post("/order", nil).Status(http.StatusNoContent)
	if called != 1 {
		t.Errorf("the partner was called %d times", called)
	}
}

// newLimits returns a Limiter in memory.
func newLimits(t *testing.T) *limit.Limiter {
	t.Helper()
	limits, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limits.Close(context.Background()) })
	return limits
}

func acmeClient(limits *limit.Limiter) *http.Client {
	key := func(*http.Request) string { return "partner:acme" }
	return &http.Client{Transport: limit.Transport(limits, nil, key, acme)}
}

func TestClientOfThePageLearnsFromThePartner(t *testing.T) {
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(partner.Close)
	limits := newLimits(t)
	client := acmeClient(limits)
	r, err := client.Get(partner.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	_, err = limits.Wait(t.Context(), "partner:acme", acme, limit.MaxWait(time.Second))
	var refused *limit.LimitedError
	if !errors.As(err, &refused) || refused.Paused == nil || refused.RetryAfter < time.Minute {
		t.Errorf("the next call: %v, want the partner's pause", err)
	}
}

// Of 11 calls at once, no six are within 800 ms.
func TestCallsOfThePageKeepTheRate(t *testing.T) {
	limits := newLimits(t)
	var mu sync.Mutex
	var grants []limittest.Grant
	var calls sync.WaitGroup
	for range 11 {
		calls.Go(func() {
			p, err := limits.Wait(t.Context(), "partner:acme", acme)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			grants = append(grants, limittest.Grant{From: p.At(), To: p.At(), Units: 1})
		})
	}
	calls.Wait()
	if worst, _ := limittest.Worst(grants, 800*time.Millisecond); len(grants) != 11 || worst > 5 {
		t.Errorf("%d calls, %d of them within 800 ms", len(grants), worst)
	}
}

var tokens = limit.Limit{Rates: []limit.Rate{limit.PerMinute(100_000)}}

func summarize(ctx context.Context, limits *limit.Limiter, ask func(context.Context) (used int, err error)) error {
	permit, err := limits.Wait(ctx, "model", tokens, limit.Cost(4_000)) // the most that a call uses
	if err != nil {
		return err
	}
	used, err := ask(ctx)
	if err != nil {
		return err // nobody knows what it has used: it stays 4 000
	}
	return permit.Settle(ctx, used)
}

func TestUnitsThatACallDidNotUseAreReturned(t *testing.T) {
	limits := newLimits(t)
	failed := errors.New("no answer")
	for _, x := range []struct {
		err  error
		used int
	}{{nil, 1_200}, {failed, 5_200}} {
		if err := summarize(t.Context(), limits, func(context.Context) (int, error) { return 1_200, x.err }); !errors.Is(err, x.err) {
			t.Fatal(err)
		}
		if s, err := limits.Peek(t.Context(), "model", tokens); err != nil || s.Rates[0].Used != x.used {
			t.Errorf("%+v, %v, want %d used", s, err, x.used)
		}
	}
}
