// Package shop holds the products, their stock and the orders, which the apps
// web and admin share.
package shop

import (
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
)

// Module belongs to the program, outside its apps: both use one store and one
// Shop.
var Module = mega.Module(
	mega.Config[Database]("database"),
	mega.Config[Picking]("picking"),
	mega.Config[Links]("links"),
	mega.Provide(Open, New),
	mega.OnPrimary("migrate", (*Store).Migrate),
	mega.Ready("database", (*Store).Ping),
)

// Picking is the time to fetch a product from its shelf.
type Picking struct {
	Time time.Duration `key:"time" default:"5ms" min:"0s" max:"1m" doc:"how long an order or a refund works under its lock"`
}

// Links are the addresses of the apps, for their links to each other. A page has
// no link where there is no address.
type Links struct {
	Web   mega.URL `key:"web" schemes:"http|https" doc:"address of the app web, as its visitors write it"`
	Admin mega.URL `key:"admin" schemes:"http|https" doc:"address of the app admin, as its visitors write it"`
}

// Shop sells and refunds products. It reads a stock, works, and writes the new
// stock, which is correct only while no other caller does the same: each method
// holds the lock of the product that it changes, in both apps.
type Shop struct {
	store *Store
	work  time.Duration
}

// New returns a Shop on a store.
func New(store *Store, picking Picking) *Shop { return &Shop{store, picking.Time} }

// Order sells a quantity of a product and publishes the order.
func (s *Shop) Order(ctx *mega.Ctx, product string, quantity int64) (Order, error) {
	order, err := s.sell(ctx, product, quantity)
	if err != nil {
		return order, err
	}
	announce(ctx, Ordered, order)
	return order, nil
}

func (s *Shop) sell(ctx *mega.Ctx, product string, quantity int64) (order Order, err error) {
	err = s.change(ctx, product, "order", func(ctx *mega.Ctx) error {
		p, err := s.store.ProductForChange(ctx, product)
		if err != nil {
			return err
		}
		if p.Stock < quantity {
			return soldOut(p.Stock)
		}
		if err := s.pick(ctx); err != nil {
			return err
		}
		order, err = s.store.Sell(ctx, Product{p.Name, p.Stock - quantity}, quantity)
		return err
	})
	return order, err
}

// Refund refunds an order, once, and publishes it.
func (s *Shop) Refund(ctx *mega.Ctx, id int64) (Order, error) {
	order, err := s.takeBack(ctx, id)
	if err != nil {
		return order, err
	}
	announce(ctx, Refunded, order)
	return order, nil
}

func (s *Shop) takeBack(ctx *mega.Ctx, id int64) (order Order, err error) {
	if order, err = s.store.Order(ctx, id); err != nil {
		return Order{}, err
	}
	err = s.change(ctx, order.Product, "refund", func(ctx *mega.Ctx) error {
		p, err := s.store.ProductForChange(ctx, order.Product)
		if err != nil {
			return err
		}
		if order, err = s.store.Order(ctx, id); err != nil { // again: it may have been refunded while this waited
			return err
		}
		if order.Refunded {
			return errRefunded
		}
		if err := s.pick(ctx); err != nil {
			return err
		}
		order.Refunded = true
		return s.store.TakeBack(ctx, Product{p.Name, p.Stock + order.Quantity}, id)
	})
	return order, err
}

// Exchange refunds an order and sells as much of another product, both or neither.
// It publishes the refund and the new order, and returns that.
func (s *Shop) Exchange(ctx *mega.Ctx, id int64, product string) (Order, error) {
	returned, placed, err := s.swap(ctx, id, product)
	if err != nil {
		return Order{}, err
	}
	announce(ctx, Refunded, returned)
	announce(ctx, Ordered, placed)
	return placed, nil
}

