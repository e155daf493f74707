package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/megatest"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// offline is the shop without sockets.
func offline(t *testing.T) *megatest.Kit {
	t.Helper()
	return offlineWith(t, services.UnderLock)
}

func offlineWith(t *testing.T, exclusive func() services.Exclusive) *megatest.Kit {
	t.Helper()
	return megatest.New(t, megatest.Config{
		Set: []string{"database.url=sqlite://" + filepath.Join(t.TempDir(), "shop.db")},
	}, program(exclusive))
}

// The entry and the stock are one transaction: a sale that was answered is in the
// ledger, under the name that the product had.
func TestEverySaleIsEntered(t *testing.T) {
	kit := offline(t)
	kit.Post("/products", map[string]any{"name": "Lamp", "price": 9.5, "stock": 5}).Status(http.StatusCreated)
	for q := 1; q <= 2; q++ {
		kit.Post("/products/1/buy", map[string]int{"quantity": q}).Status(http.StatusOK).Contains(fmt.Sprintf(`"sale":%d`, q))
	}
	kit.Post("/products/1/buy", map[string]int{"quantity": 3}).Status(http.StatusConflict)

	megatest.Published(kit.Bus, services.Sold, 2) // and not a third one
	var sales []store.Sale
	kit.Get("/ledger").Status(http.StatusOK).JSON(&sales)
	for i, s := range sales {
		if s.ID != int64(2-i) || s.Product != 1 || s.Name != "Lamp" || s.Quantity != s.ID || time.Since(s.At) > time.Minute {
			t.Errorf("entry %d is %+v", i, s)
		}
	}
	if len(sales) != 2 {
		t.Errorf("the ledger has %+v", sales)
	}
	page := []string{"Accept: text/html"}
	kit.Get("/ledger", page...).Status(http.StatusOK).Contains(`<a href="/products/1"><bdi>Lamp</bdi></a>`)
	kit.Delete("/products/1").Status(http.StatusNoContent)
	kit.Get("/ledger", page...).Status(http.StatusOK).Contains(`<bdi>Lamp</bdi> <span class="small">(removed)</span>`)
}

// lostAfterwards takes the lock from its holder when fn has returned without an error.
func lostAfterwards() services.Exclusive {
	exclusive := services.UnderLock()
	return func(ctx *mega.Ctx, key string, fn func(*mega.Ctx) error) error {
		return exclusive(ctx, key, func(ctx *mega.Ctx) error {
			if err := fn(ctx); err != nil {
				return err
			}
			if _, err := ctx.Lock.ForceRelease(key, "it hangs"); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
	}
}

// The database has checked the lock in the transaction of the sale.
func TestASaleIsValidIfItsLockIsLostAfterTheCommit(t *testing.T) {
	kit := offlineWith(t, lostAfterwards)
	kit.Post("/products", map[string]any{"name": "Lamp", "price": 9.5, "stock": 5}).Status(http.StatusCreated)
	kit.Post("/products/1/buy", map[string]int{"quantity": 1}).Status(http.StatusOK).Contains(`"stock":4`)
	megatest.Published(kit.Bus, services.Sold, 1)
	kit.Post("/products/1/buy", map[string]int{"quantity": 5}).Status(http.StatusConflict).Code("product.sold_out")
}

// A sale is valid when it is committed, whether or not its buyer waits for the answer.
func TestASaleIsPublishedAfterItsBuyerHasLeft(t *testing.T) {
	buyer, leave := context.WithCancel(t.Context())
	kit := offlineWith(t, func() services.Exclusive {
		return func(ctx *mega.Ctx, key string, fn func(*mega.Ctx) error) error {
			err := ctx.Lock.With(key, fn)
			leave()
			<-ctx.Done()
			return err
		}
	})
	kit.Post("/products", map[string]any{"name": "Lamp", "price": 9.5, "stock": 5}).Status(http.StatusCreated)
	kit.Serve(httptest.NewRecorder(), kit.Request("POST", "/products/1/buy", map[string]int{"quantity": 2}).WithContext(buyer))
	if sold := megatest.Published(kit.Bus, services.Sold, 1)[0]; sold.ID != 1 || sold.Left != 3 {
		t.Errorf("the event is %+v", sold)
	}
}

func TestLedgerHasPages(t *testing.T) {
	kit := offline(t)
	kit.Post("/products", map[string]any{"name": "Lamp", "price": 9.5, "stock": 50}).Status(http.StatusCreated)
	for range 21 {
		kit.Post("/products/1/buy", map[string]int{"quantity": 1}).Status(http.StatusOK)
	}
	page := []string{"Accept: text/html"}
	kit.Get("/ledger", page...).Contains("Page 1 of 2").Contains(`<a href="?page=2" rel="next">`).Contains(`data-label="No.">21</td>`)
	kit.Get("/ledger?page=2", page...).Contains("Page 2 of 2").Contains(`<a href="?page=1" rel="prev">`).Contains(`data-label="No.">1</td>`)
	kit.Get("/ledger?page=x", page...).Contains("Page 1 of 2")
	kit.Get("/ledger?page=9", page...).Contains("The list does not have so many pages.").Contains(`<a href="?page=2" rel="prev">`)
}

// The time of the test begins at midnight UTC, as a day does.
func TestLowStockIsReportedOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := offline(t)
		kit.Post("/products", map[string]any{"name": "Lamp", "price": 9.5, "stock": 5}).Status(http.StatusCreated)
		buy := func() {
			kit.Post("/products/1/buy", map[string]int{"quantity": 1}).Status(http.StatusOK)
			kit.Bus.Settle()
		}
		for range 3 {
			buy()
		}
		kit.Log.Expect("stock low", "product", 1, "left", 3)
		kit.Log.Never("stock low", "left", 2)
		time.Sleep(24 * time.Hour)
		buy()
		kit.Log.Expect("stock low", "product", 1, "left", 1)
	})
}

func TestStockIsAnsweredOverTheBus(t *testing.T) {
	kit := offline(t)
	kit.Post("/products", map[string]any{"name": "Lamp", "price": 9.5, "stock": 5}).Status(http.StatusCreated)
	kit.Get("/products/1/stock").Status(http.StatusOK).Contains(`{"stock":5}`)
	kit.Get("/products/2/stock").Status(http.StatusNotFound).Code("product.not_found")
	answer, err := kit.Bus.Request(services.StockOf, services.StockRequest{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	var stock services.Stock
	if err := json.Unmarshal(answer.Data, &stock); err != nil || stock.Stock != 5 {
		t.Errorf("the answer is %s, %v", answer.Data, err)
	}
}
