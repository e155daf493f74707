// Package services holds the rules of the shop: a product is changed and sold
// under its lock, a sale is published, and a job has a sandbox for itself.
package services

import (
	"fmt"
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
	return func(ctx *mega.Ctx, key string, fn func(*mega.Ctx) error) error {
		done := false
		err := ctx.Lock.With(key, func(ctx *mega.Ctx) error {
			err := fn(ctx)
			done = err == nil
			return err
		})
		if done { // the store has committed under the lock: a loss after that changes nothing
			return nil
		}
		return err
	}
}

// NewShop returns a Shop on a store.
func NewShop(s *store.Store, exclusive Exclusive) *Shop { return &Shop{s, exclusive} }

// LockKey returns the key of the lock of a product.
func LockKey(id int64) string { return "product:" + strconv.FormatInt(id, 10) }

// ChangedError is the error for an edit of a product that has changed since.
type ChangedError struct{ Now store.Product }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("product %d has version %d now", e.Now.ID, e.Now.Version)
}

// SoldOutError is the error for a quantity that is not there.
type SoldOutError struct{ Stock int64 }

func (e *SoldOutError) Error() string { return fmt.Sprintf("the stock is %d", e.Stock) }

// Replace replaces the version of a product that the caller has seen, and returns
// the new one. A later version, also that of a sale, is a ChangedError. It takes
// the lock that buyers take, so that nothing changes between the look and the
// write.
func (s *Shop) Replace(ctx *mega.Ctx, p store.Product) (store.Product, error) {
	err := s.exclusive(ctx, LockKey(p.ID), func(ctx *mega.Ctx) error {
		now, err := s.store.GetForChange(ctx, p.ID)
		if err != nil {
			return err
		}
		if now.Version != p.Version {
			return &ChangedError{now}
		}
		p, err = s.store.Put(ctx, p)
		return err
	})
	return p, err
}

// Remove removes a product.
func (s *Shop) Remove(ctx *mega.Ctx, id int64) error {
	return s.exclusive(ctx, LockKey(id), func(ctx *mega.Ctx) error { return s.store.Delete(ctx, id) })
}

// work is the time to fetch a product from its shelf.
const work = 5 * time.Millisecond

// Buy sells a product. It reads the stock, works, and writes the new stock together
// with the entry in the ledger, which is correct only while no other caller does
// the same.
func (s *Shop) Buy(ctx *mega.Ctx, id, quantity int64) (sale Sale, err error) {
	err = s.exclusive(ctx, LockKey(id), func(ctx *mega.Ctx) error { // this ctx ends if the lock is lost
		sale, err = s.sell(ctx, id, quantity)
		return err
	})
	if err == nil {
		s.publish(ctx, sale)
	}
	return sale, err
}

func (s *Shop) sell(ctx *mega.Ctx, id, quantity int64) (Sale, error) {
	p, err := s.store.GetForChange(ctx, id)
	if err != nil {
		return Sale{}, err
	}
	if p.Stock < quantity {
		return Sale{}, &SoldOutError{p.Stock}
	}
	select {
	case <-time.After(work):
	case <-ctx.Done():
		return Sale{}, ctx.Err()
	}
	sale, err := s.store.Sell(ctx, p, quantity)
	return Sale{sale, p.Stock - quantity}, err
}

// publish publishes a sale. The sale is valid even if the publish fails, or if the
// buyer has left.
func (s *Shop) publish(ctx *mega.Ctx, sale Sale) {
	if err := mega.Publish(ctx.Detach(), Sold, sale); err != nil {
		ctx.Log.Error("sale not published", "sale", sale.ID, "error", err)
	}
}
