package handlers

import (
	"strings"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// The bounds of a product.
const (
	maxName  = 200 // characters
	maxPrice = store.Price(1_000_000_00)
	maxStock = 1_000_000_000
)

// ProductInput is a new product as a client sends it.
type ProductInput struct {
	Name  string       `json:"name"`
	Price *store.Price `json:"price"`
	Stock *int64       `json:"stock"`
}

// Validate reports the fields that cannot be stored.
func (in *ProductInput) Validate(ctx *mega.Ctx) error {
	in.Name = strings.TrimSpace(in.Name)
	return wrongFields(ctx, in.Name, in.Price, in.Stock).Or()
}

// EditInput is a changed product, with the version that its author has seen.
type EditInput struct {
	Name    string       `json:"name"`
	Price   *store.Price `json:"price"`
	Stock   *int64       `json:"stock"`
	Version *int64       `json:"version"`
}

// Validate reports the fields that cannot be stored.
func (in *EditInput) Validate(ctx *mega.Ctx) error {
	in.Name = strings.TrimSpace(in.Name)
	wrong := wrongFields(ctx, in.Name, in.Price, in.Stock)
	if in.Version == nil {
		wrong["version"] = ctx.T("invalid.required")
	}
	return wrong.Or()
}

func wrongFields(ctx *mega.Ctx, name string, price *store.Price, stock *int64) mega.FieldErrors {
	wrong := mega.FieldErrors{}
	switch n := len([]rune(name)); {
	case n == 0:
		wrong["name"] = ctx.T("invalid.required")
	case n > maxName:
		wrong["name"] = ctx.T("invalid.length", "max", maxName)
	}
	switch {
	case price == nil:
		wrong["price"] = ctx.T("invalid.required")
	case *price < 0 || *price > maxPrice:
		wrong["price"] = ctx.T("invalid.range", "min", 0, "max", maxPrice)
	}
	switch {
	case stock == nil:
		wrong["stock"] = ctx.T("invalid.required")
	case *stock < 0 || *stock > maxStock:
		wrong["stock"] = ctx.T("invalid.range", "min", 0, "max", maxStock)
	}
	return wrong
}

// PurchaseInput is the quantity that a client orders.
type PurchaseInput struct {
	Quantity int64 `json:"quantity"`
}

// Validate reports an invalid quantity.
func (in *PurchaseInput) Validate(ctx *mega.Ctx) error {
	if in.Quantity < 1 || in.Quantity > maxStock {
		return mega.FieldErrors{"quantity": ctx.T("invalid.range", "min", 1, "max", maxStock)}
	}
	return nil
}
