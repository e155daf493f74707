package store

import (
	"context"
	"fmt"
	"time"
)

// Sale is the event of a sale.
type Sale struct {
	Product  int64     `json:"product"`
	Quantity int64     `json:"quantity"`
	At       time.Time `json:"at"`
}

// Enter writes a sale to the ledger.
func (s *Store) Enter(ctx context.Context, sale Sale) error {
	_, err := s.db.ExecContext(ctx, "INSERT INTO ledger (product, quantity, at) VALUES (?, ?, ?)", sale.Product, sale.Quantity, sale.At.UnixMilli())
	if err != nil {
		return fmt.Errorf("enter a sale of product %d: %w", sale.Product, err)
	}
	return nil
}

// listed is the number of sales on the page.
const listed = 1000

// Sales returns the newest entries of the ledger.
func (s *Store) Sales(ctx context.Context) ([]Sale, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT product, quantity, at FROM ledger ORDER BY at DESC, rowid DESC LIMIT ?", listed)
	if err != nil {
		return nil, fmt.Errorf("list sales: %w", err)
	}
	defer func() { _ = rows.Close() }()
	sales := []Sale{}
	for rows.Next() {
		var sale Sale
		var at int64
		if err := rows.Scan(&sale.Product, &sale.Quantity, &at); err != nil {
			return nil, fmt.Errorf("list sales: %w", err)
		}
		sale.At = time.UnixMilli(at).UTC()
		sales = append(sales, sale)
	}
	return sales, rows.Err()
}
