package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/megatest"
	"github.com/megaframework/mega/sample/crud/apps/main/handlers"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
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
		r := s.race(t, 30, way)
		if r.Pieces != 15 || r.Sold < r.Pieces || r.Oversold != r.Sold-r.Pieces || way != services.RaceNone && r.Oversold != 0 {
			t.Errorf("%s: %+v", way, r)
		}
		if way != services.RaceNone && r.Peak != 1 {
			t.Errorf("%s: %d buyers held the lock at once", way, r.Peak)
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
	if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "With the lock: 10 buyers wanted 5 pieces, and 5 were sold.") || strings.Count(a.body, `class="works"`) != 10 {
		t.Errorf("as a page: %d %s, %v", a.status, a.body, err)
	}
}

// race has buyers race, and returns the result.
func (s *shop) race(t *testing.T, buyers int, way string) *services.RaceResult {
	t.Helper()
	a, err := s.send("POST", "/locks/race", fmt.Sprintf(`{"buyers":%d,"way":%q}`, buyers, way), asJSON)
	var p handlers.LocksPage
	if err != nil || a.status != http.StatusOK || json.Unmarshal([]byte(a.body), &p) != nil || p.Race == nil {
		t.Fatalf("%s: %d %s, %v", way, a.status, a.body, err)
	}
	return p.Race
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

// persist sends what may be sent again until a worker has answered.
func persist(s *shop, method, path, body string) (a answer, err error) {
	for range 20 {
		if a, err = s.send(method, path, body, "Accept: application/json"); err == nil {
			return a, nil
		}
	}
	return a, err
}

// awaitLocks returns the page of locks as soon as it is as wanted.
func (s *shop) awaitLocks(t *testing.T, what string, wanted func(handlers.LocksPage) bool) (p handlers.LocksPage) {
	t.Helper()
	for began := time.Now(); time.Since(began) < startTime; time.Sleep(10 * time.Millisecond) {
		a, err := persist(s, "GET", "/locks", "")
		if a.code() == "lock.unavailable" {
			continue // a busy machine answers late, as with a process that is frozen
		}
		if err != nil || a.status != http.StatusOK || json.Unmarshal([]byte(a.body), &p) != nil {
			t.Fatalf("the locks: %d %s, %v", a.status, a.body, err)
		}
		if wanted(p) {
			return p
		}
	}
	t.Fatalf("it did not happen that %s: %+v\n%s", what, p, s.log)
	return p
}

// has reports whether the holder with a fence has made a step.
func has(p handlers.LocksPage, what string, fence uint64) bool {
	return slices.ContainsFunc(p.Steps, func(s store.Step) bool { return s.What == what && s.Fence == fence })
}

// hold has the demo lock held until the test ends, and returns the holder.
func (s *shop) hold(t *testing.T) lock.Holding {
	t.Helper()
	if a, err := s.send("POST", "/locks/hold", `{"seconds":120}`, asJSON); err != nil || a.status != http.StatusAccepted {
		t.Fatalf("hold: %d %s, %v", a.status, a.body, err)
	}
	t.Cleanup(func() { _, _ = s.send("POST", "/locks/force", `{"reason":"the test ends"}`, asJSON) })
	return s.awaitLocks(t, "the lock is held", func(p handlers.LocksPage) bool {
		return len(p.Holders) == 1 && has(p, "wrote", p.Holders[0].Fence)
	}).Holders[0]
}

// The buttons of the page stay near the place at which a visitor has pressed them.
func TestAFewOfManyWaitersAreShown(t *testing.T) {
	kit := offline(t)
	defer kit.Lock.Hold(services.DemoKey)()
	var waiters sync.WaitGroup
	defer waiters.Wait()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 6 {
		waiters.Go(func() {
			if lease, err := kit.Locks().Acquire(ctx, services.DemoKey, lock.Wait(lock.Forever)); err == nil {
				_ = lease.Release()
				t.Error("a waiter has the lock beside its holder")
			}
		})
	}
	kit.Lock.AwaitWaiters(services.DemoKey, 6)
	page := kit.Get("/locks", "Accept: text/html").Contains("6 wait in all").Body()
	if n := strings.Count(page, "<strong>waits</strong>"); n != 5 {
		t.Errorf("%d waiters are shown, want 5", n)
	}
}

func TestAHolderIsExtendedAndReleased(t *testing.T) {
	s := openShop(t)
	for _, path := range []string{"/locks/extend", "/locks/release"} {
		if a, err := s.send("POST", path, "", asJSON); err != nil || a.status != http.StatusConflict || a.code() != "demo.not_held" {
			t.Errorf("%s without a holder: %d %s, %v", path, a.status, a.body, err)
		}
	}
	if p := s.locks(t); p.Reason != "neither a cache nor a cluster is configured  (cache.<alias>.url: not set)" {
		t.Errorf("the driver was chosen because %q", p.Reason)
	}
	held := s.hold(t)
	if a, err := s.send("POST", "/locks/extend", "", asForm); err != nil || a.status != http.StatusSeeOther {
		t.Fatalf("extend: %d %s, %v", a.status, a.body, err)
	}
	s.awaitLocks(t, "the lease lives longer", func(p handlers.LocksPage) bool {
		return has(p, "extended", held.Fence) && len(p.Holders) == 1 && p.Holders[0].Left > 2*time.Second
	})
	if a, err := s.send("POST", "/locks/release", "", asForm); err != nil || a.status != http.StatusSeeOther {
		t.Fatalf("release: %d %s, %v", a.status, a.body, err)
	}
	s.awaitLocks(t, "the lock is free", func(p handlers.LocksPage) bool { return has(p, "released", held.Fence) && len(p.Holders) == 0 })
	held = s.hold(t)
	if a, err := s.send("POST", "/locks/force", `{"reason":"it hangs"}`, asJSON); err != nil || a.body != `{"released":1}` {
		t.Fatalf("force: %d %s, %v", a.status, a.body, err)
	}
	p := s.awaitLocks(t, "the holder lost the lock", func(p handlers.LocksPage) bool { return has(p, "lost", held.Fence) })
	if i := slices.IndexFunc(p.Steps, func(s store.Step) bool { return s.What == "lost" }); p.Steps[i].Text != "lock.lost: it hangs" {
		t.Errorf("the loss is %+v", p.Steps[i])
	}
}

func TestNobodyIsKilledOutsideDevOrWithoutWorkers(t *testing.T) {
	executable, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		env, code, page string
		status          int
	}{
		{"production", "demo.only_in_dev", "MEGA_ENV=dev", http.StatusForbidden},
		{"dev", "demo.no_workers", "Kill the holder", http.StatusConflict},
	} {
		s := open(t, executable, 1, "MEGA_ENV="+x.env)[0]
		s.hold(t)
		for _, path := range []string{"/locks/kill", "/locks/freeze"} {
			if a, err := s.send("POST", path, "", asJSON); err != nil || a.status != x.status || a.code() != x.code {
				t.Errorf("%s %s: %d %s, %v; want %d %s", x.env, path, a.status, a.body, err, x.status, x.code)
			}
		}
		if page := s.page(t, "/locks"); !strings.Contains(page, x.page) {
			t.Errorf("%s: the page lacks %q", x.env, x.page)
		}
	}
}

