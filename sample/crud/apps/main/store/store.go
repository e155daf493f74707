// Package store keeps the products, the ledger and the journal in a database.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock/guard"
)

// Database configures the database. Without a URL it is a file in the cache
// folder of the user.
type Database struct {
	URL mega.URL `key:"url" schemes:"sqlite" doc:"sqlite://path"`
}

// File returns the path of the database.
func (d Database) File() (string, error) {
	if d.URL.IsZero() {
		folder, err := os.UserCacheDir()
		if err != nil { // the user has no home folder
			folder = os.TempDir()
		}
		return filepath.Join(folder, "mega-crud", "shop.db"), nil
	}
	path := strings.TrimPrefix(d.URL.Reveal(), "sqlite://")
	if path == ":memory:" || strings.Contains(path, "?") {
		return "", fmt.Errorf("database.url %v: want sqlite:// and the path of a file", d.URL)
	}
	return filepath.Abs(path)
}

// Store keeps the products. It does not order its callers: a caller that reads a
// product in order to change it holds the lock of the product. A change of a
// caller without a lease, or with one that is over, is refused.
type Store struct{ db *sql.DB }

// CodeNotFound is the code of ErrNotFound.
const CodeNotFound = "product.not_found"

// ErrNotFound is the error for a product that does not exist. Its text is in the
// catalogues of the app.
var ErrNotFound = mega.Error(http.StatusNotFound, CodeNotFound, "problem.no_product")

// Open opens the database and creates its schema. Several processes may
// call it at once.
func Open(d Database, log *slog.Logger) (*Store, error) {
	file, err := d.File()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	db, err := sql.Open("sqlite", dsn(file))
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", file, err)
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns) // opening one costs more than keeping it
	s := &Store{db}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", file, err), db.Close())
	}
	log.Info("database", "file", file)
	return s, nil
}

// dsn opens the file so that a writer waits for another writer and does not
// fail, and a transaction is a writer from its begin.
func dsn(file string) string {
	return "file:" + (&url.URL{Path: file}).EscapedPath() + "?" + url.Values{
		"_pragma": {"busy_timeout(10000)", "synchronous(NORMAL)"}, "_txlock": {"immediate"},
	}.Encode()
}

const schema = `CREATE TABLE products (
	id    INTEGER PRIMARY KEY AUTOINCREMENT,
	name  TEXT    NOT NULL,
	price INTEGER NOT NULL CHECK (price >= 0),
	stock INTEGER NOT NULL
) STRICT`

const ledgerSchema = `CREATE TABLE ledger (
	product  INTEGER NOT NULL,
	quantity INTEGER NOT NULL,
	at       INTEGER NOT NULL
) STRICT`

// migrations are the steps of the schema. The version of a database is the
// number of applied steps.
func migrations() []string {
	return []string{schema, ledgerSchema, guard.Schema(guard.SQLite), journalSchema}
}

// maxConns bounds the open files, not the work: SQLite has one writer anyway.
const maxConns = 16

// openTime bounds the creation of the database by processes that start at once.
const openTime = 15 * time.Second

func (s *Store) prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	if err := s.writeAhead(ctx); err != nil {
		return err
	}
	return s.migrate(ctx)
}

// writeAhead switches the file to write-ahead logging, so that readers and a
// writer work at once. SQLite does not wait for another process that does the
// same, so this function retries.
func (s *Store) writeAhead(ctx context.Context) error {
	for {
		_, err := s.db.ExecContext(ctx, "PRAGMA journal_mode = WAL")
		if err == nil || !busy(err) {
			return err
		}
		pause := time.NewTimer(10 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

func busy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED)
}

// migrate creates the schema once: a transaction writes from its begin, so a
// second process sees the result of the first.
func (s *Store) migrate(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after a commit
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	steps := migrations()
	for i := version; i < len(steps); i++ {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("%s; PRAGMA user_version = %d", steps[i], i+1)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.db.PingContext(ctx) }

// List returns all products, by name.
func (s *Store) List(ctx context.Context) ([]Product, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, name, price, stock FROM products ORDER BY name, id")
	if err != nil {
		return nil, fmt.Errorf("list products: %w", err)
	}
	defer func() { _ = rows.Close() }()
	products := []Product{}
	for rows.Next() {
		var p Product
		if err := rows.Scan(&p.ID, &p.Name, &p.Price, &p.Stock); err != nil {
			return nil, fmt.Errorf("list products: %w", err)
		}
		products = append(products, p)
	}
	return products, rows.Err()
}

// Get returns a product.
func (s *Store) Get(ctx context.Context, id int64) (Product, error) {
	p := Product{ID: id}
	row := s.db.QueryRowContext(ctx, "SELECT name, price, stock FROM products WHERE id = ?", id)
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
	row := s.db.QueryRowContext(ctx, "INSERT INTO products (name, price, stock) VALUES (?, ?, ?) RETURNING id", p.Name, p.Price, p.Stock)
	if err := row.Scan(&p.ID); err != nil {
		return Product{}, fmt.Errorf("create product: %w", err)
	}
	return p, nil
}

// Put replaces a product.
func (s *Store) Put(ctx context.Context, p Product) error {
	return s.change(ctx, p.ID, "UPDATE products SET name = ?, price = ?, stock = ? WHERE id = ?", p.Name, p.Price, p.Stock, p.ID)
}

// Delete removes a product.
func (s *Store) Delete(ctx context.Context, id int64) error {
	return s.change(ctx, id, "DELETE FROM products WHERE id = ?", id)
}

// change runs a statement in a transaction that fails if a later holder of the
// product's lock has written.
func (s *Store) change(ctx context.Context, id int64, query string, args ...any) error {
	err := guard.Tx(ctx, s.db, guard.SQLite, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return ErrNotFound
	})
	if err != nil {
		return fmt.Errorf("change product %d: %w", id, err)
	}
	return nil
}
