package table_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// process is an owner that keeps what it was told.
type process struct {
	*table.Owner
	mu   sync.Mutex // guards told
	told []table.Event
}

func newProcess() *process {
	p := &process{}
	p.Owner = table.NewOwner(func(e table.Event) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.told = append(p.told, e)
	})
	return p
}

// news returns what it was told since the last look, as "granted a".
func (p *process) news() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.told {
		all = append(all, []string{"granted ", "refused ", "lost "}[e.Kind]+e.Grant.Token)
	}
	p.told = nil
	return all
}

func TestTheQueueIsServedByTelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, a, b := open(), newProcess(), newProcess()
		granted(t, tab, a, request("k", "a1"))
		queuedAt(t, tab, b, request("k", "b1"), 0)
		queuedAt(t, tab, a, request("k", "a2"), 0)
		must(t, tab.Release(&driver.Grant{Key: "k", Token: "a1"}))
		expect(t, b, "granted b1")
		time.Sleep(11 * time.Second) // b1 is not renewed
		expect(t, a, "granted a2")
	})
}

// Each dead holder is succeeded at the end of its TTL, in each use of the key (L8).
func TestEachExpiryServesTheNextWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, p := open(), newProcess()
		defer tab.Close()
		for range 3 {
			granted(t, tab, p, request("k", "a"))
			for _, token := range []string{"b", "c", "d"} {
				queuedAt(t, tab, p, request("k", token), 0)
			}
			time.Sleep(time.Second)
			must(t, tab.Release(&driver.Grant{Key: "k", Token: "a"}))
			expect(t, p, "granted b")
			for _, token := range []string{"c", "d"} {
				time.Sleep(10*time.Second - 1)
				synctest.Wait()
				expect(t, p)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				expect(t, p, "granted "+token)
			}
			must(t, tab.Release(&driver.Grant{Key: "k", Token: "d"}))
		}
	})
}

func TestFencesGrowWhileTheClockStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		micros := uint64(time.Now().UnixMicro())
		tab, p := table.New(table.Config{Now: time.Now, Micros: func() uint64 { return micros }}), newProcess()
		var last uint64
		for i, step := range []int64{0, -3_600_000_000, 1, -1, 3_600_000_000} {
			micros += uint64(step)
			r := request("k", strconv.Itoa(i))
			r.Fences = 17
			g := granted(t, tab, p, r)
			if g.Fence <= last {
				t.Errorf("after a step of %d µs fence %d follows %d", step, g.Fence, last)
			}
			last = g.Fence + 16
			if last < micros {
				t.Errorf("fence %d is below the clock at %d", last, micros)
			}
			must(t, tab.Release(&driver.Grant{Key: "k", Token: r.Token}))
		}
	})
}

func TestLeasesOfADeadProcessAreFreeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, dead, alive := open(), newProcess(), newProcess()
		for i := range 200 {
			key := "k" + strconv.Itoa(i)
			granted(t, tab, dead, request(key, "held"+key))
			queuedAt(t, tab, dead, request(key, "waits"+key), 0)
			queuedAt(t, tab, alive, request(key, key), 0)
			granted(t, tab, alive, request("other"+key, key))
			queuedAt(t, tab, dead, request("other"+key, "waits"+key), 0)
		}
		tab.Drop(dead.Owner)
		for i := range 200 { // a dead waiter frees no lease of another
			key := "k" + strconv.Itoa(i)
			must(t, tab.Release(&driver.Grant{Key: "other" + key, Token: key}))
		}
		if got := len(alive.news()); got != 200 {
			t.Errorf("%d of 200 were served", got)
		}
		expect(t, dead)
		tab.Drop(alive.Owner)
		if keys, _, _ := tab.Size(); keys != 0 {
			t.Errorf("%d keys are left", keys)
		}
	})
}

func TestADeadProcessOfAPoolFreesItsSlotsAlone(t *testing.T) {
	tab, dead, alive := open(), newProcess(), newProcess()
	for i := range 6 {
		owner := []*process{dead, alive}[i%2]
		granted(t, tab, owner, pooled(request("pool", strconv.Itoa(i)), 6))
	}
	tab.Drop(dead.Owner)
	s, err := tab.Inspect("pool")
	if err != nil || len(s.Holders) != 3 || s.Holders[0].Slot != 1 || s.Holders[2].Slot != 5 {
		t.Errorf("left %+v, %v; want slots 1, 3 and 5", s.Holders, err)
	}
	if g := granted(t, tab, alive, pooled(request("pool", "new"), 6)); g.Slot != 0 {
		t.Errorf("got slot %d, want 0", g.Slot)
	}
}

