package services

import (
	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
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
// a queue group, so one of them reports each.
type Watch struct{}

// NewWatch returns a Watch.
func NewWatch() *Watch { return &Watch{} }

// low is the stock of a product that is nearly sold out.
const low = 3

// OnSold reports a sale that leaves little.
func (w *Watch) OnSold(ctx *mega.Ctx, s Sale) error {
	if s.Left <= low {
		ctx.Log.Warn("stock low", "product", s.Product, "name", s.Name, "left", s.Left)
	}
	return nil
}

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
