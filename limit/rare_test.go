package limit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
)

// The estimate for a call that has given up says nothing about those behind it.
func TestEstimateEndsWithItsCall(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		m := limit.Limit{Rates: []limit.Rate{{N: 10, Per: 10 * time.Second}}}
		if got, err := l.Allow(t.Context(), "k", m, limit.Cost(5)); err != nil || !got.Allowed {
			t.Fatalf("got %+v, %v", got, err)
		}
		var waiters sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		waiters.Go(func() { _, _ = l.Wait(ctx, "k", m, limit.Cost(10)) })
		synctest.Wait()
		waiters.Go(func() {
			if _, err := l.Wait(t.Context(), "k", m); err != nil {
				t.Errorf("the second: %v", err)
			}
		})
		synctest.Wait()
		r.set(func(_ context.Context, take func() (driver.Answer, error)) (driver.Answer, error) {
			time.Sleep(500 * time.Millisecond)
			return take()
		})
		cancel()
		synctest.Wait() // the second asks
		if _, err := l.Wait(t.Context(), "k", m, limit.MaxWait(2*time.Second)); err != nil {
			t.Errorf("the third: %v", err)
		}
		waiters.Wait()
	})
}

func TestCloseEndsAWaiterDuringAnOutage(t *testing.T) {
	far(t, func(t *testing.T, l *limit.Limiter, r *remote, _ func() []limit.Event) {
		r.set(refuse)
		var got error
		var waiter sync.WaitGroup
		waiter.Go(func() { _, got = l.Wait(t.Context(), "k", limit.Limit{Rates: []limit.Rate{limit.PerSecond(1)}}) })
		time.Sleep(200 * time.Millisecond)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		waiter.Wait()
		if !errors.Is(got, limit.ErrClosed) {
			t.Errorf("got %v", got)
		}
	})
}