func (s *Shop) swap(ctx *mega.Ctx, id int64, product string) (returned, placed Order, err error) {
	if returned, err = s.store.Order(ctx, id); err != nil {
		return Order{}, Order{}, err
	}
	if returned.Product == product {
		return Order{}, Order{}, errSameProduct
	}
	// Both locks at once: exchanges in opposite directions do not wait for each other.
	keys := []string{"product:" + returned.Product, "product:" + product}
	locked := func(fn func(*mega.Ctx) error) error { return ctx.Lock.WithAll(keys, fn, lock.Label("exchange")) }
	err = committed(locked, func(ctx *mega.Ctx) error {
		back, err := s.store.ProductForChange(ctx, returned.Product)
		if err != nil {
			return err
		}
		out, err := s.store.ProductForChange(ctx, product)
		if err != nil {
			return err
		}
		if returned, err = s.store.Order(ctx, id); err != nil { // again: it may have been refunded while this waited
			return err
		}
		if returned.Refunded {
			return errRefunded
		}
		if out.Stock < returned.Quantity {
			return soldOut(out.Stock)
		}
		if err := s.pick(ctx); err != nil {
			return err
		}
		returned.Refunded = true
		back.Stock, out.Stock = back.Stock+returned.Quantity, out.Stock-returned.Quantity
		placed, err = s.store.Exchange(ctx, back, out, returned)
		return err
	})
	return returned, placed, err
}

// Restock adds to the stock of a product, creates a missing product, and
// publishes it.
func (s *Shop) Restock(ctx *mega.Ctx, product string, quantity int64) (Product, error) {
	p, err := s.add(ctx, product, quantity)
	if err != nil {
		return p, err
	}
	announce(ctx, Restocked, p)
	return p, nil
}

func (s *Shop) add(ctx *mega.Ctx, product string, quantity int64) (p Product, err error) {
	err = s.change(ctx, product, "restock", func(ctx *mega.Ctx) error {
		p, err = s.store.Add(ctx, product, quantity)
		return err
	})
	return p, err
}

// exclusive runs fn under the lock of a product, so that orders and refunds of
// one product exclude each other in both apps. The ctx of fn ends if the lock is
// lost.
func (s *Shop) exclusive(ctx *mega.Ctx, product, label string, fn func(*mega.Ctx) error) error {
	return ctx.Lock.With("product:"+product, fn, lock.Label(label))
}

// change runs fn, which changes a product, under its lock.
func (s *Shop) change(ctx *mega.Ctx, product, label string, fn func(*mega.Ctx) error) error {
	return committed(func(fn func(*mega.Ctx) error) error { return s.exclusive(ctx, product, label, fn) }, fn)
}

// committed runs fn under the locks of locked. The last step of fn is a transaction of
// the store, which stays valid if a lock is lost after the commit.
func committed(locked func(fn func(*mega.Ctx) error) error, fn func(*mega.Ctx) error) error {
	done := false
	err := locked(func(ctx *mega.Ctx) error {
		err := fn(ctx)
		done = err == nil
		return err
	})
	if done {
		return nil
	}
	return err
}

func soldOut(stock int64) error {
	return mega.Error(http.StatusConflict, "product.sold_out", fmt.Sprintf("There is not enough of it: the stock is %d.", stock))
}

// low is the stock of a product that is nearly sold out.
const low = 3

// ReportLow logs the products that are nearly sold out. The app admin calls it once an
// hour, in one of all processes.
func (s *Shop) ReportLow(ctx *mega.Ctx) error {
	all, err := s.store.Products(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Stock <= low {
			ctx.Log.Warn("stock low", "product", p.Name, "stock", p.Stock)
		}
	}
	return nil
}

func (s *Shop) pick(ctx *mega.Ctx) error {
	select {
	case <-time.After(s.work):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Quantity is a quantity of a product.
type Quantity struct {
	Product  string `json:"product"`
	Quantity int64  `json:"quantity"`
}

const (
	maxName     = 100 // bytes
	maxQuantity = 1_000_000
)

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// CheckName adds the error of a name that no product can have to wrong.
func CheckName(wrong mega.FieldErrors, product string) {
	switch {
	case product == "":
		wrong["product"] = "is required"
	case len(product) > maxName || !nameRule.MatchString(product):
		wrong["product"] = fmt.Sprintf("must be 1 to %d letters, digits, dots and dashes", maxName)
	}
}

// Validate reports an invalid product or quantity.
func (q *Quantity) Validate() error {
	wrong := mega.FieldErrors{}
	CheckName(wrong, q.Product)
	if q.Quantity < 1 || q.Quantity > maxQuantity {
		wrong["quantity"] = fmt.Sprintf("must be 1 to %d", maxQuantity)
	}
	return wrong.Or()
}
