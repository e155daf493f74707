package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := openFile(filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openFile(file string) (*Store, error) {
	var d Database
	if err := d.URL.UnmarshalText([]byte("sqlite://" + file)); err != nil {
		return nil, err
	}
	return Open(d, slog.New(slog.DiscardHandler))
}

func openAndWrite(file string) error {
	s, err := openFile(file)
	if err != nil {
		return err
	}
	_, err = s.Create(context.Background(), Product{Name: "Lamp"})
	return errors.Join(err, s.Close())
}

// lease acquires the lock of a product as a process that does not know of its
// other holders.
func lease(t *testing.T, id int64) context.Context {
	t.Helper()
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	l, err := locks.Acquire(t.Context(), fmt.Sprint("product:", id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() })
	return l.Context()
}

// A holder that has lost its lock without noticing it has the older fence.
func TestChangeUnderAnOlderFenceIsRefused(t *testing.T) {
	s := newStore(t)
	p, err := s.Create(t.Context(), Product{Name: "Lamp", Stock: 5})
	if err != nil {
		t.Fatal(err)
	}
	early, late := lease(t, p.ID), lease(t, p.ID)
	p.Stock = 4
	if err := s.Put(late, p); err != nil {
		t.Fatal(err)
	}
	p.Stock = 3
	if err := s.Put(early, p); !errors.Is(err, lock.ErrStale) {
		t.Errorf("put under an older fence: got %v, want ErrStale", err)
	}
	if err := s.Delete(early, p.ID); !errors.Is(err, lock.ErrStale) {
		t.Errorf("delete under an older fence: got %v, want ErrStale", err)
	}
	if err := s.Put(t.Context(), p); !errors.Is(err, lock.ErrNoLease) {
		t.Errorf("put without the lock: got %v, want ErrNoLease", err)
	}
	if got, err := s.Get(t.Context(), p.ID); err != nil || got.Stock != 4 {
		t.Errorf("got %+v, %v, want a stock of 4", got, err)
	}
}

func TestPriceIsNeverRounded(t *testing.T) {
	for text, want := range map[string]Price{"0": 0, "9": 900, "9.5": 950, "9.50": 950, "9.05": 905, "1200": 120000, "0.10000": 10, "-1.25": -125} {
		var p Price
		if err := p.UnmarshalText([]byte(text)); err != nil || p != want {
			t.Errorf("%s: got %d, %v, want %d", text, p, err, want)
		}
	}
	for _, text := range []string{"", "-", ".", ".5", "9.555", "1e3", "0x10", "9.-5", "9,50", "1.2.3", "99999999999999999999", "null", `"9"`} {
		var p Price
		if err := p.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, p)
		}
	}
}

func TestDatabaseHasToBeAFile(t *testing.T) {
	for _, text := range []string{"sqlite://:memory:", "sqlite://shop.db?mode=ro"} {
		var u mega.URL
		if err := u.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if file, err := (Database{URL: u}).File(); err == nil {
			t.Errorf("%s: got %s, want an error", text, file)
		}
	}
}

// Processes that start on one new database at the same instant agree on who
// creates it.
func TestOneNewDatabaseIsOpenedByManyAtOnce(t *testing.T) {
	for range 3 {
		file := filepath.Join(t.TempDir(), "new folder", "shop #%.db")
		const many = 8
		errs := make([]error, many)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() { errs[i] = openAndWrite(file) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDatabaseFromBeforeTheLedgerIsBroughtUpToDate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	s, err := openFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.ExecContext(t.Context(), "DROP TABLE ledger; DROP TABLE journal; PRAGMA user_version = 1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = openFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Enter(t.Context(), Sale{Product: 1, Quantity: 2, At: time.Now()}); err != nil {
		t.Error(err)
	}
	if sales, err := s.Sales(t.Context()); err != nil || len(sales) != 1 {
		t.Error(fmt.Sprint(sales), err)
	}
}

func FuzzPrice(f *testing.F) {
	for _, text := range []string{"9.5", "-0.01", "1e3", "00012.30", "9999999999999999999.99", ".", "-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p, again Price
		if p.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(p.String())); err != nil || again != p {
			t.Errorf("%q is %v, which is read as %v, %v", text, p, again, err)
		}
	})
}