// A process that dies frees nothing of its successors (L3).
func TestADeadProcessDoesNotFreeWhatItHasLost(t *testing.T) {
	for name, lose := range map[string]func(*table.Table) error{
		"by a release": func(tab *table.Table) error { return tab.Release(&driver.Grant{Key: "k", Token: "old"}) },
		"by a force": func(tab *table.Table) error {
			_, err := tab.Force("k", driver.Force{Reason: "test"}, nil)
			return err
		},
		"by expiry": func(*table.Table) error { time.Sleep(10 * time.Second); return nil },
		"by a cooldown": func(tab *table.Table) error {
			err := tab.Rest(&driver.Grant{Key: "k", Token: "old", Rev: 1, Rest: time.Second})
			time.Sleep(time.Second)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab, dead, alive := open(), newProcess(), newProcess()
				defer tab.Close()
				granted(t, tab, dead, request("k", "old"))
				for _, token := range []string{"new", "next"} {
					queuedAt(t, tab, alive, request("k", token), 0)
				}
				must(t, lose(tab))
				synctest.Wait()
				expect(t, alive, "granted new")
				tab.Drop(dead.Owner)
				must(t, tab.Release(&driver.Grant{Key: "k", Token: "new"}))
				expect(t, alive, "granted next")
			})
		})
	}
}

func TestAClosedTableRefuses(t *testing.T) { // L17
	tab, p := open(), newProcess()
	g := granted(t, tab, p, request("k", "held"))
	queuedAt(t, tab, p, request("k", "waits"), 0)
	tab.Close()
	expect(t, p, "refused waits")
	for call, err := range map[string]error{
		"Ask":     func() error { r := request("k", "late"); _, _, err := tab.Ask(&r, p.Owner, 0); return err }(),
		"Restore": func() error { _, err := tab.Restore(held("k2", "late", 1, 0), p.Owner); return err }(),
		"Force":   func() error { _, err := tab.Force("k", driver.Force{Reason: "test"}, nil); return err }(),
		"Heal":    tab.Heal("k", 0, driver.Holder{}),
		"Inspect": func() error { _, err := tab.Inspect("k"); return err }(),
		"List":    func() error { _, err := tab.List(""); return err }(),
	} {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s returns %v, want ErrClosed", call, err)
		}
	}
	if _, err := tab.Renew(&g); err != nil {
		t.Errorf("the holder's renewal returns %v", err)
	}
	must(t, tab.Release(&g))
}

func TestALostProcessKeepsItsGrantsUntilTheyExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, lost, alive := open(), newProcess(), newProcess()
		g := granted(t, tab, lost, request("k", "held"))
		queuedAt(t, tab, lost, request("k", "waits"), 0)
		queuedAt(t, tab, alive, request("k", "next"), 0)
		tab.Disown(lost.Owner)
		expect(t, alive)
		if _, err := tab.Renew(&g); err != nil {
			t.Errorf("its grant cannot be renewed: %v", err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expect(t, alive, "granted next")
	})
}

func TestForceNotifiesTheOwner(t *testing.T) {
	tab, a, b := open(), newProcess(), newProcess()
	g := granted(t, tab, a, request("k", "a"))
	queuedAt(t, tab, b, request("k", "b"), 0)
	if n, err := tab.Force("k", driver.Force{Reason: "deploy", By: driver.Holder{PID: 7}}, func(int) { expect(t, a) }); n != 1 || err != nil {
		t.Fatalf("forced %d, %v", n, err)
	}
	expect(t, a, "lost a")
	expect(t, b, "granted b")
	var lost *driver.LostError
	if _, err := tab.Renew(&g); !errors.As(err, &lost) || lost.By.PID != 7 {
		t.Errorf("the renewal said %v", err)
	}
	// a holder that was not connected at that time reports its grant when it is back
	if _, err := tab.Restore(table.Lease{Grant: g, Slots: 1, Expires: time.Now().Add(time.Minute)}, a.Owner); !errors.As(err, &lost) || lost.By.PID != 7 {
		t.Errorf("the report of the grant returns %v", err)
	}
}