// The requests of a kit do not come over a loopback connection.
func TestNobodyIsKilledFromAnotherMachine(t *testing.T) {
	kit := megatest.New(t, megatest.Config{
		Environ: []string{"MEGA_ENV=dev"}, Set: []string{"database.url=sqlite://" + filepath.Join(t.TempDir(), "shop.db")},
	}, program(services.UnderLock))
	for _, path := range []string{"/locks/kill", "/locks/freeze"} {
		kit.Post(path, nil).Status(http.StatusForbidden).Code("demo.only_on_loopback")
	}
	kit.Post("/sandboxes", map[string]string{"end": services.EndsKilled}).Status(http.StatusForbidden).Code("demo.only_on_loopback")
	kit.Get("/locks", asPage).Contains("Open the page at a loopback address.")
	if page := kit.Get("/sandboxes", asPage).Body(); strings.Contains(page, "kill -9") {
		t.Errorf("the page offers to kill a worker:\n%s", page)
	}
}

// Another machine has other processes under the numbers of this one.
func TestAStrikeIsCarriedOutOnTheMachineOfItsHolder(t *testing.T) {
	kit := megatest.New(t, megatest.Config{
		Environ: []string{"MEGA_ENV=dev"}, Set: []string{"database.url=sqlite://" + filepath.Join(t.TempDir(), "shop.db")},
	}, program(services.UnderLock))
	kit.Lock.Hold(services.DemoKey)
	held := kit.Lock.State(services.DemoKey).Holders[0]
	kit.Bus.Publish(string(services.Strikes), services.Strike{Fence: held.Fence, Host: "elsewhere", Do: services.DoKill})
	kit.Bus.Settle()
	if s := kit.Lock.State(services.DemoKey); len(s.Waiters) != 0 {
		t.Errorf("a process of this machine carries it out: %+v", s)
	}
}

