package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/drivers/memory"
	databasetest "github.com/megaframework/mega/internal/testkit/database"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

// TestStore makes every claim about the store on SQLite and on a PostgreSQL server
// of its own, each on a new database.
func TestStore(t *testing.T) {
	server := databasetest.Postgres(t)
	for i, claim := range []struct {
		name string
		test func(t *testing.T, url string)
	}{
		{"a new database is opened by many at once", newDatabaseIsOpenedByManyAtOnce},
		{"a change under an older fence is refused", changeUnderAnOlderFenceIsRefused},
		{"a read for a change waits for an earlier commit", readForAChangeWaitsForAnEarlierCommit},
		{"the search finds a part of a name", searchFindsAPartOfAName},
		{"numbers in names are sorted by value", numbersInNamesAreSortedByValue},
		{"each change has a version of its own", eachChangeHasAVersion},
		{"the journal shows the newest events", journalShowsTheNewestEvents},
		{"the journal shows no event without its job", journalShowsNoEventWithoutItsJob},
		{"a job continues without its journal", jobContinuesWithoutItsJournal},
		{"a late write is refused", lateWriteIsRefused},
		{"the trail is bounded", trailIsBounded},
		{"a step has any text", stepHasAnyText},
		{"a holder does not wait for its trail", holderDoesNotWaitForItsTrail},
	} {
		t.Run(claim.name, func(t *testing.T) {
			t.Run("SQLite", func(t *testing.T) {
				claim.test(t, "sqlite://"+filepath.Join(t.TempDir(), "new folder", "shop #%.db"))
			})
			t.Run("PostgreSQL", func(t *testing.T) { claim.test(t, newDatabase(t, server, fmt.Sprint("claim", i))) })
		})
	}
}

// newDatabase creates a database on a server that may still be starting.
func newDatabase(t *testing.T, server, name string) (url string) {
	t.Helper()
	db, err := sql.Open("pgx", server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err = db.PingContext(t.Context()); err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("the server does not answer: %v", err)
		}
	}
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(server, "/postgres?", "/"+name+"?", 1)
}

