package services

import (
	"context"
	"strconv"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// Sale is the event of a sale.
type Sale struct {
	store.Sale
	Left int64 `json:"left"` // the stock after it
}

// Sold is the topic of sales. The seller does not know its subscribers.
const Sold = bus.Topic[Sale]("product.sold")

// Watch reports products that are nearly sold out. The processes on one bus form
// a queue group, so one of them handles each sale.
type Watch struct{ locks *lock.Locker }

// NewWatch returns a Watch.
func NewWatch(locks *lock.Locker) *Watch { return &Watch{locks} }

const (
	low      = 3              // the stock of a product that is nearly sold out
	lowEvery = 24 * time.Hour // from midnight UTC
)

// OnSold reports a sale that leaves little. It reports a product once a day: the
// backend of the locks knows for all processes, and for their restarts, which
// products were reported.
func (w *Watch) OnSold(ctx *mega.Ctx, s Sale) error {
	if s.Left > low {
		return nil
	}
	_, err := w.locks.Once(ctx, lowKey(s.Product), lowEvery, func(context.Context) error {
		ctx.Log.Warn("stock low", "product", s.Product, "name", s.Name, "left", s.Left)
		return nil
	})
	return err
}

func lowKey(product int64) string { return "low-stock:" + strconv.FormatInt(product, 10) }

// StockOf is the subject of requests for the stock of a product.
const StockOf = "product.stock"

// StockRequest and Stock are the request for the stock of a product and its
// answer on the bus.
type (
	// StockRequest names the product.
	StockRequest struct {
		ID int64 `json:"id"`
	}
	// Stock is the answer.
	Stock struct {
		Stock int64 `json:"stock"`
	}
)

// AnswerStock answers StockRequests. Its errors reach the caller with their
// codes.
func (s *Shop) AnswerStock(ctx *mega.Ctx, in StockRequest) (Stock, error) {
	p, err := s.store.Get(ctx, in.ID)
	return Stock{p.Stock}, err
}