// A strike whose holder ends by itself meanwhile does not wait for a waiter: other
// strikes are refused as long as it lasts.
func TestAStrikeEndsWithItsHolder(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	kit := megatest.New(t, megatest.Config{
		Environ: []string{"MEGA_ENV=dev"}, Set: []string{"database.url=sqlite://" + filepath.Join(t.TempDir(), "shop.db")},
	}, program(services.UnderLock))
	for range 5 {
		release := kit.Lock.Hold(services.DemoKey)
		held := kit.Lock.State(services.DemoKey).Holders[0]
		kit.Bus.Publish(string(services.Strikes), services.Strike{Fence: held.Fence, Host: host, Do: services.DoKill})
		kit.Lock.AwaitHolder("demo-strike")
		release()
		kit.Lock.Hold("demo-strike", lock.Wait(10*time.Second))() // the strike has ended
	}
}

func TestAnExtensionThatFailsIsNotOnTheTrail(t *testing.T) {
	kit := offline(t)
	kit.Post("/locks/hold", map[string]int{"seconds": 60}).Status(http.StatusAccepted)
	kit.Lock.AwaitHolder(services.DemoKey)
	fence := kit.Lock.State(services.DemoKey).Holders[0].Fence
	var p handlers.LocksPage
	for !has(p, "wrote", fence) {
		kit.Get("/locks").JSON(&p)
	}
	kit.Lock.Break()
	kit.Bus.Publish(string(services.HoldOrders), services.HoldOrder{Fence: fence, Do: services.DoExtend})
	kit.Log.Expect("task failed", "task", "hold the demo lock")
	kit.Lock.Mend()
	if kit.Get("/locks").JSON(&p); has(p, "extended", fence) || !has(p, "failed", fence) {
		t.Errorf("the trail is %+v", p.Steps)
	}
}

// A page hears of a change, and of a race, without asking.
func TestThePageOfLocksIsLive(t *testing.T) {
	s := openShop(t)
	events := s.events(t, "/locks/live")
	events.await(t, "changed", "")
	if a, err := s.send("POST", "/locks/race", `{"buyers":4}`, asJSON); err != nil || a.status != http.StatusOK {
		t.Fatalf("race: %d %s, %v", a.status, a.body, err)
	}
	events.await(t, "race", `"buyers":4,"pieces":2,"waiting":0,"working":0,"sold":2`)
	s.hold(t)
	events.await(t, "left", `{"millis":`)
}

func TestWrongRequestsOfLocks(t *testing.T) {
	s := openShop(t)
	for _, x := range []struct{ path, body string }{
		{"/locks/race", `{"buyers":1}`},
		{"/locks/race", `{"buyers":10,"way":"luck"}`},
		{"/locks/race", `{"work":51}`},
		{"/locks/hold", `{"seconds":0}`},
		{"/locks/force", `{"reason":" "}`},
	} {
		if a, err := s.send("POST", x.path, x.body, asJSON); err != nil || a.status != 422 || a.code() != "request.invalid" {
			t.Errorf("%s %s: %d %s, %v", x.path, x.body, a.status, a.body, err)
		}
	}
}
