package megactx_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/limit"
)

// newLimiter returns a Limiter in memory that the test closes.
func newLimiter(t *testing.T) *limit.Limiter {
	t.Helper()
	l, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func hourly(n int) limit.Limit { return limit.Limit{Rates: []limit.Rate{limit.PerHour(n)}} }

func TestViewOfLimitsAnswersLikeTheLimiter(t *testing.T) {
	c := outside(t.Context(), &request.Host{Limiter: newLimiter(t)})
	var inside *megactx.Ctx
	if err := c.Limit.With("partner:1", hourly(2), func(c *megactx.Ctx, p *limit.Permit) error {
		inside = c
		return nil
	}); err != nil || inside == nil {
		t.Fatalf("with: %v, and the Ctx %v", err, inside)
	}
	if _, err := c.Limit.Wait("partner:1", hourly(2)); err != nil {
		t.Errorf("wait: %v", err)
	}
	if r, err := c.Limit.Allow("partner:1", hourly(2)); err != nil || r.Allowed || r.RetryAfter <= 0 {
		t.Errorf("allow: got %+v, %v", r, err)
	}
	if s, err := c.Limit.Peek("partner:1", hourly(2)); err != nil || s.Rates[0].Used != 2 {
		t.Errorf("peek: got %+v, %v", s, err)
	}
	if err := c.Limit.Pause("partner:1", time.Minute, "they asked for it"); err != nil {
		t.Errorf("pause: %v", err)
	}
	if s, err := c.Limit.Inspect("partner:1"); err != nil || s.Paused == nil || s.Paused.Reason != "they asked for it" {
		t.Errorf("inspect: got %+v, %v", s, err)
	}
	if all, err := c.Limit.List("partner:"); err != nil || len(all) != 1 {
		t.Errorf("list: got %+v, %v", all, err)
	}
	if err := c.Limit.Reset("partner:1"); err != nil {
		t.Errorf("reset: %v", err)
	}
	if r, err := c.Limit.Allow("partner:1", hourly(2)); err != nil || !r.Allowed {
		t.Errorf("allow after the reset: got %+v, %v", r, err)
	}
	if s, i := c.Limit.Stats(), c.Limit.Info(); s.Allowed != 3 || s.Refused != 1 || i.Name != "memory" {
		t.Errorf("stats %+v, info %+v", s, i)
	}
}

func TestWaitForALimitEndsWithTheCtx(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := outside(ctx, &request.Host{Limiter: newLimiter(t)})
	if _, err := c.Limit.Wait("partner:1", hourly(1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := c.Limit.Wait("partner:1", hourly(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestLimitedRequestIsToldWhenToRetry(t *testing.T) {
	s := newStage()
	s.host.Limiter = newLimiter(t)
	s.router.Post("/orders", func(c *megactx.Ctx) error {
		return c.Limit.With("orders", hourly(1), func(c *megactx.Ctx, _ *limit.Permit) error { return c.Text(http.StatusOK, "ordered") }, limit.MaxWait(0))
	})
	if got := s.ask("POST", "/orders", ""); got.Code != http.StatusOK {
		t.Fatalf("the first order: got %d %s", got.Code, got.Body)
	}
	got := s.ask("POST", "/orders", "")
	if got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "3600" {
		t.Errorf("got %d, Retry-After %q: %s", got.Code, got.Header().Get("Retry-After"), got.Body)
	}
}
