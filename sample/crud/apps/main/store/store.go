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
	"regexp"
	"strings"

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

// List returns products by name, numbers in it by value, and the number of all of them: those whose name
// has a text in it, in upper or lower case.
func (s *Store) List(ctx context.Context, text string, limit, offset int) ([]Product, int, error) {
	pattern, total := "%"+strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(folded(text))+"%", 0
	if err := s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM products WHERE folded LIKE $1 ESCAPE '\'`, pattern).Scan(&total); err != nil {
		return nil, 0, fmt.Errorf("count products: %w", err)
	}
	products, err := list(ctx, s.db, "products", func(rows *sql.Rows, p *Product) error { return p.scan(rows) },
		columns+`WHERE folded LIKE $1 ESCAPE '\' ORDER BY place, id LIMIT $2 OFFSET $3`, pattern, limit, offset)
	return products, total, err
}

// folded returns a name as the search compares it.
func folded(name string) string { return strings.ToLower(name) }

var number = regexp.MustCompile("[0-9]+")

// place returns a name as the list sorts it: the number of its digits before each
// number, so that 9 is before 10.
func place(name string) string {
	return number.ReplaceAllStringFunc(folded(name), func(digits string) string {
		digits = strings.TrimLeft(digits, "0")
		return fmt.Sprintf("%03d%s", len(digits), digits)
	})
}

const columns = "SELECT id, name, price, stock, version FROM products "

func (p *Product) scan(row interface{ Scan(...any) error }) error {
	return row.Scan(&p.ID, &p.Name, &p.Price, &p.Stock, &p.Version)
}

// Get returns a product.
func (s *Store) Get(ctx context.Context, id int64) (Product, error) {
	return get(ctx, s.db, id)
}

// GetForChange returns a product to the holder of its lock. It waits for the commit of
// an earlier holder that is under way, and a later commit of that holder is refused. So
// the product stays as it is until the caller changes it.
func (s *Store) GetForChange(ctx context.Context, id int64) (p Product, err error) {
	err = s.change(ctx, id, func(tx *sql.Tx) error {
		p, err = get(ctx, tx, id)
		return err
	})
	return p, err
}

func get(ctx context.Context, from interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, id int64) (p Product, err error) {
	switch err := p.scan(from.QueryRowContext(ctx, columns+"WHERE id = $1", id)); {
	case errors.Is(err, sql.ErrNoRows):
		return Product{}, ErrNotFound
	case err != nil:
		return Product{}, fmt.Errorf("get product %d: %w", id, err)
	}
	return p, nil
}

// Create stores a new product and returns it with its id and version.
func (s *Store) Create(ctx context.Context, p Product) (Product, error) {
	row := s.db.QueryRowContext(ctx, "INSERT INTO products (name, folded, place, price, stock) VALUES ($1, $2, $3, $4, $5) RETURNING id, version",
		p.Name, folded(p.Name), place(p.Name), p.Price, p.Stock)
	if err := row.Scan(&p.ID, &p.Version); err != nil {
		return Product{}, fmt.Errorf("create product: %w", err)
	}
	return p, nil
}

// Put replaces a product and returns it with its new version.
func (s *Store) Put(ctx context.Context, p Product) (Product, error) {
	err := s.change(ctx, p.ID, func(tx *sql.Tx) error { return p.put(ctx, tx) })
	return p, err
}

// Delete removes a product.
func (s *Store) Delete(ctx context.Context, id int64) error {
	return s.change(ctx, id, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "DELETE FROM products WHERE id = $1 RETURNING id", id).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
}

func (p *Product) put(ctx context.Context, tx *sql.Tx) error {
	row := tx.QueryRowContext(ctx, "UPDATE products SET name = $1, folded = $2, place = $3, price = $4, stock = $5, version = version + 1 WHERE id = $6 RETURNING version",
		p.Name, folded(p.Name), place(p.Name), p.Price, p.Stock, p.ID)
	if err := row.Scan(&p.Version); !errors.Is(err, sql.ErrNoRows) {
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
