// Package web is the app of the buyers: it shows the products and accepts orders.
package web

import (
	"embed"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/sample/multi/shop"
)

//go:embed views
var views embed.FS

// Module is the app.
var Module = mega.Module(
	mega.Provide(NewHandlers),
	mega.Routes(func(r mega.Router, h *Handlers) {
		r.Get("/", h.Home)
		r.Post("/orders", h.Order)
		r.Get("/orders/{id}", h.Show)
		r.Get("/live", h.Live)
	}),
	mega.Views(views),
)

// Handlers answer buyers.
type Handlers struct {
	store *shop.Store
	shop  *shop.Shop
	admin string
}

// NewHandlers returns the handlers of the app.
func NewHandlers(store *shop.Store, s *shop.Shop, links shop.Links) *Handlers {
	return &Handlers{store, s, links.Admin.Reveal()}
}

type homePage struct {
	Title    string
	Admin    string // its address, or ""
	Products []shop.Product
	Orders   []shop.Order
	Ordered  int64 // the id of the order that was just placed, or 0
	Refused  refusedOrder
}

// refusedOrder is an order as the user typed it, with the error of its quantity.
type refusedOrder struct{ Product, Quantity, Error string }

const newest = 10 // orders on the page

// Home shows the products, each with an order form, and the newest orders.
func (h *Handlers) Home(ctx *mega.Ctx) error {
	products, err := h.store.Products(ctx)
	if err != nil {
		return err
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, products)
	}
	return h.show(ctx, http.StatusOK, products, refusedOrder{})
}

func (h *Handlers) show(ctx *mega.Ctx, status int, products []shop.Product, refused refusedOrder) error {
	orders, err := h.store.Orders(ctx, newest)
	if err != nil {
		return err
	}
	ordered, err := strconv.ParseInt(ctx.Query("ordered"), 10, 64)
	if err != nil { // the page does not show the text of any link as its own
		ordered = 0
	}
	return ctx.HTML(status, "home", homePage{
		Title: "Products", Admin: h.admin, Products: products, Orders: orders, Ordered: ordered, Refused: refused,
	})
}

// Live streams orders, refunds and stock as they change, by any process on the
// bus.
func (h *Handlers) Live(ctx *mega.Ctx) error {
	return ctx.SSE(func(s *mega.Stream) error {
		if err := shop.Watch(s); err != nil {
			return err
		}
		alive := time.NewTicker(shop.Alive)
		defer alive.Stop()
		for {
			select {
			case <-alive.C:
				if err := shop.SendAlive(s); err != nil {
					return err
				}
			case <-s.Done():
				return nil
			}
		}
	})
}

const (
	packingKey = "packing"       // of the limit packing, for all processes of the shop
	patience   = 3 * time.Second // of a buyer
)

// packing is the number of orders that the warehouse packs. An outage of the limits does
// not stop the sale: the warehouse can pack later.
var packing = limit.Limit{Rates: []limit.Rate{limit.PerMinute(300)}, Outage: limit.Open}

// Order accepts an order, at most as many as the warehouse packs.
func (h *Handlers) Order(ctx *mega.Ctx) error {
	in := shop.Quantity{Quantity: 1}
	if err := ctx.Bind(&in); err != nil {
		return h.refuse(ctx, err)
	}
	permit, err := ctx.Limit.Wait(packingKey, packing, limit.MaxWait(patience)) // 429 at once if no unit is free by then
	if err != nil {
		return err
	}
	order, err := h.shop.Order(ctx, in.Product, in.Quantity)
	switch {
	case err != nil:
		_ = permit.Cancel(ctx) // nothing to pack; a unit that is not given back is free a minute later
		return err
	case ctx.WantsJSON():
		ctx.Writer().Header().Set("Location", ctx.URL(fmt.Sprintf("/orders/%d", order.ID)))
		return ctx.JSON(http.StatusCreated, order)
	}
	return ctx.Redirect(http.StatusSeeOther, fmt.Sprintf("/?ordered=%d", order.ID))
}

// refuse shows the page again with the error of a quantity beside its field.
func (h *Handlers) refuse(ctx *mega.Ctx, err error) error {
	wrong, sent := mega.FieldErrors{}, ctx.Request().PostForm
	if ctx.WantsJSON() || !errors.As(err, &wrong) || wrong["quantity"] == "" || wrong["product"] != "" {
		return err
	}
	refused := refusedOrder{sent.Get("product"), sent.Get("quantity"), wrong["quantity"]}
	products, failed := h.store.Products(ctx)
	switch {
	case failed != nil:
		return failed
	case !slices.ContainsFunc(products, func(p shop.Product) bool { return p.Name == refused.Product }):
		return err // the page has no field of this product
	}
	return h.show(ctx, http.StatusUnprocessableEntity, products, refused)
}

// Show shows one order.
func (h *Handlers) Show(ctx *mega.Ctx) error {
	order, err := h.store.Find(ctx, ctx.Param("id"))
	if err != nil {
		return err
	}
	return ctx.JSON(http.StatusOK, order)
}
