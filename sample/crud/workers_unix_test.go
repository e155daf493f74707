//go:build linux || darwin

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The rush on the shop: so many requests in a second, for so long at scale 1, with
// so many workers killed meanwhile. At scale 6 a worker is killed each 5 s.
const (
	rushRate  = 1000
	rushTime  = 5 * time.Second
	rushKills = 6
)

// TestWorkersThatAreKilledSellWhatTheLedgerHas has four workers behind one address
// sell 20 products to a rush of buyers, while one worker after the other is killed.
// However many requests this machine can answer, no stock is negative, what was
// sold is the sum of the ledger, and every sale that a buyer was told of is in it.
func TestWorkersThatAreKilledSellWhatTheLedgerHas(t *testing.T) {
	executable, environ := binary(t)
	file := filepath.Join(t.TempDir(), "shop.db")
	s, err := start(executable, append(environ, "MEGA_DATABASE_URL=sqlite://"+file), "serve", "--workers", "4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
	if s.lock != "cluster" {
		t.Fatalf("the locks of the workers are in %s, want cluster\n%s", s.lock, s.log)
	}
	r := rush{shop: s, stock: map[string]int64{}, told: map[int64]entry{}}
	for i := range 20 {
		pieces := 50 // half of the products are sold out on a fast machine
		if i%2 == 0 {
			pieces = 1_000_000
		}
		r.stock[s.stock(t, pieces)] = int64(pieces)
	}
	length := time.Duration(scaled(t, int(rushTime), int(2*time.Second)))
	ctx, enough := context.WithTimeout(t.Context(), length)
	defer enough()
	killed := make(chan int, 1)
	go func() { killed <- killWorkers(ctx, t, s, length/rushKills) }()
	took := r.run(ctx, t)
	deaths := <-killed
	t.Logf("%d requests in %v, %.0f in a second: %d sales, %d times sold out, %d busy, %d unsure; %d workers were killed",
		r.sent.Load(), took.Round(time.Millisecond), float64(r.sent.Load())/took.Seconds(), len(r.told), r.soldOut.Load(), r.busy.Load(), r.unsure.Load(), deaths)
	r.audit(t, file)
	if deaths == 0 || len(r.told) == 0 {
		t.Errorf("%d workers were killed during %d sales", deaths, len(r.told))
	}
}

func TestTheLedgerNoticesThatTheWorkersHaveNoLock(t *testing.T) {
	t.Setenv("MEGA_TEST_SCALE", "0.4")
	isNoticed(t, "^TestWorkersThatAreKilledSellWhatTheLedgerHas$", "pieces are missing, ")
}

// rush is a crowd of buyers.
type rush struct {
	shop  *shop
	stock map[string]int64 // of each product at the start, by its path

	sent, soldOut, busy atomic.Int64
	unsure              atomic.Int64 // buyers who do not know whether they have bought

	mu   sync.Mutex      // guards told
	told map[int64]entry // the sales that buyers were told of
}

// entry is a sale in the ledger.
type entry struct {
	path     string
	quantity int64
}

// run has buyers come at the rate of the rush, or as fast as they are answered,
// until ctx ends.
func (r *rush) run(ctx context.Context, t *testing.T) time.Duration {
	t.Helper()
	var paths []string
	for path := range r.stock {
		paths = append(paths, path)
	}
	began := time.Now()
	var buyers sync.WaitGroup
	for range 64 {
		buyers.Go(func() {
			for ctx.Err() == nil {
				due := began.Add(time.Duration(r.sent.Add(1)) * time.Second / rushRate)
				select {
				case <-ctx.Done():
					r.sent.Add(-1)
					return
				case <-time.After(time.Until(due)):
				}
				r.buy(t, entry{paths[rand.IntN(len(paths))], 1 + rand.Int64N(3)})
			}
		})
	}
	buyers.Wait()
	return time.Since(began)
}

func (r *rush) buy(t *testing.T, e entry) {
	t.Helper()
	a, err := r.shop.send("POST", e.path+"/buy", fmt.Sprintf(`{"quantity":%d}`, e.quantity), asJSON)
	var bought struct{ Sale int64 }
	switch {
	case err != nil:
		r.unsure.Add(1) // the worker died
	case a.status == http.StatusOK && json.Unmarshal([]byte(a.body), &bought) == nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		if before, twice := r.told[bought.Sale]; twice {
			t.Errorf("sale %d is %+v and %+v", bought.Sale, before, e)
		}
		r.told[bought.Sale] = e
	case a.code() == "product.sold_out":
		r.soldOut.Add(1)
	case a.code() == "lock.not_acquired":
		r.busy.Add(1)
	case a.code() == "lock.lost" || a.code() == "lock.stale" || a.code() == "lock.unavailable":
		r.unsure.Add(1)
	default:
		t.Errorf("buy: status %d: %s", a.status, a.body)
	}
}

// audit compares what buyers were told with the database.
func (r *rush) audit(t *testing.T, file string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	each(t, db, "SELECT id, stock, COALESCE((SELECT SUM(quantity) FROM sales WHERE product = products.id), 0) FROM products", func(id, stock, sold int64) {
		path := "/products/" + strconv.FormatInt(id, 10)
		if missing := r.stock[path] - stock - sold; stock < 0 || missing != 0 {
			t.Errorf("%s: %d pieces are missing, the ledger has sold %d of %d, and %d are left", path, missing, sold, r.stock[path], stock)
		}
	})
	ledger := map[int64]entry{}
	each(t, db, "SELECT id, product, quantity FROM sales", func(id, product, quantity int64) {
		ledger[id] = entry{"/products/" + strconv.FormatInt(product, 10), quantity}
	})
	for id, told := range r.told {
		if ledger[id] != told {
			t.Errorf("a buyer was told of sale %d, %+v; the ledger has %+v", id, told, ledger[id])
		}
	}
	if untold := int64(len(ledger) - len(r.told)); untold > r.unsure.Load() {
		t.Errorf("the ledger has %d sales that nobody was told of, but only %d buyers are unsure", untold, r.unsure.Load())
	}
}

// each calls fn with the three numbers of each row.
func each(t *testing.T, db *sql.DB, query string, fn func(a, b, c int64)) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var a, b, c int64
		if err := rows.Scan(&a, &b, &c); err != nil {
			t.Fatal(err)
		}
		fn(a, b, c)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// killWorkers kills one worker after the other, with a pause before each, until ctx
// ends, and returns how many.
func killWorkers(ctx context.Context, t *testing.T, s *shop, pause time.Duration) (killed int) {
	t.Helper()
	for {
		select {
		case <-ctx.Done():
			return killed
		case <-time.After(pause):
		}
		pids := s.workers()
		if len(pids) == 0 {
			t.Errorf("the log names no worker\n%s", s.log)
			return killed
		}
		switch err := syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL); {
		case err == nil:
			killed++
		case !errors.Is(err, syscall.ESRCH): // it is being replaced
			t.Error(err)
		}
	}
}

// workers are the processes that are ready, as the log has it.
func (s *shop) workers() (pids []int) {
	newest := map[int]int{}
	for line := range strings.Lines(s.log.String()) {
		var r struct {
			Msg         string
			Worker, PID int
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Msg == "worker ready" {
			newest[r.Worker] = r.PID
		}
	}
	for _, pid := range newest {
		pids = append(pids, pid)
	}
	return pids
}
