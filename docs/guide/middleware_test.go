package guide_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/cors"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/megatest"
)

// What 06-bus.md shows.

// patient handles a message again, twice at most, when a lock in it was busy.
func patient(next bus.Handler) bus.Handler {
	return func(ctx context.Context, m *bus.Msg) error {
		err := next(ctx, m)
		for again := 0; again < 2 && errors.Is(err, lock.ErrNotAcquired) && ctx.Err() == nil; again++ {
			err = next(ctx, m)
		}
		return err
	}
}

func patientAccounts(a *Accounts) mega.Option {
	return mega.Module(
		mega.Provide(func() *Accounts { return a }),
		mega.Subscribe(Sold, (*Accounts).OnSold, bus.Use(patient)),
	)
}

func TestAMiddlewareHandlesAMessageAgain(t *testing.T) {
	calls := 0
	err := patient(func(context.Context, *bus.Msg) error {
		if calls++; calls < 3 {
			return lock.ErrNotAcquired
		}
		return nil
	})(t.Context(), &bus.Msg{})
	if err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
	a := NewAccounts()
	kit := megatest.New(t, megatest.Config{}, patientAccounts(a))
	kit.Bus.Publish("product.sold", Sale{Product: "lamp", Quantity: 2})
	kit.Bus.Settle()
	if a.sold["lamp"] != 2 {
		t.Errorf("sold %v", a.sold)
	}
}

// What 03-context.md shows.

func publicAPI(r mega.Router) {
	r.UseStd(cors.Handler(cors.Options{AllowedOrigins: []string{"https://shop.example.org"}, AllowedMethods: []string{"GET", "POST", "DELETE"}, AllowedHeaders: []string{"Content-Type"}}))
	r.UseStd(middleware.Compress(5))
	r.Get("/", func(ctx *mega.Ctx) error { return ctx.JSON(http.StatusOK, strings.Repeat("mega ", 500)) })
}

func TestMiddlewareOfThePage(t *testing.T) {
	router := router.New(&request.Host{})
	publicAPI(router)
	ask := func(method string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/", nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		router.Handler().ServeHTTP(w, r)
		return w
	}
	before := ask("OPTIONS", "Origin", "https://shop.example.org", "Access-Control-Request-Method", "DELETE")
	if before.Code != http.StatusOK || before.Header().Get("Access-Control-Allow-Methods") != "DELETE" {
		t.Errorf("a preflight request is answered %d %v", before.Code, before.Header())
	}
	if w := ask("GET", "Origin", "https://evil.example.org"); w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another site is allowed: %v", w.Header())
	}
	if w := ask("GET", "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len() > 500 {
		t.Errorf("the answer has %d bytes: %v", w.Body.Len(), w.Header())
	}
}
