package handlers

import (
	"fmt"
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

// ProductInput is a complete product as a client sends it.
type ProductInput struct {
	Name  string       `json:"name"`
	Price *store.Price `json:"price"`
	Stock *int64       `json:"stock"`
}

// Validate reports the fields that cannot be stored.
func (in *ProductInput) Validate() error {
	wrong := mega.FieldErrors{}
	in.Name = strings.TrimSpace(in.Name)
	switch n := len([]rune(in.Name)); {
	case n == 0:
		wrong["name"] = "is required"
	case n > maxName:
		wrong["name"] = fmt.Sprintf("has %d characters, at most %d are possible", n, maxName)
	}
	switch {
	case in.Price == nil:
		wrong["price"] = "is required"
	case *in.Price < 0 || *in.Price > maxPrice:
		wrong["price"] = fmt.Sprintf("has to be 0 to %v", maxPrice)
	}
	switch {
	case in.Stock == nil:
		wrong["stock"] = "is required"
	case *in.Stock < 0 || *in.Stock > maxStock:
		wrong["stock"] = fmt.Sprintf("has to be 0 to %d", maxStock)
	}
	return wrong.Or()
}

func (in *ProductInput) product(id int64) store.Product {
	return store.Product{ID: id, Name: in.Name, Price: *in.Price, Stock: *in.Stock}
}

// PurchaseInput is the quantity that a client orders.
type PurchaseInput struct {
	Quantity int64 `json:"quantity"`
}

// Validate reports an invalid quantity.
func (in *PurchaseInput) Validate() error {
	if in.Quantity < 1 || in.Quantity > maxStock {
		return mega.FieldErrors{"quantity": fmt.Sprintf("has to be 1 to %d", maxStock)}
	}
	return nil
}
