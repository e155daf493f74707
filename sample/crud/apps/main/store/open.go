package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock/guard"
)

// Database configures the database. Without a URL it is a file in the cache
// folder of the user.
type Database struct {
	URL mega.URL `key:"url" schemes:"sqlite|postgres|postgresql" doc:"sqlite://path, or postgres://user:password@host/name"`
}

// dialect returns the SQL dialect of the database.
func (d Database) dialect() guard.Dialect {
	if strings.HasPrefix(d.URL.Reveal(), "postgres") {
		return guard.Postgres
	}
	return guard.SQLite
}

// file returns the path of a SQLite database.
func (d Database) file() (string, error) {
	if d.URL.IsZero() {
		return filepath.Join(cacheFolder(), "shop.db"), nil
	}
	path := strings.TrimPrefix(d.URL.Reveal(), "sqlite://")
	if path == ":memory:" || strings.Contains(path, "?") {
		return "", fmt.Errorf("database.url %v: want sqlite:// and the path of a file", d.URL)
	}
	return filepath.Abs(path)
}

// Folder returns the folder on this machine for the files that belong to the
// database: beside a file of SQLite, or in the cache folder of the user.
func (d Database) Folder() (string, error) {
	if d.dialect() == guard.SQLite {
		file, err := d.file()
		return file + ".sandboxes", err
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(d.URL.Reveal()))
	return filepath.Join(cacheFolder(), fmt.Sprintf("%x.sandboxes", name.Sum64())), nil
}

func cacheFolder() string {
	folder, err := os.UserCacheDir()
	if err != nil { // the user has no home folder
		folder = os.TempDir()
	}
	return filepath.Join(folder, "mega-crud")
}

// maxConns bounds the connections, not the work: SQLite has one writer anyway,
// and a server of PostgreSQL has a hundred connections for all processes.
const maxConns = 16

// Open opens the database. Migrate creates its tables.
func Open(d Database, log *slog.Logger) (*Store, error) {
	driver, dsn, where := "pgx", d.URL.Reveal(), d.URL.String()
	if d.dialect() == guard.SQLite {
		file, err := d.file()
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return nil, fmt.Errorf("open database: %w", err)
		}
		driver, dsn, where = "sqlite", fileDSN(file), file
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", where, err)
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns) // opening one costs more than keeping it
	log.Info("database", "driver", driver, "at", where)
	return &Store{db, d.dialect()}, nil
}

// fileDSN opens a file of SQLite so that a writer waits for another writer and
// does not fail, and a transaction is a writer from its begin.
func fileDSN(file string) string {
	return "file:" + (&url.URL{Path: file}).EscapedPath() + "?" + url.Values{
		"_pragma": {"busy_timeout(10000)", "synchronous(NORMAL)"}, "_txlock": {"immediate"},
	}.Encode()
}

// writeAhead switches a file of SQLite to write-ahead logging, so that readers and
// a writer work at once. SQLite does not wait for another process that does the
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
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED)
}
