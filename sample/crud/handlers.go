package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/megaframework/mega"
)

// Handlers answer the requests of the shop with JSON or with a page, as the
// request accepts.
type Handlers struct {
	store     *Store
	exclusive exclusive
}

// exclusive runs fn while no other caller runs one for the same key.
type exclusive func(ctx *mega.Ctx, key string, fn func(*mega.Ctx) error) error

// NewHandlers returns handlers that change a product under its lock.
func NewHandlers(store *Store) *Handlers {
	return &Handlers{store, func(ctx *mega.Ctx, key string, fn func(*mega.Ctx) error) error {
		return ctx.Lock.With(key, fn)
	}}
}

// Home redirects to the products.
func (h *Handlers) Home(ctx *mega.Ctx) error { return ctx.Redirect(http.StatusFound, "/products") }

// List shows all products.
func (h *Handlers) List(ctx *mega.Ctx) error {
	return h.list(ctx, http.StatusOK, form{Stock: "1"})
}

func (h *Handlers) list(ctx *mega.Ctx, status int, f form) error {
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
func (h *Handlers) Show(ctx *mega.Ctx) error {
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
func (h *Handlers) Create(ctx *mega.Ctx) error {
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
		return ctx.Redirect(http.StatusSeeOther, p.path())
	}
	ctx.Writer().Header().Set("Location", p.path())
	return ctx.JSON(http.StatusCreated, p)
}

// Update replaces a product. It takes the lock that buyers take, so no buyer
// overwrites the new stock with an old one.
func (h *Handlers) Update(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	var in ProductInput
	if err := ctx.Bind(&in); err != nil {
		return h.refuse(ctx, err)
	}
	p := in.product(id)
	err = h.exclusive(ctx, lockKey(id), func(ctx *mega.Ctx) error { return h.store.Put(ctx, p) })
	switch {
	case err != nil:
		return err
	case ctx.WantsJSON():
		return ctx.JSON(http.StatusOK, p)
	}
	return ctx.Redirect(http.StatusSeeOther, p.path())
}

// refuse shows the page of the product again with the errors of its form.
func (h *Handlers) refuse(ctx *mega.Ctx, err error) error {
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
func (h *Handlers) Delete(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	err = h.exclusive(ctx, lockKey(id), func(ctx *mega.Ctx) error { return h.store.Delete(ctx, id) })
	if err != nil || ctx.Request().Method == http.MethodDelete || ctx.WantsJSON() {
		return err // without an error and without a body: 204
	}
	return ctx.Redirect(http.StatusSeeOther, "/products?deleted=1")
}

// work is the time to fetch a product from its shelf.
const work = 5 * time.Millisecond

// Buy sells a product. It reads the stock, works, and writes the new stock,
// which is correct only while no other caller does the same.
func (h *Handlers) Buy(ctx *mega.Ctx) error {
	id, err := productID(ctx)
	if err != nil {
		return err
	}
	in := PurchaseInput{Quantity: 1}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	var left int64
	err = h.exclusive(ctx, lockKey(id), func(ctx *mega.Ctx) error { // this ctx ends if the lock is lost
		left, err = h.sell(ctx, id, in.Quantity)
		return err
	})
	switch {
	case err != nil:
		return err
	case ctx.WantsJSON():
		return ctx.JSON(http.StatusOK, map[string]int64{"stock": left})
	}
	return ctx.Redirect(http.StatusSeeOther, fmt.Sprintf("/products/%d?bought=%d", id, in.Quantity))
}

func (h *Handlers) sell(ctx *mega.Ctx, id, quantity int64) (left int64, err error) {
	p, err := h.store.Get(ctx, id)
	if err != nil {
		return 0, err
	}
	if p.Stock < quantity {
		return 0, mega.Error(http.StatusConflict, "product.sold_out", fmt.Sprintf("There is not enough of it: the stock is %d.", p.Stock))
	}
	select {
	case <-time.After(work):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	p.Stock -= quantity
	if err := h.store.Put(ctx, p); err != nil {
		return 0, err
	}
	h.publish(ctx, id, quantity)
	return p.Stock, nil
}

func (h *Handlers) find(ctx *mega.Ctx) (Product, error) {
	id, err := productID(ctx)
	if err != nil {
		return Product{}, err
	}
	return h.store.Get(ctx, id)
}

// productID returns the id in the path. Text that is not a number is no product.
func productID(ctx *mega.Ctx) (int64, error) {
	id, err := strconv.ParseInt(ctx.Param("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, errNotFound
	}
	return id, nil
}

func lockKey(id int64) string { return "product:" + strconv.FormatInt(id, 10) }

func (p Product) path() string { return "/products/" + strconv.FormatInt(p.ID, 10) }

// listPage and productPage are the data of the views.
type (
	listPage struct {
		Title    string
		Products []Product
		Form     form
		Deleted  string
	}
	productPage struct {
		Title   string
		Product Product
		Form    form
		Bought  string
	}
)

// form is a product as the user typed it, with its errors.
type form struct {
	Name, Price, Stock string
	Errors             mega.FieldErrors
}

func formOf(p Product) form {
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
