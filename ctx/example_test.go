package megactx_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

func ExampleLock_With() {
	locker, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(context.Background()) }()

	stock := map[string]int{"lamp": 1}
	app := megactx.NewRouter(&megactx.Host{Locker: locker})
	app.Post("/products/{id}/buy", func(ctx *megactx.Ctx) error {
		id := ctx.Param("id")
		return ctx.Lock.With("product:"+id, func(ctx *megactx.Ctx) error { // this ctx ends if the lock is lost
			if stock[id] == 0 {
				return megactx.Error(http.StatusConflict, "product.sold_out", "There are none left.")
			}
			stock[id]--
			return ctx.JSON(http.StatusOK, map[string]int{"stock": stock[id]})
		})
	})

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/products/lamp/buy", nil)
		r.Header.Set("Accept", "application/json")
		r.Header.Set("X-Request-Id", "4711")
		w := httptest.NewRecorder()
		app.Handler().ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 {"stock":0}
	// 409 {"type":"about:blank","title":"Conflict","status":409,"code":"product.sold_out","detail":"There are none left.","request":"4711"}
}
