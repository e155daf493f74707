// Package handlers answers the requests of the shop with JSON or with a page, as
// the request accepts.
package handlers

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"

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

type listPage struct {
	Flash    string
	Search   string
	Products []store.Product
	Total    int
	Paging   paging
}

// List shows the products, or those with the text ?q= in their name.
func (h *Products) List(ctx *mega.Ctx) error {
	text, page := strings.TrimSpace(ctx.Query("q")), asked(ctx)
	products, total := []store.Product{}, 0
	if mayBeInName(text) {
		var err error
		if products, total, err = h.store.List(ctx, text, perPage, skipped(page)); err != nil {
			return err
		}
	}
	if ctx.WantsJSON() {
		ctx.Writer().Header().Set("X-Total-Count", strconv.Itoa(total))
		return ctx.JSON(http.StatusOK, products)
	}
	return ctx.HTML(http.StatusOK, "products", listPage{flashed(ctx), text, products, total, newPaging(ctx, page, total)})
}

// productPage shows a product, and what was wrong with an order of it.
type productPage struct {
	Flash    string
	Product  store.Product
	Quantity string
	Wrong    string // with the order
	Errors   mega.FieldErrors
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
	return ctx.HTML(http.StatusOK, "product", productPage{Flash: flashed(ctx), Product: p, Quantity: "1"})
}

// New shows the form for a product.
func (h *Products) New(ctx *mega.Ctx) error {
	return ctx.HTML(http.StatusOK, "new", form{Stock: "1"})
}

// Create adds a product.
func (h *Products) Create(ctx *mega.Ctx) error {
	var in ProductInput
	if err := ctx.Bind(&in); err != nil {
		if f, ok := refilled(ctx, &in, err); ok {
			return ctx.HTML(http.StatusUnprocessableEntity, "new", f)
		}
		return err
	}
	p, err := h.store.Create(ctx, store.Product{Name: in.Name, Price: *in.Price, Stock: *in.Stock})
	if err != nil {
		return err
	}
	if !ctx.WantsJSON() {
		flash(ctx, "flash.created", "name", p.Name)
		return ctx.Redirect(http.StatusSeeOther, pathOf(p.ID))
	}
	ctx.Writer().Header().Set("Location", ctx.URL(pathOf(p.ID)))
	return ctx.JSON(http.StatusCreated, p)
}

// editPage shows a product and the form for it.
type editPage struct {
	Product store.Product
	Form    form
}

// Edit shows the form of a product.
func (h *Products) Edit(ctx *mega.Ctx) error {
	p, err := h.find(ctx)
	if err != nil {
		return err
	}
	return ctx.HTML(http.StatusOK, "edit", editPage{p, formOf(p)})
}

// Update replaces a product.
func (h *Products) Update(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	var in EditInput
	if err := ctx.Bind(&in); err != nil {
		return h.refuse(ctx, id, &in, err)
	}
	mine := store.Product{ID: id, Name: in.Name, Price: *in.Price, Stock: *in.Stock, Version: *in.Version}
	p, err := h.shop.Replace(ctx, mine)
	if changed, ok := errors.AsType[*services.ChangedError](err); ok {
		return conflict(ctx, mine, changed.Now)
	}
	switch {
	case err != nil:
		return err
	case ctx.WantsJSON():
		return ctx.JSON(http.StatusOK, p)
	}
	flash(ctx, "flash.saved", "name", p.Name)
	return ctx.Redirect(http.StatusSeeOther, pathOf(id))
}

// refuse shows the form of a product again with its errors.
func (h *Products) refuse(ctx *mega.Ctx, id int64, in *EditInput, err error) error {
	f, ok := refilled(ctx, in, err)
	if !ok {
		return err
	}
	p, err := h.store.Get(ctx, id)
	if err != nil {
		return err
	}
	return ctx.HTML(http.StatusUnprocessableEntity, "edit", editPage{p, f})
}

