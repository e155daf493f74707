package handlers

import (
	"net/http"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// Ledger shows what was sold.
type Ledger struct{ store *store.Store }

// NewLedger returns the handlers of the ledger.
func NewLedger(s *store.Store) *Ledger { return &Ledger{s} }

// List shows the sales, the newest first.
func (h *Ledger) List(ctx *mega.Ctx) error {
	page := asked(ctx)
	sales, total, err := h.store.Sales(ctx, perPage, skipped(page))
	if err != nil {
		return err
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, sales)
	}
	return ctx.HTML(http.StatusOK, "ledger", ledgerPage{sales, newPaging(ctx, page, total)})
}

type ledgerPage struct {
	Sales  []store.Sale
	Paging paging
}
