package handlers

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

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
	switch {
	case !strings.ContainsFunc(name, visible):
		wrong["name"] = ctx.T("invalid.required")
	case len([]rune(name)) > maxName:
		wrong["name"] = ctx.T("invalid.length", "max", maxName)
	case !printable(name) || !keepsToItself(name):
		wrong["name"] = ctx.T("invalid.text")
	}
	switch {
	case price == nil:
		wrong["price"] = ctx.T("invalid.required")
	case *price < 0 || *price > maxPrice:
		wrong["price"] = ctx.T("invalid.range", "min", 0, "max", maxPrice.Grouped())
	}
	if stock == nil {
		wrong["stock"] = ctx.T("invalid.required")
		return wrong
	}
	return within(ctx, wrong, "stock", *stock, 0, maxStock)
}

// visible reports whether a character can be seen. The link to a product is its name.
func visible(r rune) bool { return unicode.IsPrint(r) && r != ' ' }

// printable reports whether each database stores a text as it is: PostgreSQL
// refuses a zero byte and what is not UTF-8.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// maxMarks is how many accents and signs may be on one letter. Hebrew and Vedic
// texts have several.
const maxMarks = 8

// keepsToItself reports whether a text leaves the text around it as it is: characters
// that override the direction of writing change the order of a sentence, and many
// marks on one letter cover the lines above and below.
func keepsToItself(text string) bool {
	marks := 0
	for _, r := range text {
		marks++
		switch {
		case '\u202a' <= r && r <= '\u202e' || '\u2066' <= r && r <= '\u2069':
			return false
		case !unicode.IsMark(r):
			marks = 0
		case marks > maxMarks:
			return false
		}
	}
	return true
}

// mayBeInName reports whether a name can contain a text. A database is not asked
// for another one, which it may refuse.
func mayBeInName(text string) bool { return len([]rune(text)) <= maxName && printable(text) }

// within adds the error of a number out of bounds to wrong, and returns wrong.
func within[N int | int64](ctx *mega.Ctx, wrong mega.FieldErrors, field string, n, low, high N) mega.FieldErrors {
	if n < low || n > high {
		wrong[field] = ctx.T("invalid.range", "min", store.Grouped(int64(low)), "max", store.Grouped(int64(high)))
	}
	return wrong
}

// among adds the error of a value that is not one of the choices to wrong, and
// returns wrong.
func among(ctx *mega.Ctx, wrong mega.FieldErrors, field, value string, choices ...string) mega.FieldErrors {
	if !slices.Contains(choices, value) {
		wrong[field] = ctx.T("invalid.choice", "choices", strings.Join(choices, ", "))
	}
	return wrong
}

// PurchaseInput is the quantity that a client orders.
type PurchaseInput struct {
	Quantity int64 `json:"quantity"`
}

// Validate reports an invalid quantity.
func (in *PurchaseInput) Validate(ctx *mega.Ctx) error {
	return within(ctx, mega.FieldErrors{}, "quantity", in.Quantity, 1, maxStock).Or()
}
