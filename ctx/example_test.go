package megactx_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"testing/fstest"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	"github.com/megaframework/mega/lock"
)

func ExampleLock_With() {
	locker, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(context.Background()) }()

	stock := map[string]int{"lamp": 1}
	app := router.New(&request.Host{Locker: locker}) // as mega.Main does
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

func ExampleCtx_SSE() {
	app := router.New(&request.Host{}) // as mega.Main does
	app.Get("/countdown", func(ctx *megactx.Ctx) error {
		return ctx.SSE(func(stream *megactx.Stream) error {
			for n := 2; n > 0; n-- {
				if err := stream.Send("tick", map[string]int{"left": n}); err != nil {
					return err
				}
			}
			return stream.Send("done", "liftoff")
		})
	})

	w := httptest.NewRecorder()
	app.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/countdown", nil))
	fmt.Print(w.Body)
	// Output:
	// event: tick
	// data: {"left":2}
	//
	// event: tick
	// data: {"left":1}
	//
	// event: done
	// data: liftoff
}

func ExampleCtx_T() {
	locales, err := locale.Parse([]string{"ko", "en"}, fstest.MapFS{
		"ko.yaml": {Data: []byte(`cart: "{product|을/를} {count}개 담았습니다."`)},
		"en.yaml": {Data: []byte(`cart: {one: "One {product} added.", other: "{count} {product}s added."}`)},
	})
	if err != nil {
		log.Fatal(err)
	}
	host := &request.Host{Locales: locales}
	ctx := outside(context.Background(), host)

	fmt.Println(ctx.T("cart", "product", "의자", "count", 2))
	fmt.Println(ctx.T("cart", "product", "책", "count", 1))
	fmt.Println(ctx.WithLocale("en-GB").T("cart", "product", "chair", "count", 2))
	fmt.Println(ctx.WithLocale("en-GB").T("cart", "product", "book", "count", 1))
	// Output:
	// 의자를 2개 담았습니다.
	// 책을 1개 담았습니다.
	// 2 chairs added.
	// One book added.
}

func ExampleJosa() {
	for _, word := range []string{"사과", "책", "‘서울’", "3", "10", "URL", "漢"} {
		fmt.Println(word + locale.Josa(word, "으로/로"))
	}
	// Output:
	// 사과로
	// 책으로
	// ‘서울’로
	// 3으로
	// 10으로
	// URL로
	// 漢(으)로
}
