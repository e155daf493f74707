package store

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/megaframework/mega/lock/guard"
)

// The steps of the schema. Both folders have the same steps; they differ in the
// types of columns.
//
//go:embed migrations
var migrations embed.FS

// Migrate brings the tables up to date. Several processes may call it at once: a
// step is a transaction, so a process that comes second fails in it, and tries
// again from the step that is then the next.
func (s *Store) Migrate(ctx context.Context) error {
	dialect, folder := goose.DialectPostgres, "migrations/postgres"
	if s.dialect == guard.SQLite {
		dialect, folder = goose.DialectSQLite3, "migrations/sqlite"
		if err := s.writeAhead(ctx); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	steps, err := fs.Sub(migrations, folder)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	provider, err := goose.NewProvider(dialect, s.db, steps, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for range len(provider.ListSources()) + 1 {
		if _, err = provider.Up(ctx); err == nil {
			return nil
		}
	}
	return fmt.Errorf("migrate: %w", err)
}
