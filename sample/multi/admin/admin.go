// Package admin is the app of the operators: it refunds and exchanges orders, adds
// stock, and shows the locks with their holders.
package admin

import (
	"embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/multi/shop"
)

//go:embed views
var views embed.FS

// Module is the app.
var Module = mega.Module(
	mega.Provide(NewHandlers),
	mega.Routes(func(r mega.Router, h *Handlers) {
		r.Get("/", h.Home)
		r.Post("/refunds", h.Refund)
		r.Post("/exchanges", h.Exchange)
		r.Post("/restocks", h.Restock)
		r.Get("/locks", h.Locks)
		r.Get("/live", h.Live)
		r.Post("/locks/release", h.Release)
	}),
	mega.Command("restock", restock),
	mega.Lead("stuck-locks", watchStuck),
	mega.Every("low-stock", time.Hour, (*shop.Shop).ReportLow),
	mega.Views(views),
)

// Handlers answer operators.
type Handlers struct {
	store *shop.Store
	shop  *shop.Shop
	web   string
}

// NewHandlers returns the handlers of the app.
func NewHandlers(store *shop.Store, s *shop.Shop, links shop.Links) *Handlers {
	return &Handlers{store, s, links.Web.Reveal()}
}

type homePage struct {
	Title    string
	Web      string // its address, or ""
	Products []shop.Product
	Orders   []shop.Order
	Locks    []lock.State // of products; the first ones, by key
	More     int          // the number of the others
	Driver   string
	Scope    string
	Done     string
	Restock  restockForm
}

// restockForm is a delivery as the user typed it, with its errors.
type restockForm struct {
	Product, Quantity string
	Errors            mega.FieldErrors
}

// The bounds of the page, which is loaded again after each change.
const (
	newest = 20 // orders
	first  = 50 // locks
)

// notices are the results of actions, by the name in the address to which an action
// redirects: the page does not show the text of any link as its own.
var notices = map[string]string{
	"refunded":  "The order was refunded.",
	"exchanged": "The order was exchanged.",
	"restocked": "The stock was raised.",
	"released":  "The lock was released.",
	"over":      "Nothing was released: the lease had ended before.",
}

// Home shows orders, stock and locks.
func (h *Handlers) Home(ctx *mega.Ctx) error {
	return h.show(ctx, http.StatusOK, restockForm{Quantity: "10"})
}

func (h *Handlers) show(ctx *mega.Ctx, status int, f restockForm) (err error) {
	info := ctx.Lock.Info()
	page := homePage{Title: "Admin", Web: h.web, Driver: info.Name, Scope: scopeName(info.Scope), Done: notices[ctx.Query("done")], Restock: f}
	if page.Products, err = h.store.Products(ctx); err != nil {
		return err
	}
	if page.Orders, err = h.store.Orders(ctx, newest); err != nil {
		return err
	}
	locks, err := ctx.Lock.List(productLocks)
	if err != nil {
		return err
	}
	page.Locks = locks[:min(len(locks), first)]
	page.More = len(locks) - len(page.Locks)
	return ctx.HTML(status, "home", page)
}

// scopeName names the processes whose locks the page shows.
func scopeName(s mega.Scope) string {
	switch {
	case s < mega.Node:
		return "of this process alone"
	case s == mega.Node:
		return "of the workers of this program, or of the processes at its socket"
	}
	return "of every process that shares the server"
}

// RefundInput names the order to refund.
type RefundInput struct {
	Order int64 `json:"order"`
}

// Validate reports an invalid order.
func (in *RefundInput) Validate() error {
	if in.Order < 1 {
		return mega.FieldErrors{"order": "must be the id of an order"}
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
	return done(ctx, order, "refunded")
}

// ExchangeInput names the order to exchange, and the product to get for it.
type ExchangeInput struct {
	Order   int64  `json:"order"`
	Product string `json:"product"`
}

// Validate reports an invalid order or product.
func (in *ExchangeInput) Validate() error {
	wrong := mega.FieldErrors{}
	if in.Order < 1 {
		wrong["order"] = "must be the id of an order"
	}
	shop.CheckName(wrong, in.Product)
	return wrong.Or()
}

// Exchange exchanges an order for one of another product.
func (h *Handlers) Exchange(ctx *mega.Ctx) error {
	var in ExchangeInput
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	order, err := h.shop.Exchange(ctx, in.Order, in.Product)
	if err != nil {
		return err
	}
	return done(ctx, order, "exchanged")
}

// Restock adds to the stock of a product.
func (h *Handlers) Restock(ctx *mega.Ctx) error {
	var in shop.Quantity
	if err := ctx.Bind(&in); err != nil {
		return h.refuse(ctx, err)
	}
	p, err := h.shop.Restock(ctx, in.Product, in.Quantity)
	if err != nil {
		return err
	}
	return done(ctx, p, "restocked")
}

// refuse shows the form of a delivery again with its errors.
func (h *Handlers) refuse(ctx *mega.Ctx, err error) error {
	sent := ctx.Request().PostForm
	f := restockForm{Product: sent.Get("product"), Quantity: sent.Get("quantity")}
	if ctx.WantsJSON() || !errors.As(err, &f.Errors) {
		return err
	}
	return h.show(ctx, http.StatusUnprocessableEntity, f)
}

// restock is the command of a delivery: it adds to the stock of a product from a
// shell.
func restock(ctx *mega.Ctx, s *shop.Shop, words []string) error {
	if len(words) != 2 {
		return errors.New("want a product and a quantity: restock lamp 5")
	}
	n, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return fmt.Errorf("quantity: %w", err)
	}
	in := shop.Quantity{Product: words[0], Quantity: n}
	if err := in.Validate(); err != nil {
		return err
	}
	p, err := s.Restock(ctx, in.Product, in.Quantity)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s: the stock is %d\n", p.Name, p.Stock)
	return err
}

// done answers with the changed value, or redirects to the page that shows it with
// a notice.
func done(ctx *mega.Ctx, changed any, notice string) error {
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, changed)
	}
	return ctx.Redirect(http.StatusSeeOther, "/?done="+notice)
}
