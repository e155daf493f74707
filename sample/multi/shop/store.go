package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock/guard"
)

// Database configures the database. Without a URL it is a file in the cache
// folder of the user.
type Database struct {
	URL mega.URL `key:"url" schemes:"sqlite" doc:"sqlite://path"`
}

func (d Database) file() (string, error) {
	if !d.URL.IsZero() {
		return filepath.Abs(strings.TrimPrefix(d.URL.Reveal(), "sqlite://"))
	}
	folder, err := os.UserCacheDir()
	if err != nil { // the user has no home folder
		folder = os.TempDir()
	}
	return filepath.Join(folder, "mega-multi", "shop.db"), nil
}

// Product is a product of the shop.
type Product struct {
	Name  string `json:"product"`
	Stock int64  `json:"stock"`
}

// Order is an order of a buyer.
type Order struct {
	ID       int64     `json:"id"`
	Product  string    `json:"product"`
	Quantity int64     `json:"quantity"`
	Refunded bool      `json:"refunded"`
	At       time.Time `json:"at"`
}

var (
	errNoProduct = mega.Error(http.StatusNotFound, "product.not_found", "There is no such product.")
	errNoOrder   = mega.Error(http.StatusNotFound, "order.not_found", "There is no such order.")
	errRefunded  = mega.Error(http.StatusConflict, "order.refunded", "The order was refunded before.")

	errSameProduct = mega.Error(http.StatusConflict, "order.same_product", "The order is of this product already.")
)

// Store keeps products and orders. It does not order its callers: a caller that
// reads a product in order to change it holds the lock of the product. A change
// of a caller without a lease, or with one that is over, is refused.
type Store struct{ db *sql.DB }

// Open opens the database. A writer waits for another writer and does not fail,
// and a transaction is a writer from its begin.
func Open(d Database) (*Store, error) {
	file, err := d.file()
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	options := url.Values{"_pragma": {"busy_timeout(10000)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+options.Encode())
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", file, err)
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8) // opening one costs more than keeping it
	return &Store{db}, nil
}

const schema = `
CREATE TABLE products (
	name  TEXT PRIMARY KEY,
	stock INTEGER NOT NULL CHECK (stock >= 0)
) STRICT;
CREATE TABLE orders (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	product  TEXT NOT NULL REFERENCES products (name),
	quantity INTEGER NOT NULL,
	refunded INTEGER NOT NULL DEFAULT 0,
	at       INTEGER NOT NULL
) STRICT;
INSERT INTO products (name, stock) VALUES ('chair', 8), ('lamp', 20), ('teapot', 3)`

// migrations are the steps of the schema. The version of a database is the
// number of applied steps.
func migrations() []string { return []string{schema, guard.Schema(guard.SQLite)} }

// Migrate creates the missing tables. Several processes may call it at once.
func (s *Store) Migrate(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return described(err, nil, "migrate")
	}
	defer func() { _ = tx.Rollback() }() // has no effect after a commit
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return described(err, nil, "migrate")
	}
	steps := migrations()
	for i := version; i < len(steps); i++ {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("%s; PRAGMA user_version = %d", steps[i], i+1)); err != nil {
			return described(err, nil, "migrate to version %d", i+1)
		}
	}
	return described(tx.Commit(), nil, "migrate")
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.db.PingContext(ctx) }

// Products returns all products, by name.
func (s *Store) Products(ctx context.Context) ([]Product, error) {
	return list(ctx, s.db, "SELECT name, stock FROM products ORDER BY name", func(row *sql.Rows, p *Product) error {
		return row.Scan(&p.Name, &p.Stock)
	})
}

// ProductForChange returns the product of that name to the holder of its lock. It waits
// for the commit of an earlier holder that is under way, and a later commit of that
// holder is refused. So the product and its orders stay as they are until the caller
// changes them.
func (s *Store) ProductForChange(ctx context.Context, name string) (Product, error) {
	p := Product{Name: name}
	err := guard.Tx(ctx, s.db, guard.SQLite, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SELECT stock FROM products WHERE name = ?", name).Scan(&p.Stock)
	})
	return p, described(err, errNoProduct, "get product %q", name)
}

const orderColumns = "SELECT id, product, quantity, refunded, at FROM orders "

