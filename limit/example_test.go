package limit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/limit"
)

// example returns a Limiter in memory.
func example() (l *limit.Limiter, end func()) {
	l, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		panic(err)
	}
	return l, func() { _ = l.Close(context.Background()) }
}

func ExampleLimiter_Allow() {
	limiter, end := example()
	defer end()
	login := limit.Limit{Rates: []limit.Rate{limit.PerMinute(2)}}
	for range 3 {
		r, err := limiter.Allow(context.Background(), "login:ann", login)
		fmt.Println(r.Allowed, r.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

// A partner allows 5 calls in any 800 ms, and 10 000 in any day.
func ExampleLimiter_With() {
	limiter, end := example()
	defer end()
	partner := limit.Limit{Rates: []limit.Rate{{N: 5, Per: 800 * time.Millisecond}, limit.PerDay(10_000)}}
	err := limiter.With(context.Background(), "partner:acme", partner, func(context.Context, *limit.Permit) error {
		fmt.Println("call acme")
		return nil
	})
	fmt.Println(err)
	// Output:
	// call acme
	// <nil>
}

// The cost of a call is known only afterwards: take what it needs at most, and
// return the rest.
func ExamplePermit_Settle() {
	limiter, end := example()
	defer end()
	ctx := context.Background()
	tokens := limit.Limit{Rates: []limit.Rate{limit.PerMinute(100_000)}}
	permit, err := limiter.Wait(ctx, "model", tokens, limit.Cost(4_000))
	if err != nil {
		fmt.Println(err)
		return
	}
	used := 1_200 // from the response
	fmt.Println(permit.Settle(ctx, used))
	state, err := limiter.Peek(ctx, "model", tokens)
	fmt.Println(state.Rates[0].Used, err)
	// Output:
	// <nil>
	// 1200 <nil>
}

func ExampleMaxWait() {
	limiter, end := example()
	defer end()
	ctx := context.Background()
	hourly := limit.Limit{Rates: []limit.Rate{limit.PerHour(1)}}
	for range 2 {
		_, err := limiter.Wait(ctx, "report", hourly, limit.MaxWait(time.Minute))
		var late *limit.LimitedError
		fmt.Println(errors.As(err, &late), late != nil && late.RetryAfter > 59*time.Minute)
	}
	// Output:
	// false false
	// true true
}

func ExampleHTTP() {
	limiter, end := example()
	defer end()
	perClient := limit.HTTP(limiter, func(r *http.Request) string { return "client:" + r.Header.Get("Client") },
		limit.Limit{Rates: []limit.Rate{limit.PerHour(1)}})
	server := httptest.NewServer(perClient(http.NotFoundHandler()))
	defer server.Close()
	for range 2 {
		r, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = r.Body.Close()
		fmt.Println(r.StatusCode, r.Header.Get("RateLimit-Policy"))
	}
	// Output:
	// 404 "1-per-1h0m0s";q=1;w=3600
	// 429 "1-per-1h0m0s";q=1;w=3600
}
