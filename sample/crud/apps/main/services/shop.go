// Package services holds the rules of the shop: a product is changed and sold
// under its lock, a sale is published, and a job has a sandbox for itself.
package services

import (
	"net/http"
	"strconv"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// Shop sells and changes products, each under its lock.
type Shop struct {
	store     *store.Store
	exclusive Exclusive
}

// Exclusive runs fn while no other caller runs one for the same key.
type Exclusive func(ctx *mega.Ctx, key string, fn func(*mega.Ctx) error) error

// UnderLock returns the Exclusive of the shop: the lock of the key. A test has
// another one, to show that the shop oversells without the lock.
func UnderLock() Exclusive {
	return func(ctx *mega.Ctx, key string, fn func(*mega.Ctx) error) error { return ctx.Lock.With(key, fn) }
}

// NewShop returns a Shop on a store.
func NewShop(s *store.Store, exclusive Exclusive) *Shop { return &Shop{s, exclusive} }

// LockKey returns the key of the lock of a product.
func LockKey(id int64) string { return "product:" + strconv.FormatInt(id, 10) }

// Replace replaces a product. It takes the lock that buyers take, so no buyer
// overwrites the new stock with an old one.
func (s *Shop) Replace(ctx *mega.Ctx, p store.Product) error {
	return s.exclusive(ctx, LockKey(p.ID), func(ctx *mega.Ctx) error { return s.store.Put(ctx, p) })
}

// Remove removes a product.
func (s *Shop) Remove(ctx *mega.Ctx, id int64) error {
	return s.exclusive(ctx, LockKey(id), func(ctx *mega.Ctx) error { return s.store.Delete(ctx, id) })
}

// work is the time to fetch a product from its shelf.
const work = 5 * time.Millisecond

// Buy sells a product and returns the new stock. It reads the stock, works, and
// writes the new stock, which is correct only while no other caller does the same.
func (s *Shop) Buy(ctx *mega.Ctx, id, quantity int64) (left int64, err error) {
	err = s.exclusive(ctx, LockKey(id), func(ctx *mega.Ctx) error { // this ctx ends if the lock is lost
		left, err = s.sell(ctx, id, quantity)
		return err
	})
	return left, err
}

func (s *Shop) sell(ctx *mega.Ctx, id, quantity int64) (left int64, err error) {
	p, err := s.store.Get(ctx, id)
	if err != nil {
		return 0, err
	}
	if p.Stock < quantity {
		return 0, mega.Error(http.StatusConflict, "product.sold_out", ctx.T("problem.sold_out", "stock", p.Stock))
	}
	select {
	case <-time.After(work):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	p.Stock -= quantity
	if err := s.store.Put(ctx, p); err != nil {
		return 0, err
	}
	s.publish(ctx, id, quantity)
	return p.Stock, nil
}

// publish publishes a sale. The sale is valid even if the publish fails.
func (s *Shop) publish(ctx *mega.Ctx, id, quantity int64) {
	err := mega.Publish(ctx, Sold, store.Sale{Product: id, Quantity: quantity, At: time.Now().UTC()})
	if err != nil {
		ctx.Log.Error("sale not published", "product", id, "error", err)
	}
}

// AnswerStock answers StockRequests. Its errors reach the caller with their
// codes.
func (s *Shop) AnswerStock(ctx *mega.Ctx, in StockRequest) (Stock, error) {
	p, err := s.store.Get(ctx, in.ID)
	return Stock{p.Stock}, err
}
