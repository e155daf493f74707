// Package admin is the app of the operators: it refunds orders, adds stock, and
// shows the locks with their holders.
package admin

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/sample/multi/shop"
)

var (
	//go:embed views
	views embed.FS
	//go:embed public
	public embed.FS
)

// Module is the app.
var Module = mega.Module(
	mega.Provide(NewHandlers),
	mega.Routes(func(r mega.Router, h *Handlers) {
		r.Get("/", h.Home)
		r.Post("/refunds", h.Refund)
		r.Post("/restocks", h.Restock)
		r.Get("/locks", h.Locks)
		r.Get("/locks/live", h.Live)
		r.Get("/orders/live", h.Orders)
		r.Post("/locks/release", h.Release)
	}),
	mega.Views(views),
	mega.Public(public),
)

// Handlers answer operators.
type Handlers struct {
	store *shop.Store
	shop  *shop.Shop
}

// NewHandlers returns the handlers of the app.
func NewHandlers(store *shop.Store, s *shop.Shop) *Handlers { return &Handlers{store, s} }

type homePage struct {
	Title    string
	Products []shop.Product
	Orders   []shop.Order
	Locks    []row
	Driver   string
	Scope    string
	Done     string
}

const newest = 20 // orders on the page

// Home shows orders, stock and locks.
func (h *Handlers) Home(ctx *mega.Ctx) (err error) {
	info := ctx.Lock.Info()
	page := homePage{Title: "Admin", Driver: info.Name, Scope: scopeName(info.Scope), Done: ctx.Query("done")}
	if page.Products, err = h.store.Products(ctx); err != nil {
		return err
	}
	if page.Orders, err = h.store.Orders(ctx, newest); err != nil {
		return err
	}
	if page.Locks, err = h.rows(ctx); err != nil {
		return err
	}
	return ctx.HTML(http.StatusOK, "home", page)
}

// scopeName names the processes whose locks the page shows.
func scopeName(s mega.Scope) string {
	if s < mega.Node {
		return "of this process alone"
	}
	return "of every process of the " + s.String()
}

// RefundInput names the order to refund.
type RefundInput struct {
	Order int64 `json:"order"`
}

// Validate reports an invalid order.
func (in *RefundInput) Validate() error {
	if in.Order < 1 {
		return mega.FieldErrors{"order": "has to be the id of an order"}
	}
	return nil
}

// Refund refunds an order.
func (h *Handlers) Refund(ctx *mega.Ctx) error {
	var in RefundInput
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	order, err := h.shop.Refund(ctx, in.Order)
	if err != nil {
		return err
	}
	return done(ctx, order, fmt.Sprintf("Order %d was refunded.", order.ID))
}

// Restock adds to the stock of a product.
func (h *Handlers) Restock(ctx *mega.Ctx) error {
	var in shop.Quantity
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	p, err := h.shop.Restock(ctx, in.Product, in.Quantity)
	if err != nil {
		return err
	}
	return done(ctx, p, fmt.Sprintf("The stock of %s is %d.", p.Name, p.Stock))
}

// Orders streams each order when it is made, by any process on the bus.
func (h *Handlers) Orders(ctx *mega.Ctx) error {
	return ctx.SSE(func(s *mega.Stream) error {
		_, err := s.Bus.Subscribe(string(shop.Ordered), func(_ *mega.Ctx, m *bus.Msg) error {
			return s.Send("order", json.RawMessage(m.Data))
		})
		if err != nil {
			return err
		}
		<-s.Done()
		return nil
	})
}

// done answers with the changed value, or redirects to the page that shows it.
func done(ctx *mega.Ctx, changed any, text string) error {
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, changed)
	}
	return ctx.Redirect(http.StatusSeeOther, "/?"+url.Values{"done": {text}}.Encode())
}
