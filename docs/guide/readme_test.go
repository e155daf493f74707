package guide_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// What README.md shows.

type Handlers struct{ store *store }

// Buy sells one piece. Other buyers of the product wait, in every process that
// shares the lock.
func (h *Handlers) Buy(ctx *mega.Ctx) error {
	id := ctx.Param("id")
	return ctx.Lock.With("product:"+id, func(ctx *mega.Ctx) error { // this ctx ends if the lock is lost
		return h.store.TakeOne(ctx, id)
	}, lock.TTL(10*time.Second), lock.Wait(2*time.Second))
}

func TestHandlerOfTheReadmeSells(t *testing.T) {
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	h := &Handlers{&store{stock: map[string]int{"42": 50}}}
	r := router.New(&request.Host{Locker: locks})
	r.Post("/products/{id}/buy", h.Buy)

	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/products/42/buy", nil))

	if w.Code != http.StatusNoContent || h.store.stock["42"] != 49 {
		t.Errorf("answered %d and left %d in stock, want 204 and 49", w.Code, h.store.stock["42"])
	}
}

// nightly is how a program without the framework takes a lock.
func nightly(ctx context.Context, url string, report func(context.Context) error) error {
	d, err := redis.OpenLock(ctx, redis.Config{URL: url}) // redis://localhost:6379
	if err != nil {
		return err
	}
	locks, err := lock.New(d, lock.Config{})
	if err != nil {
		return err
	}
	defer locks.Close(ctx)

	return locks.With(ctx, "nightly-report", report)
}

func TestLocksOfTheReadmeNeedNoFramework(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	held := false
	err := nightly(t.Context(), server.URL(), func(ctx context.Context) error {
		_, held = lock.LeaseFrom(ctx)
		return nil
	})
	if err != nil || !held {
		t.Errorf("held is %v, err %v", held, err)
	}
}
