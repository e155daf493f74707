package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/megatest"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// offline is the shop without sockets.
func offline(t *testing.T) *megatest.Kit {
	t.Helper()
	return megatest.New(t, megatest.Config{
		Set: []string{"database.url=sqlite://" + filepath.Join(t.TempDir(), "shop.db")},
	}, program(services.UnderLock))
}

// What was sold is in the ledger in a moment: the seller does not wait for it.
func TestEverySaleIsEntered(t *testing.T) {
	kit := offline(t)
	kit.Post("/products", map[string]any{"name": "Lamp", "price": 9.5, "stock": 5}).Status(http.StatusCreated)
	for q := 1; q <= 2; q++ {
		kit.Post("/products/1/buy", map[string]int{"quantity": q}).Status(http.StatusOK)
	}
	kit.Post("/products/1/buy", map[string]int{"quantity": 3}).Status(http.StatusConflict)

	megatest.Published(kit.Bus, services.Sold, 2) // and not a third one
	kit.Bus.Settle()
	var sales []store.Sale
	kit.Get("/ledger").Status(http.StatusOK).JSON(&sales)
	total := int64(0)
	for _, s := range sales {
		total += s.Quantity
		if s.Product != 1 || time.Since(s.At) > time.Minute {
			t.Errorf("an entry is %+v", s)
		}
	}
	if len(sales) != 2 || total != 3 {
		t.Errorf("the ledger has %+v, want 1 and 2 pieces", sales)
	}
	kit.Get("/ledger", "Accept: text/html").Status(http.StatusOK).Contains("<h1>Ledger</h1>")
}

// A sale that another process tells of is entered by this one.
func TestSaleOfAnotherProcessIsEntered(t *testing.T) {
	kit := offline(t)
	kit.Bus.Publish(string(services.Sold), store.Sale{Product: 7, Quantity: 2, At: time.Now()})
	kit.Bus.Settle()
	kit.Get("/ledger").Status(http.StatusOK).Contains(`"product":7,"quantity":2`)
	kit.Bus.Never(">")
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
