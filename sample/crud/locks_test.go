package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/sample/crud/apps/main/handlers"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
)

// locks returns what the page of locks shows.
func (s *shop) locks(t *testing.T) (p handlers.LocksPage) {
	t.Helper()
	a, err := s.send("GET", "/locks", "", "Accept: application/json")
	if err != nil || a.status != http.StatusOK || json.Unmarshal([]byte(a.body), &p) != nil {
		t.Fatalf("the locks: %d %s, %v", a.status, a.body, err)
	}
	return p
}

// The oversold pieces of a race without a lock depend on the machine; their
// number is only checked against what was sold.
func TestARaceWithTheLockSellsExactlyThePieces(t *testing.T) {
	s := openShop(t)
	for _, way := range []string{services.RaceLock, services.RaceFIFO, services.RaceNone} {
		a, err := s.send("POST", "/locks/race", fmt.Sprintf(`{"buyers":30,"way":%q}`, way), asJSON)
		var p handlers.LocksPage
		if err != nil || a.status != http.StatusOK || json.Unmarshal([]byte(a.body), &p) != nil || p.Race == nil {
			t.Fatalf("%s: %d %s, %v", way, a.status, a.body, err)
		}
		r := p.Race
		if r.Pieces != 15 || r.Sold < r.Pieces || r.Oversold != r.Sold-r.Pieces || way != services.RaceNone && r.Oversold != 0 {
			t.Errorf("%s: %+v", way, r)
		}
		for name, h := range map[string]services.Histogram{"wait": r.Wait, "hold": r.Hold} {
			n := 0
			for _, b := range h.Bars {
				n += b.Count
			}
			if n != 30 {
				t.Errorf("%s: the histogram of %s has %d buyers", way, name, n)
			}
		}
	}
	a, err := s.send("POST", "/locks/race", "buyers=10&way=lock", asForm)
	if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "With the lock: 5 of 5 pieces were sold to 10 buyers.") {
		t.Errorf("as a page: %d %s, %v", a.status, a.body, err)
	}
}

func TestTheDemoLockIsHeldTriedAndTaken(t *testing.T) {
	s := openShop(t)
	if a, err := s.send("POST", "/locks/try", "{}", asJSON); err != nil || a.status != http.StatusOK || !strings.Contains(a.body, `"fence":`) {
		t.Errorf("try the free lock: %d %s, %v", a.status, a.body, err)
	}
	for range 2 {
		if a, err := s.send("POST", "/locks/hold", fmt.Sprintf(`{"seconds":%d}`, 120), asJSON); err != nil || a.status != http.StatusAccepted {
			t.Fatalf("hold: %d %s, %v", a.status, a.body, err)
		}
	}
	var p handlers.LocksPage
	for began := time.Now(); len(p.Holders) != 1 || len(p.Waiters) != 1; time.Sleep(10 * time.Millisecond) {
		if p = s.locks(t); time.Since(began) > startTime {
			t.Fatalf("holders and waiters: %+v", p)
		}
	}
	first := p.Holders[0].Fence
	if a, err := s.send("POST", "/locks/try", "{}", asJSON); err != nil || a.status != http.StatusConflict || a.code() != "lock.not_acquired" {
		t.Errorf("try the held lock: %d %s, %v", a.status, a.body, err)
	}
	if a, err := s.send("POST", "/locks/try", "", asForm); err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "Busy. It is held by app &#34;main&#34;") {
		t.Errorf("try the held lock on the page: %d %s, %v", a.status, a.body, err)
	}
	for _, left := range []int{1, 0} { // the waiter, and then nobody
		if a, err := s.send("POST", "/locks/force", `{"reason":"it hangs"}`, asJSON); err != nil || a.body != `{"released":1}` {
			t.Fatalf("force: %d %s, %v", a.status, a.body, err)
		}
		for began := time.Now(); len(p.Waiters) != 0 || len(p.Holders) != left || left == 1 && p.Holders[0].Fence <= first; time.Sleep(10 * time.Millisecond) {
			if p = s.locks(t); time.Since(began) > startTime {
				t.Fatalf("after the force: %+v", p)
			}
		}
	}
}

func TestWrongRequestsOfLocks(t *testing.T) {
	s := openShop(t)
	for _, x := range []struct{ path, body string }{
		{"/locks/race", `{"buyers":1}`},
		{"/locks/race", `{"buyers":10,"way":"luck"}`},
		{"/locks/hold", `{"seconds":0}`},
		{"/locks/force", `{"reason":" "}`},
	} {
		if a, err := s.send("POST", x.path, x.body, asJSON); err != nil || a.status != 422 || a.code() != "request.invalid" {
			t.Errorf("%s %s: %d %s, %v", x.path, x.body, a.status, a.body, err)
		}
	}
}
