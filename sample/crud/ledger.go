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

// Sale is what is told when something was sold.
type Sale struct {
	Product  int64     `json:"product"`
	Quantity int64     `json:"quantity"`
	At       time.Time `json:"at"`
}

// Sold is told to whoever wants to know: that a piece was sold is a fact, and
// who needs it is none of the seller's business.
const Sold = bus.Topic[Sale]("product.sold")

// stockOf is where the stock of a product is asked for.
const stockOf = "product.stock"

// tell publishes a sale. The sale stands, whether or not it can be told.
func (h *Handlers) tell(ctx *mega.Ctx, id, quantity int64) {
	err := mega.Publish(ctx, Sold, Sale{id, quantity, time.Now().UTC()})
	if err != nil {
		ctx.Log.Error("sold, and could not tell", "product", id, "error", err)
	}
}

// Ledger enters what was sold. Of all processes that share a bus, one enters
// each sale: they are a group.
type Ledger struct{ store *Store }

// NewLedger returns a Ledger in the shop's own database.
func NewLedger(store *Store) *Ledger { return &Ledger{store} }

// OnSold enters a sale.
func (l *Ledger) OnSold(ctx *mega.Ctx, s Sale) error { return l.store.Enter(ctx, s) }

// List shows what was sold, the newest first.
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

// StockRequest and Stock are how the stock of a product is asked for over the
// bus, by whichever part of a system wants to know.
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

// AnswerStock answers StockRequests. Its errors reach who asked with their
// codes.
func (h *Handlers) AnswerStock(ctx *mega.Ctx, in StockRequest) (Stock, error) {
	p, err := h.store.Get(ctx, in.ID)
	return Stock{p.Stock}, err
}

// AskStock asks for the stock of a product as another service would.
func (h *Handlers) AskStock(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	stock, err := mega.Call[StockRequest, Stock](ctx, stockOf, StockRequest{id})
	if remote, ok := errors.AsType[*bus.RemoteError](err); ok && remote.Code() == codeNotFound {
		return errNotFound // what the responder says of the product is true of this address
	}
	if err != nil {
		return err
	}
	return ctx.JSON(http.StatusOK, stock)
}

// Enter writes a sale into the ledger.
func (s *Store) Enter(ctx context.Context, sale Sale) error {
	_, err := s.db.ExecContext(ctx, "INSERT INTO ledger (product, quantity, at) VALUES (?, ?, ?)", sale.Product, sale.Quantity, sale.At.UnixMilli())
	if err != nil {
		return fmt.Errorf("enter a sale of product %d: %w", sale.Product, err)
	}
	return nil
}

// listed bounds what is shown of the ledger.
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
