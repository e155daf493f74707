//go:build linux || darwin

package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// strikes is how often a worker is killed.
const strikes = 500 * time.Millisecond

// TestWorkersThatAreKilledSellExactlyTheStock has four workers behind one
// address, of which one is killed twice a second, and more buyers than pieces. A
// buyer whose worker dies hears nothing and comes again; what counts is that
// nobody is sold a piece that is not there, and that no piece is left.
func TestWorkersThatAreKilledSellExactlyTheStock(t *testing.T) {
	executable, environ := binary(t)
	environ = append(environ, "MEGA_DATABASE_URL=sqlite://"+filepath.Join(t.TempDir(), "shop.db"))
	s, err := start(executable, environ, "serve", "--workers", "4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
	if s.lock != "cluster" {
		t.Fatalf("the locks of the workers are in %s, want cluster\n%s", s.lock, s.log)
	}
	pieces := scaled(t, 600, 200)
	path := s.stock(t, pieces)
	ctx, enough := context.WithCancel(t.Context())
	var killing sync.WaitGroup
	killed := 0
	killing.Go(func() { killed = killWorkers(ctx, t, s) })
	sold, unheard := buyOut(t, s, path)
	enough()
	killing.Wait()
	left, err := persist(s, "GET", path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d workers were killed; %d of %d pieces were sold to buyers who heard of it, %d buyers heard nothing", killed, sold, pieces, unheard)
	if sold > pieces || sold+unheard < pieces || !strings.Contains(left.body, `"stock":0,`) {
		t.Errorf("%d of %d pieces were sold, %d buyers heard nothing, and what is left is %s", sold, pieces, unheard, left.body)
	}
	if killed == 0 {
		t.Error("no worker was killed")
	}
}

func TestBuyersNoticeThatTheWorkersHaveNoLock(t *testing.T) {
	isNoticed(t, "^TestWorkersThatAreKilledSellExactlyTheStock$", "pieces were sold, ")
}

// buyOut has buyers buy until nothing is left. It returns how many pieces they
// were told that they had bought, and how often they heard nothing.
func buyOut(t *testing.T, s *shop, path string) (sold, unheard int) {
	t.Helper()
	var heard, lost atomic.Int64
	var buyers sync.WaitGroup
	for range 16 {
		buyers.Go(func() {
			for {
				a, err := s.send("POST", path+"/buy", `{"quantity":1}`, asJSON)
				switch {
				case err != nil:
					lost.Add(1)
				case a.status == http.StatusOK:
					heard.Add(1)
				case a.code() == "product.sold_out":
					return
				case a.code() == "lock.not_acquired":
				default:
					t.Errorf("buy: status %d: %s", a.status, a.body)
					return
				}
			}
		})
	}
	buyers.Wait()
	return int(heard.Load()), int(lost.Load())
}

// persist sends what may be sent again until a worker has answered.
func persist(s *shop, method, path, body string) (a answer, err error) {
	for range 20 {
		if a, err = s.send(method, path, body, "Accept: application/json"); err == nil {
			return a, nil
		}
	}
	return a, err
}

// killWorkers kills one worker after the other until ctx ends, and returns how
// many.
func killWorkers(ctx context.Context, t *testing.T, s *shop) (killed int) {
	t.Helper()
	for {
		select {
		case <-ctx.Done():
			return killed
		case <-time.After(strikes):
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