// opened opens a database until the test ends.
func opened(t *testing.T, url string) *Store {
	t.Helper()
	s, err := open(url)
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

// open opens a database and creates its tables.
func open(url string) (*Store, error) {
	var d Database
	if err := d.URL.UnmarshalText([]byte(url)); err != nil {
		return nil, err
	}
	s, err := Open(d, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return s, s.Migrate(context.Background())
}

func openAndWrite(url string) error {
	s, err := open(url)
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
func changeUnderAnOlderFenceIsRefused(t *testing.T, url string) {
	t.Helper()
	s := opened(t, url)
	p, err := s.Create(t.Context(), Product{Name: "Lamp", Stock: 5})
	if err != nil {
		t.Fatal(err)
	}
	early, late := lease(t, p.ID), lease(t, p.ID)
	if _, err := s.Sell(late, p, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sell(early, p, 2); !errors.Is(err, lock.ErrStale) {
		t.Errorf("sell under an older fence: got %v, want ErrStale", err)
	}
	if _, err := s.Put(early, p); !errors.Is(err, lock.ErrStale) {
		t.Errorf("put under an older fence: got %v, want ErrStale", err)
	}
	if err := s.Delete(early, p.ID); !errors.Is(err, lock.ErrStale) {
		t.Errorf("delete under an older fence: got %v, want ErrStale", err)
	}
	if _, err := s.Put(t.Context(), p); !errors.Is(err, lock.ErrNoLease) {
		t.Errorf("put without the lock: got %v, want ErrNoLease", err)
	}
	if got, err := s.Get(t.Context(), p.ID); err != nil || got.Stock != 4 {
		t.Errorf("got %+v, %v, want a stock of 4", got, err)
	}
	if sales, total, err := s.Sales(t.Context(), 10, 0); err != nil || total != 1 || len(sales) != 1 || sales[0].Quantity != 1 {
		t.Errorf("the ledger has %+v of %d, %v; want the first sale alone", sales, total, err)
	}
}

// The lease of the earlier holder ends while it commits. What the next one reads
// without waiting for that commit would be out of date when it writes.
func readForAChangeWaitsForAnEarlierCommit(t *testing.T, url string) {
	t.Helper()
	s := opened(t, url)
	p, err := s.Create(t.Context(), Product{Name: "Lamp", Stock: 5})
	if err != nil {
		t.Fatal(err)
	}
	early, late := lease(t, p.ID), lease(t, p.ID)
	written, commit, committed := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		sold := p
		sold.Stock--
		committed <- s.change(early, p.ID, func(tx *sql.Tx) error {
			defer func() { <-commit }()
			defer close(written)
			return sold.put(early, tx)
		})
	}()
	<-written
	read := make(chan struct{})
	var got Product
	go func() {
		defer close(read)
		got, err = s.GetForChange(late, p.ID)
	}()
	select {
	case <-read:
		t.Errorf("the read did not wait: %+v, %v", got, err)
	case <-time.After(50 * time.Millisecond): // a read that does not wait takes less
	}
	close(commit)
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if <-read; err != nil || got.Stock != 4 {
		t.Errorf("after the commit: got %+v, %v, want a stock of 4", got, err)
	}
	if _, err := s.Put(early, p); !errors.Is(err, lock.ErrStale) {
		t.Errorf("put by the earlier holder: got %v, want ErrStale", err)
	}
}

// Signs that mean something in a pattern are text in a search.
func numbersInNamesAreSortedByValue(t *testing.T, url string) {
	t.Helper()
	s := opened(t, url)
	want := []string{"chair", "Chair 1", "chair 2b", "Chair 9", "Chair 010", "Chair 11", "Chair 100000000000000000000", "desk 1"}
	for _, i := range []int{4, 0, 7, 6, 2, 3, 1, 5} {
		if _, err := s.Create(t.Context(), Product{Name: want[i]}); err != nil {
			t.Fatal(err)
		}
	}
	found, _, err := s.List(t.Context(), "", 10, 0)
	got := []string{}
	for _, p := range found {
		got = append(got, p.Name)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func searchFindsAPartOfAName(t *testing.T, url string) {
	t.Helper()
	s := opened(t, url)
	for _, name := range []string{"Desk Lamp", "Über-Lampe", "책상 램프", "100% cotton", "a_b", `back\slash`, "chair"} {
		if _, err := s.Create(t.Context(), Product{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string][]string{
		"lamp": {"Desk Lamp", "Über-Lampe"}, "ÜBER": {"Über-Lampe"}, "램프": {"책상 램프"}, "%": {"100% cotton"}, "_": {"a_b"}, `\`: {`back\slash`}, "sofa": {},
	} {
		found, total, err := s.List(t.Context(), text, 10, 0)
		names := []string{}
		for _, p := range found {
			names = append(names, p.Name)
		}
		if err != nil || total != len(want) || !slices.Equal(names, want) {
			t.Errorf("%q: found %q of %d, %v, want %q", text, names, total, err, want)
		}
	}
	page, total, err := s.List(t.Context(), "", 3, 6)
	if err != nil || total != 7 || len(page) != 1 || page[0].Name != "책상 램프" {
		t.Errorf("the last page has %+v of %d, %v", page, total, err)
	}
}

func eachChangeHasAVersion(t *testing.T, url string) {
	t.Helper()
	s := opened(t, url)
	p, err := s.Create(t.Context(), Product{Name: "Lamp", Stock: 5})
	if err != nil || p.Version != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	held := lease(t, p.ID)
	if _, err := s.Sell(held, p, 2); err != nil {
		t.Fatal(err)
	}
	if p, err = s.Get(t.Context(), p.ID); err != nil || p.Version != 2 || p.Stock != 3 {
		t.Fatalf("after the sale: %+v, %v", p, err)
	}
	p.Name = "Light"
	if p, err = s.Put(held, p); err != nil || p.Version != 3 {
		t.Errorf("after the edit: %+v, %v", p, err)
	}
	if err := s.Delete(held, p.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.Put(held, p); !errors.Is(err, ErrNotFound) {
		t.Errorf("put what is not there: %v", err)
	}
	if err := s.Delete(held, p.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("delete what is not there: %v", err)
	}
}

func journalShowsNoEventWithoutItsJob(t *testing.T, url string) {
	t.Helper()
	j := NewJournal(opened(t, url), slog.New(slog.DiscardHandler))
	var begun error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			if _, begun = j.Begin(t.Context()); begun != nil {
				return
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		events, err := j.Newest(t.Context())
		if err != nil {
			t.Error(err)
		}
		if slices.ContainsFunc(events, func(e JobEvent) bool { return e.Job == 0 }) {
			<-done
			t.Fatalf("the newest event has no job: %+v", events[0])
		}
	}
	if begun != nil {
		t.Error(begun)
	}
}

// jobContinuesWithoutItsJournal has a database that does not answer.
func jobContinuesWithoutItsJournal(t *testing.T, url string) {
	t.Helper()
	s := opened(t, url)
	if s.dialect == guard.SQLite {
		return // its busy_timeout bounds each wait
	}
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE journal"); err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		NewJournal(s, slog.New(slog.DiscardHandler)).Write(t.Context(), NoSandbox, "works")
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(30 * time.Second):
		t.Error("the job waits for its journal")
	}
}

func journalShowsTheNewestEvents(t *testing.T, url string) {
	t.Helper()
	s := opened(t, url)
	j := NewJournal(s, slog.New(slog.DiscardHandler))
	first, err := j.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	j.Write(WithJob(t.Context(), first), 2, "works", "seconds", 5)
	second, err := j.Begin(t.Context())
	if err != nil || second <= first {
		t.Fatalf("jobs %d and %d, %v", first, second, err)
	}
	events, err := j.Newest(t.Context())
	if err != nil || len(events) != 3 {
		t.Fatalf("%+v, %v", events, err)
	}
	if e := events[1]; e.Job != first || e.Sandbox != 2 || e.Event != "works" || fmt.Sprint(e.Details) != "[seconds 5]" {
		t.Errorf("the event is %+v", e)
	}
	if e := events[2]; e.Job != first || e.InSandbox() || e.Event != "begin" || len(e.Details) != 0 {
		t.Errorf("the first event is %+v", e)
	}
}

// The guard's own text is what a migration of an application has to create.
func TestMigrationsCreateTheTableOfTheGuard(t *testing.T) {
	for folder, dialect := range map[string]guard.Dialect{"sqlite": guard.SQLite, "postgres": guard.Postgres} {
		text, err := migrations.ReadFile("migrations/" + folder + "/00001_shop.sql")
		if err != nil || !strings.Contains(string(text), guard.Schema(dialect)) {
			t.Errorf("%s, %v: the table is not that of the guard", folder, err)
		}
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

func TestNumbersOfAPageAreGrouped(t *testing.T) {
	for p, want := range map[Price]string{0: "0.00", 99999: "999.99", 100000: "1,000.00", -123456789: "-1,234,567.89"} {
		if got := p.Grouped(); got != want {
			t.Errorf("%d: got %s, want %s", p, got, want)
		}
	}
	if got := (Product{Stock: 1_000_000_000}).Pieces(); got != "1,000,000,000" {
		t.Errorf("got %s", got)
	}
}

func TestDatabaseHasToBeAFile(t *testing.T) {
	for _, text := range []string{"sqlite://:memory:", "sqlite://shop.db?mode=ro"} {
		var u mega.URL
		if err := u.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if file, err := (Database{URL: u}).file(); err == nil {
			t.Errorf("%s: got %s, want an error", text, file)
		}
	}
}

// Processes that start on one new database at the same instant agree on who
// creates it.
func newDatabaseIsOpenedByManyAtOnce(t *testing.T, url string) {
	t.Helper()
	errs := make([]error, 6)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = openAndWrite(url) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// The shop once kept its version in the file itself.
func TestDatabaseFromBeforeTheMigrationsIsBroughtUpToDate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	old, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = old.ExecContext(t.Context(), `CREATE TABLE products (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, price INTEGER NOT NULL, stock INTEGER NOT NULL) STRICT;
		CREATE TABLE ledger (product INTEGER NOT NULL, quantity INTEGER NOT NULL, at INTEGER NOT NULL) STRICT;
		INSERT INTO products (name, price, stock) VALUES ('Lamp', 950, 3);
		INSERT INTO ledger (product, quantity, at) VALUES (1, 2, 1000), (7, 1, 2000);
		PRAGMA user_version = 2`)
	if err := errors.Join(err, old.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := open("sqlite://" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	sales, total, err := s.Sales(t.Context(), 10, 0)
	if err != nil || total != 2 || sales[1].Name != "Lamp" || sales[1].Quantity != 2 || !sales[1].Listed || sales[0].Listed {
		t.Errorf("the ledger has %+v of %d, %v", sales, total, err)
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