func TestAskingAgainMovesItToTheNewOwner(t *testing.T) {
	tab, before, after := open(), newProcess(), newProcess()
	g := granted(t, tab, before, request("k", "held"))
	queuedAt(t, tab, before, request("k", "waits"), 7)
	if again := granted(t, tab, after, request("k", "held")); again.Fence != g.Fence {
		t.Errorf("fence %d, before %d", again.Fence, g.Fence)
	}
	queuedAt(t, tab, after, request("k", "waits"), 7)
	tab.Drop(before.Owner)
	expect(t, after)
	must(t, tab.Release(&driver.Grant{Key: "k", Token: "held"}))
	expect(t, after, "granted waits")
}

func TestOneLeaseOfSeveralMovesToItsNewOwner(t *testing.T) {
	for _, moved := range []string{"a", "b", "c"} {
		t.Run(moved, func(t *testing.T) {
			tab, before, after := open(), newProcess(), newProcess()
			for _, token := range []string{"a", "b", "c"} {
				granted(t, tab, before, pooled(request("k", token), 3))
			}
			granted(t, tab, after, pooled(request("k", moved), 3))
			tab.Drop(after.Owner)
			if s, err := tab.Inspect("k"); err != nil || len(s.Holders) != 2 {
				t.Errorf("%d holders, %v; want 2", len(s.Holders), err)
			}
			tab.Drop(before.Owner)
			if keys, _, _ := tab.Size(); keys != 0 {
				t.Error("a lease has no owner")
			}
		})
	}
}

func TestStoppedWaiterDelaysTheNextByTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, a, b := table.New(table.Config{Now: time.Now, Window: 2 * time.Second}), newProcess(), newProcess()
		granted(t, tab, a, request("k", "a"))
		queuedAt(t, tab, a, request("k", "still"), 0)
		queuedAt(t, tab, b, request("k", "b"), 0)
		must(t, tab.Release(&driver.Grant{Key: "k", Token: "a"}))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if e := b.told; len(e) != 1 || !e[0].Grant.Deadline.Equal(driver.Deadline(time.Now(), 2*time.Second)) {
			t.Fatalf("after the window it was told %+v", e)
		}
		g := b.told[0].Grant
		if deadline, err := tab.Renew(&g); err != nil || !deadline.Equal(driver.Deadline(time.Now(), g.TTL)) {
			t.Errorf("renewed until %v, %v", deadline, err)
		}
	})
}

func TestWaiterThatGivesUpGetsTheHolders(t *testing.T) {
	tab, a, b := open(), newProcess(), newProcess()
	r := request("k", "a")
	r.Holder.PID = 42
	granted(t, tab, a, r)
	queuedAt(t, tab, b, request("k", "b"), 0)
	queuedAt(t, tab, b, request("k", "c"), 0)
	var busy *driver.NotAcquiredError
	if _, err := tab.Leave("k", "c"); !errors.As(err, &busy) || busy.Position != 2 || busy.Holders[0].PID != 42 {
		t.Errorf("got %v", err)
	}
	if s, err := tab.Inspect("k"); err != nil || len(s.Waiters) != 1 {
		t.Errorf("%d waiters, %v; want 1", len(s.Waiters), err)
	}
	if _, err := tab.Renew(&driver.Grant{Key: "k", Token: "b"}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the renewal of a waiter returns %v, want ErrLost", err)
	}
	must(t, tab.Release(&driver.Grant{Key: "k", Token: "a"}))
	if g, err := tab.Leave("k", "b"); err != nil || g.Token != "b" {
		t.Errorf("a grant that came before it left is lost: %+v, %v", g, err)
	}
}

// The token of a request that was given up before it arrived is refused (L6).
func TestARequestThatArrivesAfterItWasGivenUpIsRefused(t *testing.T) {
	for name, used := range map[string]bool{"at a free key": false, "at a key in use": true} {
		t.Run(name, func(t *testing.T) {
			tab, p := open(), newProcess()
			if used {
				granted(t, tab, p, request("k", "holder"))
			}
			if _, err := tab.Leave("k", "late"); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Leave returns %v, want ErrLost", err)
			}
			r := request("k", "late")
			if _, wait, err := tab.Ask(&r, p.Owner, 0); wait || !errors.Is(err, driver.ErrLost) {
				t.Errorf("Ask returns %v, %v; want ErrLost", wait, err)
			}
		})
	}
}

