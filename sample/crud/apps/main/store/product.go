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
