// Package store keeps the products, the ledger and the journal in a database:
// SQLite, or PostgreSQL. The statements are the same for both; only the migrations
// and the way to open a database differ.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock/guard"
)

// Store keeps the products. It does not order its callers: a caller that reads a
// product in order to change it holds the lock of the product. A change of a
// caller without a lease, or with one that is over, is refused.
type Store struct {
	db      *sql.DB
	dialect guard.Dialect
}

// CodeNotFound is the code of ErrNotFound.
const CodeNotFound = "product.not_found"

// ErrNotFound is the error for a product that does not exist. Its text is in the
// catalogues of the app.
var ErrNotFound = mega.Error(http.StatusNotFound, CodeNotFound, "problem.no_product")

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.db.PingContext(ctx) }

// List returns all products, by name.
func (s *Store) List(ctx context.Context) ([]Product, error) {
	return list(ctx, s.db, "products", func(rows *sql.Rows, p *Product) error {
		return rows.Scan(&p.ID, &p.Name, &p.Price, &p.Stock)
	}, "SELECT id, name, price, stock FROM products ORDER BY name, id")
}

// Get returns a product.
func (s *Store) Get(ctx context.Context, id int64) (Product, error) {
	p := Product{ID: id}
	row := s.db.QueryRowContext(ctx, "SELECT name, price, stock FROM products WHERE id = $1", id)
	switch err := row.Scan(&p.Name, &p.Price, &p.Stock); {
	case errors.Is(err, sql.ErrNoRows):
		return Product{}, ErrNotFound
	case err != nil:
		return Product{}, fmt.Errorf("get product %d: %w", id, err)
	}
	return p, nil
}

// Create stores a new product and returns it with its id.
func (s *Store) Create(ctx context.Context, p Product) (Product, error) {
	row := s.db.QueryRowContext(ctx, "INSERT INTO products (name, price, stock) VALUES ($1, $2, $3) RETURNING id", p.Name, p.Price, p.Stock)
	if err := row.Scan(&p.ID); err != nil {
		return Product{}, fmt.Errorf("create product: %w", err)
	}
	return p, nil
}

// Put replaces a product.
func (s *Store) Put(ctx context.Context, p Product) error {
	return s.change(ctx, p.ID, func(tx *sql.Tx) error { return put(ctx, tx, p) })
}

// Delete removes a product.
func (s *Store) Delete(ctx context.Context, id int64) error {
	return s.change(ctx, id, func(tx *sql.Tx) error { return one(tx.ExecContext(ctx, "DELETE FROM products WHERE id = $1", id)) })
}

func put(ctx context.Context, tx *sql.Tx, p Product) error {
	return one(tx.ExecContext(ctx, "UPDATE products SET name = $1, price = $2, stock = $3 WHERE id = $4", p.Name, p.Price, p.Stock, p.ID))
}

// one returns ErrNotFound if a statement changed no row.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return ErrNotFound
}

// change runs fn in a transaction that fails if a later holder of the product's
// lock has written.
func (s *Store) change(ctx context.Context, id int64, fn func(*sql.Tx) error) error {
	if err := guard.Tx(ctx, s.db, s.dialect, fn); err != nil {
		return fmt.Errorf("change product %d: %w", id, err)
	}
	return nil
}

// list returns the rows of a query.
func list[T any](ctx context.Context, db *sql.DB, what string, scan func(*sql.Rows, *T) error, query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	defer func() { _ = rows.Close() }()
	all := []T{}
	for rows.Next() {
		var v T
		if err := scan(rows, &v); err != nil {
			return nil, fmt.Errorf("list %s: %w", what, err)
		}
		all = append(all, v)
	}
	return all, rows.Err()
}
