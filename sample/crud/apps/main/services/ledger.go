package services

import (
	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// Sold is the topic of sales. The seller does not know its subscribers.
const Sold = bus.Topic[store.Sale]("product.sold")

// StockOf is the subject of requests for the stock of a product.
const StockOf = "product.stock"

// Ledger records sales. The processes on one bus form a queue group, so one of
// them records each sale.
type Ledger struct{ store *store.Store }

// NewLedger returns a Ledger in the database of the shop.
func NewLedger(s *store.Store) *Ledger { return &Ledger{s} }

// OnSold records a sale.
func (l *Ledger) OnSold(ctx *mega.Ctx, s store.Sale) error { return l.store.Enter(ctx, s) }

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
