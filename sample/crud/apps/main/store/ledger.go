package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Sale is a sale in the ledger.
type Sale struct {
	ID       int64     `json:"id"`
	Product  int64     `json:"product"`
	Name     string    `json:"name"` // of the product when it was sold
	Quantity int64     `json:"quantity"`
	At       time.Time `json:"at"`

	Listed bool `json:"-"` // the product is still there
}

// Sell takes a quantity from the stock of a product and enters the sale in the
// ledger, both or neither. p is the product as the holder of its lock has read it.
func (s *Store) Sell(ctx context.Context, p Product, quantity int64) (Sale, error) {
	sale := Sale{Product: p.ID, Name: p.Name, Quantity: quantity, At: time.Now().UTC().Truncate(time.Millisecond)}
	p.Stock -= quantity
	err := s.change(ctx, p.ID, func(tx *sql.Tx) error {
		if err := p.put(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "INSERT INTO sales (product, name, quantity, at) VALUES ($1, $2, $3, $4) RETURNING id",
			sale.Product, sale.Name, sale.Quantity, sale.At.UnixMilli()).Scan(&sale.ID)
	})
	return sale, err
}

// Sales returns entries of the ledger, the newest first, and the number of all
// entries.
func (s *Store) Sales(ctx context.Context, limit, offset int) ([]Sale, int, error) {
	total := 0
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sales").Scan(&total); err != nil {
		return nil, 0, fmt.Errorf("count sales: %w", err)
	}
	sales, err := list(ctx, s.db, "sales", func(rows *sql.Rows, sale *Sale) error {
		var at int64
		err := rows.Scan(&sale.ID, &sale.Product, &sale.Name, &sale.Quantity, &at, &sale.Listed)
		sale.At = time.UnixMilli(at).UTC()
		return err
	}, `SELECT id, product, name, quantity, at, EXISTS (SELECT 1 FROM products WHERE products.id = sales.product)
		FROM sales ORDER BY id DESC LIMIT $1 OFFSET $2`, limit, offset)
	return sales, total, err
}
