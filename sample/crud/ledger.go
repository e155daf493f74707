package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
)

// Sale is the event of a sale.
type Sale struct {
	Product  int64     `json:"product"`
	Quantity int64     `json:"quantity"`
	At       time.Time `json:"at"`
}

// Sold is the topic of sales. The seller does not know its subscribers.
const Sold = bus.Topic[Sale]("product.sold")

// stockOf is the subject of requests for the stock of a product.
const stockOf = "product.stock"

// publish publishes a sale. The sale is valid even if the publish fails.
func (h *Handlers) publish(ctx *mega.Ctx, id, quantity int64) {
	err := mega.Publish(ctx, Sold, Sale{id, quantity, time.Now().UTC()})
	if err != nil {
		ctx.Log.Error("sale not published", "product", id, "error", err)
	}
}

// Ledger records sales. The processes on one bus form a queue group, so one of
// them records each sale.
type Ledger struct{ store *Store }

// NewLedger returns a Ledger in the database of the shop.
func NewLedger(store *Store) *Ledger { return &Ledger{store} }

// OnSold records a sale.
func (l *Ledger) OnSold(ctx *mega.Ctx, s Sale) error { return l.store.Enter(ctx, s) }

// List shows the sales, the newest first.
func (l *Ledger) List(ctx *mega.Ctx) error {
	sales, err := l.store.Sales(ctx)
	if err != nil {
		return err
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, sales)
	}
	return ctx.HTML(http.StatusOK, "ledger", ledgerPage{Title: "Ledger", Sales: sales})
}

type ledgerPage struct {
	Title string
	Sales []Sale
}

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
func (h *Handlers) AnswerStock(ctx *mega.Ctx, in StockRequest) (Stock, error) {
	p, err := h.store.Get(ctx, in.ID)
	return Stock{p.Stock}, err
}

// AskStock requests the stock of a product as another service would.
func (h *Handlers) AskStock(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	stock, err := mega.Call[StockRequest, Stock](ctx, stockOf, StockRequest{id})
	if remote, ok := errors.AsType[*bus.RemoteError](err); ok && remote.Code() == codeNotFound {
		return errNotFound // the product of this address does not exist
	}
	if err != nil {
		return err
	}
	return ctx.JSON(http.StatusOK, stock)
}

// Enter writes a sale to the ledger.
func (s *Store) Enter(ctx context.Context, sale Sale) error {
	_, err := s.db.ExecContext(ctx, "INSERT INTO ledger (product, quantity, at) VALUES (?, ?, ?)", sale.Product, sale.Quantity, sale.At.UnixMilli())
	if err != nil {
		return fmt.Errorf("enter a sale of product %d: %w", sale.Product, err)
	}
	return nil
}

// listed is the number of sales on the page.
const listed = 1000

// Sales returns the newest entries of the ledger.
func (s *Store) Sales(ctx context.Context) ([]Sale, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT product, quantity, at FROM ledger ORDER BY at DESC, rowid DESC LIMIT ?", listed)
	if err != nil {
		return nil, fmt.Errorf("list sales: %w", err)
	}
	defer func() { _ = rows.Close() }()
	sales := []Sale{}
	for rows.Next() {
		var sale Sale
		var at int64
		if err := rows.Scan(&sale.Product, &sale.Quantity, &at); err != nil {
			return nil, fmt.Errorf("list sales: %w", err)
		}
		sale.At = time.UnixMilli(at).UTC()
		sales = append(sales, sale)
	}
	return sales, rows.Err()
}
