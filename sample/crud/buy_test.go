package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
)

// TestBuyers has four times as many buyers as there are pieces, all at once,
// and exactly the pieces must be sold: where the locks are in the memory of one
// process, and where they are in redis and three processes share a database.
func TestBuyers(t *testing.T) {
	executable, environ := binary(t)
	t.Run("memory, one process", func(t *testing.T) {
		sellOut(t, open(t, executable, 1, environ...), "memory")
	})
	t.Run("redis, three processes", func(t *testing.T) {
		sellOut(t, open(t, executable, 3, append(environ, "MEGA_CACHE_MAIN_URL="+redisServer(t), "MEGA_LOCK_REQUIRE=fleet")...), "redis")
	})
}

// One of several shops that was started without the Redis of the others would sell
// their pieces again.
func TestShopOfAFleetNeedsLocksOfTheFleet(t *testing.T) {
	var log strings.Builder
	status := boot.Main(t.Context(), boot.Process{
		Name: "crud", Stderr: &log, Set: []string{"lock.require=fleet", "database.url=sqlite://" + filepath.Join(t.TempDir(), "shop.db")},
	}, program(services.UnderLock))
	if status != 78 || !strings.Contains(log.String(), "lock.scope_too_small") {
		t.Errorf("exit status %d, want 78\n%s", status, &log)
	}
}

func sellOut(t *testing.T, shops []*shop, driver string) {
	t.Helper()
	for _, s := range shops {
		if s.lock != driver {
			t.Fatalf("a shop has its locks in %s, want %s\n%s", s.lock, driver, s.log)
		}
	}
	pieces := scaled(t, 50, 10)
	buyers := 4 * pieces
	path := shops[0].stock(t, pieces)
	sold, err := buyAll(shops, path, buyers)
	if err != nil {
		t.Errorf("%v\n%s", err, shops[0].log)
	}
	left, err := shops[0].send("GET", path, "", "Accept: application/json")
	if err != nil {
		t.Fatal(err)
	}
	if sold != pieces || !strings.Contains(left.body, `"stock":0,`) {
		t.Errorf("%d buyers bought %d of %d pieces, and what is left is %s", buyers, sold, pieces, left.body)
	}
}

// buyAll has every buyer buy one piece, at the shops in turn, and returns how
// many got one.
func buyAll(shops []*shop, path string, buyers int) (sold int, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	door := make(chan struct{})
	for i := range buyers {
		all.Go(func() {
			<-door
			got, e := buyOne(shops[i%len(shops)], path)
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, e)
			if got {
				sold++
			}
		})
	}
	close(door)
	all.Wait()
	return sold, err
}

// patience bounds how long a buyer comes back to a busy shop.
const patience = 2 * time.Minute

func buyOne(s *shop, path string) (bool, error) {
	for began := time.Now(); time.Since(began) < patience; {
		a, err := s.send("POST", path+"/buy", `{"quantity":1}`, asJSON)
		switch {
		case err != nil:
			return false, err
		case a.status == http.StatusOK:
			return true, nil
		case a.status == http.StatusConflict && a.code() == "product.sold_out":
			return false, nil
		case a.status == http.StatusConflict && a.code() == "lock.not_acquired":
		default:
			return false, fmt.Errorf("buy: status %d: %s", a.status, a.body)
		}
	}
	return false, errors.New("the shop stayed busy")
}

// A test that cannot fail proves nothing: without the lock, TestBuyers does.
func TestBuyersNoticeThatTheLockIsMissing(t *testing.T) {
	for _, where := range []string{"^TestBuyers$/^memory,_one_process$", "^TestBuyers$/^redis,_three_processes$"} {
		isNoticed(t, where, "buyers bought ")
	}
}

// isNoticed runs a test again with shops that have no lock: it has to fail, and
// to say so.
func isNoticed(t *testing.T, where, says string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), os.Args[0], "-oversell", "-test.run="+where, "-test.count=1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), says) {
		t.Errorf("%s: nobody noticed (%v):\n%s", where, err, out)
	}
}
