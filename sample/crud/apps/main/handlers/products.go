// Package handlers answers the requests of the shop with JSON or with a page, as
// the request accepts.
package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// Products shows, changes and sells products.
type Products struct {
	store *store.Store
	shop  *services.Shop
}

// NewProducts returns the handlers of the products.
func NewProducts(s *store.Store, shop *services.Shop) *Products { return &Products{s, shop} }

// Home redirects to the products.
func (h *Products) Home(ctx *mega.Ctx) error { return ctx.Redirect(http.StatusFound, "/products") }

// List shows all products.
func (h *Products) List(ctx *mega.Ctx) error {
	return h.list(ctx, http.StatusOK, form{Stock: "1"})
}

func (h *Products) list(ctx *mega.Ctx, status int, f form) error {
	products, err := h.store.List(ctx)
	if err != nil {
		return err
	}
	if ctx.WantsJSON() {
		return ctx.JSON(status, products)
	}
	return ctx.HTML(status, "products", listPage{Title: "Products", Products: products, Form: f, Deleted: ctx.Query("deleted")})
}

// Show shows one product.
func (h *Products) Show(ctx *mega.Ctx) error {
	p, err := h.find(ctx)
	if err != nil {
		return err
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, p)
	}
	return ctx.HTML(http.StatusOK, "product", productPage{Title: p.Name, Product: p, Form: formOf(p), Bought: ctx.Query("bought")})
}

// Create adds a product.
func (h *Products) Create(ctx *mega.Ctx) error {
	var in ProductInput
	if err := ctx.Bind(&in); err != nil {
		if f, ok := refilled(ctx, err); ok {
			return h.list(ctx, http.StatusUnprocessableEntity, f)
		}
		return err
	}
	p, err := h.store.Create(ctx, in.product(0))
	if err != nil {
		return err
	}
	if !ctx.WantsJSON() {
		return ctx.Redirect(http.StatusSeeOther, pathOf(p))
	}
	ctx.Writer().Header().Set("Location", pathOf(p))
	return ctx.JSON(http.StatusCreated, p)
}

// Update replaces a product.
func (h *Products) Update(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	var in ProductInput
	if err := ctx.Bind(&in); err != nil {
		return h.refuse(ctx, err)
	}
	p := in.product(id)
	err = h.shop.Replace(ctx, p)
	switch {
	case err != nil:
		return err
	case ctx.WantsJSON():
		return ctx.JSON(http.StatusOK, p)
	}
	return ctx.Redirect(http.StatusSeeOther, pathOf(p))
}

// refuse shows the page of the product again with the errors of its form.
func (h *Products) refuse(ctx *mega.Ctx, err error) error {
	f, ok := refilled(ctx, err)
	if !ok {
		return err
	}
	p, err := h.find(ctx)
	if err != nil {
		return err
	}
	return ctx.HTML(http.StatusUnprocessableEntity, "product", productPage{Title: p.Name, Product: p, Form: f})
}

// Delete removes a product.
func (h *Products) Delete(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	err = h.shop.Remove(ctx, id)
	if err != nil || ctx.Request().Method == http.MethodDelete || ctx.WantsJSON() {
		return err // without an error and without a body: 204
	}
	return ctx.Redirect(http.StatusSeeOther, "/products?deleted=1")
}

// Buy sells a product.
func (h *Products) Buy(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	in := PurchaseInput{Quantity: 1}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	sale, err := h.shop.Buy(ctx, id, in.Quantity)
	switch {
	case err != nil:
		return err
	case ctx.WantsJSON():
		return ctx.JSON(http.StatusOK, purchase{sale.Left, sale.ID})
	}
	return ctx.Redirect(http.StatusSeeOther, fmt.Sprintf("/products/%d?bought=%d", id, in.Quantity))
}

// purchase is the answer to a buyer.
type purchase struct {
	Stock int64 `json:"stock"` // what is left
	Sale  int64 `json:"sale"`  // the number of the entry in the ledger
}

// AskStock requests the stock of a product as another service would.
func (h *Products) AskStock(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	stock, err := mega.Call[services.StockRequest, services.Stock](ctx, services.StockOf, services.StockRequest{ID: id})
	if remote, ok := errors.AsType[*bus.RemoteError](err); ok && remote.Code() == store.CodeNotFound {
		return store.ErrNotFound // the product of this address does not exist
	}
	if err != nil {
		return err
	}
	return ctx.JSON(http.StatusOK, stock)
}

func (h *Products) find(ctx *mega.Ctx) (store.Product, error) {
	id, err := productID(ctx)
	if err != nil {
		return store.Product{}, err
	}
	return h.store.Get(ctx, id)
}

// productID returns the id in the path. Text that is not a number is no product.
func productID(ctx *mega.Ctx) (int64, error) {
	id, err := strconv.ParseInt(ctx.Param("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, store.ErrNotFound
	}
	return id, nil
}

func pathOf(p store.Product) string { return "/products/" + strconv.FormatInt(p.ID, 10) }

// listPage and productPage are the data of the views.
type (
	listPage struct {
		Title    string
		Products []store.Product
		Form     form
		Deleted  string
	}
	productPage struct {
		Title   string
		Product store.Product
		Form    form
		Bought  string
	}
)

// form is a product as the user typed it, with its errors.
type form struct {
	Name, Price, Stock string
	Errors             mega.FieldErrors
}

func formOf(p store.Product) form {
	return form{Name: p.Name, Price: p.Price.String(), Stock: strconv.FormatInt(p.Stock, 10)}
}

// refilled returns the submitted form with its errors, if the answer is a page.
func refilled(ctx *mega.Ctx, err error) (form, bool) {
	var wrong mega.FieldErrors
	if ctx.WantsJSON() || !errors.As(err, &wrong) {
		return form{}, false
	}
	sent := ctx.Request().PostForm
	return form{Name: sent.Get("name"), Price: sent.Get("price"), Stock: sent.Get("stock"), Errors: wrong}, true
}
