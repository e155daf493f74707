package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/megaframework/mega"
)

// Product is a product of the shop.
type Product struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Price Price  `json:"price"`
	Stock int64  `json:"stock"`
}

// The bounds of a product.
const (
	maxName  = 200 // characters
	maxPrice = Price(1_000_000_00)
	maxStock = 1_000_000_000
)

// ProductInput is a complete product as a client sends it.
type ProductInput struct {
	Name  string `json:"name"`
	Price *Price `json:"price"`
	Stock *int64 `json:"stock"`
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

func (in *ProductInput) product(id int64) Product {
	return Product{ID: id, Name: in.Name, Price: *in.Price, Stock: *in.Stock}
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

// Price is an amount in hundredths. Its text is a decimal number with at most
// two places; it is never rounded.
type Price int64

var errPrice = errors.New("has to be a number with at most two decimal places")

// String returns both places: "9.50".
func (p Price) String() string {
	sign := ""
	if p < 0 {
		sign, p = "-", -p
	}
	return fmt.Sprintf("%s%d.%02d", sign, p/100, p%100)
}

// MarshalJSON writes a number: 9.50.
func (p Price) MarshalJSON() ([]byte, error) { return []byte(p.String()), nil } //nolint:unparam // it is a json.Marshaler

// UnmarshalJSON reads a number.
func (p *Price) UnmarshalJSON(text []byte) error {
	if err := p.UnmarshalText(text); err != nil {
		return mega.FieldErrors{"price": err.Error()}
	}
	return nil
}

// UnmarshalText reads the value of a form.
func (p *Price) UnmarshalText(text []byte) error {
	whole, places, _ := strings.Cut(string(text), ".")
	places = strings.TrimRight(places, "0")
	if len(places) > 2 {
		return errPrice
	}
	n, err := strconv.ParseInt(whole+(places + "00")[:2], 10, 64)
	if err != nil || strings.HasPrefix(places, "-") || whole == "" || whole == "-" {
		return errPrice
	}
	*p = Price(n)
	return nil
}