// conflictPage shows an edit beside the product that has changed since.
type conflictPage struct {
	Mine, Now store.Product
	Form      form // the edit, on the version of now
}

// conflict refuses an edit of an old version.
func conflict(ctx *mega.Ctx, mine, now store.Product) error {
	if ctx.WantsJSON() {
		return mega.Error(http.StatusConflict, "product.changed", ctx.T("problem.changed", "version", now.Version))
	}
	f := formOf(mine)
	f.Version = strconv.FormatInt(now.Version, 10)
	return ctx.HTML(http.StatusConflict, "conflict", conflictPage{mine, now, f})
}

// Delete removes a product.
func (h *Products) Delete(ctx *mega.Ctx) error {
	p, err := h.find(ctx)
	if err != nil {
		return err
	}
	err = h.shop.Remove(ctx, p.ID)
	if err != nil || ctx.Request().Method == http.MethodDelete || ctx.WantsJSON() {
		return err // without an error and without a body: 204
	}
	flash(ctx, "flash.removed", "name", p.Name)
	return ctx.Redirect(http.StatusSeeOther, "/products")
}

// purchase is the answer to a buyer.
type purchase struct {
	Stock int64 `json:"stock"` // what is left
	Sale  int64 `json:"sale"`  // the number of the entry in the ledger
}

// Buy sells a product.
func (h *Products) Buy(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	in := PurchaseInput{Quantity: 1}
	if err := ctx.Bind(&in); err != nil {
		return h.refuseOrder(ctx, id, err)
	}
	sale, err := h.shop.Buy(ctx, id, in.Quantity)
	switch {
	case err != nil:
		return h.refuseOrder(ctx, id, err)
	case ctx.WantsJSON():
		return ctx.JSON(http.StatusOK, purchase{sale.Left, sale.ID})
	}
	flash(ctx, "flash.bought", "name", sale.Name, "count", strconv.FormatInt(sale.Quantity, 10))
	return ctx.Redirect(http.StatusSeeOther, pathOf(id))
}

// refuseOrder shows the product again with what is wrong with the order.
func (h *Products) refuseOrder(ctx *mega.Ctx, id int64, err error) error {
	page, status := productPage{}, http.StatusUnprocessableEntity
	soldOut, isSoldOut := errors.AsType[*services.SoldOutError](err)
	if isSoldOut {
		page.Wrong, status = ctx.T("problem.sold_out", "count", store.Grouped(soldOut.Stock)), http.StatusConflict
		err = mega.Error(status, "product.sold_out", page.Wrong)
	}
	if ctx.WantsJSON() || !isSoldOut && !errors.As(err, &page.Errors) {
		return err
	}
	if page.Product, err = h.store.Get(ctx, id); err != nil {
		return err
	}
	page.Quantity = ctx.Request().PostForm.Get("quantity")
	return ctx.HTML(status, "product", page)
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

func pathOf(id int64) string { return "/products/" + strconv.FormatInt(id, 10) }

// form is a product as the user typed it, with its errors.
type form struct {
	Name, Price, Stock, Version string
	Errors                      mega.FieldErrors
}

func formOf(p store.Product) form {
	return form{Name: p.Name, Price: p.Price.String(), Stock: strconv.FormatInt(p.Stock, 10), Version: strconv.FormatInt(p.Version, 10)}
}

// refilled returns the submitted form with its errors, if the answer is a page.
// Values of the wrong type keep Bind from its look at the others, which follows
// here, so that a visitor sees all errors at once.
func refilled(ctx *mega.Ctx, in interface{ Validate(*mega.Ctx) error }, err error) (form, bool) {
	var wrong, more mega.FieldErrors
	if ctx.WantsJSON() || !errors.As(err, &wrong) {
		return form{}, false
	}
	if errors.As(in.Validate(ctx), &more) {
		maps.Copy(more, wrong)
		wrong = more
	}
	sent := ctx.Request().PostForm
	return form{sent.Get("name"), sent.Get("price"), sent.Get("stock"), sent.Get("version"), wrong}, true
}