func TestARefusalNamesAtMost16Holders(t *testing.T) {
	tab, p := open(), newProcess()
	for i := range 20 {
		granted(t, tab, p, pooled(request("pool", strconv.Itoa(i)), 20))
	}
	r := pooled(request("pool", "more"), 20)
	r.Wait = 0
	var busy *driver.NotAcquiredError
	if _, _, err := tab.Ask(&r, p.Owner, 0); !errors.As(err, &busy) || len(busy.Holders) != 16 || busy.Position != 0 {
		t.Errorf("got %v", err)
	}
}

func TestOwnersComeAndGoUnderLoad(t *testing.T) {
	tab := open()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				p := newProcess()
				for k := range 5 {
					r := request(fmt.Sprint("k", k), fmt.Sprint(w, ".", i, ".", k))
					if _, _, err := tab.Ask(&r, p.Owner, 0); err != nil {
						t.Error(err)
					}
				}
				tab.Drop(p.Owner)
			}
		})
	}
	wg.Wait()
	if keys, gone, _ := tab.Size(); keys != 0 || gone != 0 {
		t.Errorf("left %d keys, %d tokens", keys, gone)
	}
}

func open() *table.Table { return table.New(table.Config{Now: time.Now}) }

func request(key, token string) driver.Request {
	return driver.Request{Key: key, Token: token, TTL: 10 * time.Second, Wait: -1, Slots: 1, Fences: 1}
}

func pooled(r driver.Request, slots int) driver.Request {
	r.Slots = slots
	return r
}

func granted(t *testing.T, tab *table.Table, p *process, r driver.Request) driver.Grant {
	t.Helper()
	g, wait, err := tab.Ask(&r, p.Owner, 0)
	if err != nil || wait {
		t.Fatalf("ask %q for %s: queued: %v, %v; want a grant", r.Key, r.Token, wait, err)
	}
	return g
}

func queuedAt(t *testing.T, tab *table.Table, p *process, r driver.Request, since int64) {
	t.Helper()
	_, wait, err := tab.Ask(&r, p.Owner, since)
	if err != nil || !wait {
		t.Fatalf("ask %q for %s: %v; want a place in the queue", r.Key, r.Token, err)
	}
}

func expect(t *testing.T, p *process, want ...string) {
	t.Helper()
	if got := p.news(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("it was told %q, want %q", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A waiter that has changed the size of a pool learns of it, whether it is served or
// gives up (L15).
func TestAWaiterLearnsThatItHasChangedTheSize(t *testing.T) {
	tab, o := open(), newProcess()
	two := request("k", "a")
	two.Slots = 2
	granted(t, tab, o, two)
	g, wait, err := tab.Ask(new(request("k", "b")), o.Owner, 0)
	if err != nil || !wait || g.Resized != 2 {
		t.Errorf("%+v, queued: %v, %v, want the size before", g, wait, err)
	}
	_, err = tab.Leave("k", "b")
	if busy, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || busy.Resized != 2 {
		t.Errorf("%+v, want the size before", err)
	}
}

// The keys of a dead process are free, except those that rest (O5); its slots are dirty
// (P4); and nothing else of it is left (L8, L18).
func TestWhatADeadProcessLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, p, other := open(), newProcess(), newProcess()
		defer tab.Close()
		granted(t, tab, p, request("free", "a"))
		rests := granted(t, tab, p, request("rests", "b"))
		rests.Rest, rests.Rev = time.Minute, 1
		must(t, tab.Rest(&rests))
		slot := request("pool", "c")
		slot.Pool = &driver.Pool{Prefer: -1, Avoid: -1, Quarantine: time.Minute}
		granted(t, tab, p, slot)
		granted(t, tab, other, request("busy", "d"))
		queuedAt(t, tab, p, request("busy", "e"), 0)
		tab.Drop(p.Owner)
		if s, err := tab.Inspect("rests"); err != nil || len(s.Holders) != 1 {
			t.Errorf("the key that rests: %+v, %v", s, err)
		}
		if s, err := tab.Inspect("pool"); err != nil || s.Slots[0].Status != driver.SlotResting || s.Slots[0].Reason != driver.LeftDied {
			t.Errorf("the slot: %+v, %v", s.Slots, err)
		}
		if s, err := tab.Inspect("busy"); err != nil || len(s.Waiters) != 0 {
			t.Errorf("waiters: %+v, %v", s.Waiters, err)
		}
		if keys, _, _ := tab.Size(); keys != 3 {
			t.Errorf("%d keys, want those that rest, that are dirty and that another process has", keys)
		}
	})
}