// Orders returns the newest orders, at most n.
func (s *Store) Orders(ctx context.Context, n int) ([]Order, error) {
	return list(ctx, s.db, orderColumns+"ORDER BY id DESC LIMIT ?", func(rows *sql.Rows, o *Order) error { return o.scan(rows) }, n)
}

// Find returns the order with the id in text. Text that is not a number is no
// order.
func (s *Store) Find(ctx context.Context, text string) (Order, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Order{}, errNoOrder
	}
	return s.Order(ctx, id)
}

// Order returns the order with that id.
func (s *Store) Order(ctx context.Context, id int64) (Order, error) {
	var o Order
	err := o.scan(s.db.QueryRowContext(ctx, orderColumns+"WHERE id = ?", id))
	return o, described(err, errNoOrder, "get order %d", id)
}

func (o *Order) scan(row interface{ Scan(...any) error }) error {
	var at int64
	err := row.Scan(&o.ID, &o.Product, &o.Quantity, &o.Refunded, &at)
	o.At = time.UnixMilli(at).UTC()
	return err
}

// Add adds to the stock of a product, which may be new, and returns the product.
func (s *Store) Add(ctx context.Context, name string, quantity int64) (Product, error) {
	p := Product{Name: name}
	err := s.write(ctx, "add to product", func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "INSERT INTO products (name, stock) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET stock = stock + excluded.stock RETURNING stock",
			name, quantity).Scan(&p.Stock)
	})
	return p, err
}

// Sell writes a product together with its new order.
func (s *Store) Sell(ctx context.Context, p Product, quantity int64) (o Order, err error) {
	err = s.write(ctx, "sell", func(tx *sql.Tx) error {
		o, err = sell(ctx, tx, p, quantity)
		return err
	})
	return o, err
}

func sell(ctx context.Context, tx *sql.Tx, p Product, quantity int64) (o Order, err error) {
	if err := put(ctx, tx, p); err != nil {
		return o, err
	}
	row := tx.QueryRowContext(ctx, "INSERT INTO orders (product, quantity, at) VALUES (?, ?, ?) RETURNING id, product, quantity, refunded, at",
		p.Name, quantity, time.Now().UnixMilli())
	err = o.scan(row)
	return o, err
}

// TakeBack writes a product together with its refunded order.
func (s *Store) TakeBack(ctx context.Context, p Product, order int64) error {
	return s.write(ctx, "take back", func(tx *sql.Tx) error { return takeBack(ctx, tx, p, order) })
}

func takeBack(ctx context.Context, tx *sql.Tx, p Product, order int64) error {
	if err := put(ctx, tx, p); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE orders SET refunded = 1 WHERE id = ?", order)
	return err
}

// Exchange writes the product of an order with the refunded order, and another product
// with its new order, in one transaction.
func (s *Store) Exchange(ctx context.Context, back, out Product, refunded Order) (placed Order, err error) {
	err = s.write(ctx, "exchange", func(tx *sql.Tx) error {
		if err := takeBack(ctx, tx, back, refunded.ID); err != nil {
			return err
		}
		placed, err = sell(ctx, tx, out, refunded.Quantity)
		return err
	})
	return placed, err
}

func put(ctx context.Context, tx *sql.Tx, p Product) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO products (name, stock) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET stock = excluded.stock", p.Name, p.Stock)
	return err
}

// write runs fn in a transaction that fails if a later holder of one of ctx's
// locks has written.
func (s *Store) write(ctx context.Context, what string, fn func(*sql.Tx) error) error {
	return described(guard.Tx(ctx, s.db, guard.SQLite, fn), nil, "%s", what)
}

// described adds the operation to err. A missing row keeps its own error.
func described(err, none error, format string, args ...any) error {
	switch {
	case err == nil:
		return nil
	case none != nil && errors.Is(err, sql.ErrNoRows):
		return none
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

func list[T any](ctx context.Context, db *sql.DB, query string, scan func(*sql.Rows, *T) error, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	defer func() { _ = rows.Close() }()
	all := []T{}
	for rows.Next() {
		var v T
		if err := scan(rows, &v); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		all = append(all, v)
	}
	return all, rows.Err()
}
