package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/megaframework/mega"
)

// Product is a product of the shop.
type Product struct {
	ID      int64  `json:"id"`
	Name    string `json:"name"`
	Price   Price  `json:"price"`
	Stock   int64  `json:"stock"`
	Version int64  `json:"version"` // grows with each change
}

// Price is an amount in hundredths. Its text is a decimal number with at most
// two places; it is never rounded.
type Price int64

// errPrice has its text in the catalogues of the app.
var errPrice = errors.New("invalid.price")

// String returns both places: "9.50".
func (p Price) String() string {
	sign := ""
	if p < 0 {
		sign, p = "-", -p
	}
	return fmt.Sprintf("%s%d.%02d", sign, p/100, p%100)
}

// Grouped returns the price for a page: "1,200.00".
func (p Price) Grouped() string {
	whole, places, _ := strings.Cut(p.String(), ".")
	return grouped(whole) + "." + places
}

// Pieces returns the stock for a page: "1,200".
func (p Product) Pieces() string { return Grouped(p.Stock) }

// Pieces returns the quantity for a page.
func (s Sale) Pieces() string { return Grouped(s.Quantity) }

// Grouped returns a number for a page: "1,200".
func Grouped(n int64) string { return grouped(strconv.FormatInt(n, 10)) }

// grouped puts the thousands of a number apart.
func grouped(digits string) string {
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// MarshalJSON writes a number: 9.50.
func (p Price) MarshalJSON() ([]byte, error) { return []byte(p.String()), nil }

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
