package table_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

func TestATableThatIsShutGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, p := shut(), newProcess()
		queuedAt(t, tab, p, request("k", "first"), 0)
		hasty := request("k", "hasty")
		hasty.Wait = 0
		queuedAt(t, tab, p, hasty, 0)
		other := hasty
		other.Key, other.Token = "free", "hasty too"
		queuedAt(t, tab, p, other, 0)
		time.Sleep(time.Minute)
		expect(t, p)
		tab.Open()
		got := map[string]bool{}
		for _, n := range p.news() {
			got[n] = true
		}
		if len(got) != 3 || !got["granted first"] || !got["refused hasty"] || !got["granted hasty too"] {
			t.Errorf("after it opened: %v", got)
		}
	})
}

func TestALeaseIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, p := shut(), newProcess()
		l := held("k", "a", 1000, 0)
		g, err := tab.Restore(l, p.Owner)
		if err != nil || g.Fence != 1000 || !g.Deadline.Equal(l.Expires.Add(-driver.Margin(l.Grant.TTL))) {
			t.Fatalf("restored %+v, %v", g, err)
		}
		queuedAt(t, tab, p, request("k", "b"), 0)
		tab.Open()
		expect(t, p)
		if _, err := tab.Renew(&g); err != nil {
			t.Error(err)
		}
		must(t, tab.Release(&driver.Grant{Key: "k", Token: "a"}))
		expect(t, p, "granted b")
	})
}

func TestPlacesInTheQueueAreTakenOver(t *testing.T) {
	tab, p := shut(), newProcess()
	queuedAt(t, tab, p, request("k", "new"), 40)
	for _, at := range []int64{30, 10, 20} {
		queuedAt(t, tab, p, request("k", string(rune('a'+at/10))), at)
	}
	tab.Open()
	for _, want := range []string{"b", "c", "d", "new"} {
		expect(t, p, "granted "+want)
		must(t, tab.Release(&driver.Grant{Key: "k", Token: want}))
	}
}

func TestFencesAreAboveTheLastOfTheTableBefore(t *testing.T) {
	tab, p := shut(), newProcess()
	const last, restored = 1 << 51, 1 << 52
	tab.Raise(last)
	tab.Raise(1)
	if _, err := tab.Restore(held("other", "r", restored, 0), p.Owner); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Restore(held("old", "o", 1, 0), p.Owner); err != nil {
		t.Fatal(err)
	}
	tab.Open()
	if g := granted(t, tab, p, request("k", "a")); g.Fence <= restored || g.Fence != tab.HighestFence() {
		t.Errorf("fence %d, highest %d; want more than %d", g.Fence, tab.HighestFence(), uint64(restored))
	}
}

func TestAnAssertionIsRefused(t *testing.T) {
	for name, try := range map[string]func(*testing.T, *table.Table, *process) table.Lease{
		"when it has expired": func(*testing.T, *table.Table, *process) table.Lease {
			l := held("k", "a", 1, 0)
			l.Expires = time.Now()
			return l
		},
		"when it was released": func(_ *testing.T, tab *table.Table, _ *process) table.Lease {
			_ = tab.Release(&driver.Grant{Key: "k", Token: "a"})
			return held("k", "a", 1, 0)
		},
		"when another has its slot with a higher fence": func(t *testing.T, tab *table.Table, p *process) table.Lease {
			t.Helper()
			if _, err := tab.Restore(held("k", "b", 2, 0), p.Owner); err != nil {
				t.Fatal(err)
			}
			return held("k", "a", 1, 0)
		},
		"when the table is open": func(_ *testing.T, tab *table.Table, _ *process) table.Lease {
			tab.Open()
			return held("k", "a", 1, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab, p := shut(), newProcess()
				defer tab.Close()
				if g, err := tab.Restore(try(t, tab, p), p.Owner); !errors.Is(err, driver.ErrLost) {
					t.Errorf("got %+v, %v; want ErrLost", g, err)
				}
			})
		})
	}
}

// A force must end every lease (L16), also one that its holder has not reported yet.
func TestATableThatIsShutRefusesAForce(t *testing.T) {
	tab, p := shut(), newProcess()
	first := func(n int) { t.Errorf("the force is answered with %d before its refusal", n) }
	if n, err := tab.Force("k", driver.Force{Reason: "test"}, first); n != 0 || !errors.Is(err, table.ErrShut) {
		t.Errorf("forced %d, %v; want ErrShut", n, err)
	}
	if _, err := tab.Restore(held("k", "a", 1, 0), p.Owner); err != nil {
		t.Fatal(err)
	}
	tab.Open()
	if n, err := tab.Force("k", driver.Force{Reason: "test"}, nil); n != 1 || err != nil {
		t.Errorf("forced %d, %v; want 1", n, err)
	}
	expect(t, p, "lost a")
}

func TestTheHigherFenceKeepsTheSlot(t *testing.T) {
	tab, stale, p := shut(), newProcess(), newProcess()
	if _, err := tab.Restore(held("pool", "old", 1, 2), stale.Owner); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Restore(held("pool", "new", 2, 2), p.Owner); err != nil {
		t.Fatal(err)
	}
	expect(t, stale, "lost old")
	s, _ := tab.Inspect("pool")
	if len(s.Holders) != 1 || s.Holders[0].Fence != 2 || s.Holders[0].Slot != 2 {
		t.Errorf("holders %+v", s.Holders)
	}
	tab.Drop(stale.Owner)
	if g, err := tab.Restore(held("pool", "old", 3, 2), p.Owner); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a lease that has lost its slot comes back: %+v, %v", g, err)
	}
	must(t, tab.Release(&driver.Grant{Key: "pool", Token: "new"}))
}

// A look at a key of a shut table, which has waiters and no holders, leaves the
// waiters in the queue (L23).
func TestALookAtAShutTableKeepsItsWaiters(t *testing.T) {
	tab, p := shut(), newProcess()
	queuedAt(t, tab, p, request("k", "a"), 0)
	if s, err := tab.Inspect("k"); err != nil || len(s.Waiters) != 1 {
		t.Errorf("%d waiters, %v; want 1", len(s.Waiters), err)
	}
	if _, err := tab.Renew(&driver.Grant{Key: "k", Token: "other"}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal of nothing returns %v", err)
	}
	tab.Open()
	expect(t, p, "granted a")
}

// A lease that expires before the table opens leaves a free key, which is granted
// to a request that does not wait (L20).
func TestAKeyThatExpiresInAShutTableIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, p := shut(), newProcess()
		defer tab.Close()
		if _, err := tab.Restore(held("k", "old", 1, 0), p.Owner); err != nil {
			t.Fatal(err)
		}
		hasty := request("k", "hasty")
		hasty.Wait = 0
		queuedAt(t, tab, p, hasty, 0)
		time.Sleep(5 * time.Second)
		tab.Open()
		expect(t, p, "granted hasty")
	})
}

func TestARunBeginsInAnOpenTableOnly(t *testing.T) { // O1: a newer run may not be reported yet
	tab, p := shut(), newProcess()
	g, err := tab.Restore(held("k", "a", 1, 0), p.Owner)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := tab.Begin(&g, time.Minute, true); !errors.Is(err, table.ErrShut) {
		t.Errorf("a run began with %v, want ErrShut", err)
	}
	tab.Open()
	if run, _, err := tab.Begin(&g, time.Minute, true); err != nil || !run.Due {
		t.Errorf("due: %v, %v", run.Due, err)
	}
}

// Of the records that other tables report, the one of the last run stays, with its
// outcome if any of them has it (O1, O4).
func TestTheRecordOfTheLastRunIsKept(t *testing.T) {
	record := func(fence uint64, outcome driver.Outcome) *table.Record {
		return &table.Record{Key: "k", Run: driver.Run{Every: time.Hour, Fence: fence, Outcome: outcome}}
	}
	for name, all := range map[string][]*table.Record{
		"the newer one comes last":  {record(1, driver.Done), record(2, ""), record(2, driver.Failed)},
		"the newer one comes first": {record(2, driver.Failed), record(2, ""), record(1, driver.Done)},
		"in between":                {record(2, ""), record(2, driver.Failed), record(1, "")},
		"twice":                     {record(2, driver.Failed), record(2, driver.Done)},
	} {
		t.Run(name, func(t *testing.T) {
			tab := shut()
			if r := tab.Run("k"); r != nil {
				t.Errorf("an empty table has the record %+v", r)
			}
			for _, r := range all {
				tab.RestoreRun(r)
			}
			tab.Open()
			kept := tab.Run("k")
			if kept == nil || kept.Run.Fence != 2 || kept.Run.Outcome != driver.Failed {
				t.Fatalf("kept %+v", kept)
			}
			if every := tab.Runs(); len(every) != 1 || every[0].Key != "k" || every[0].Run != kept.Run {
				t.Errorf("all records are %+v, want %+v", every, kept)
			}
		})
	}
}

// Of the copies of a record that all processes report, the first one is news.
func TestARecordIsNewsOnce(t *testing.T) {
	tab := shut()
	for _, x := range []struct {
		fence   uint64
		outcome driver.Outcome
		news    bool
	}{
		{2, "", true}, {2, "", false}, {2, driver.Failed, true}, {2, driver.Failed, false}, {2, "", false}, {1, driver.Done, false}, {3, "", true}, {4, "", true},
	} {
		r := &table.Record{Key: "k", Run: driver.Run{Every: time.Hour, Fence: x.fence, Outcome: x.outcome}}
		if news := tab.RestoreRun(r); news != x.news {
			t.Errorf("the run of fence %d with outcome %q: news %v", x.fence, x.outcome, news)
		}
	}
}

func TestEachRequestThatDoesNotWaitIsRefusedWhenTheTableOpens(t *testing.T) {
	tab, p := shut(), newProcess()
	if _, err := tab.Restore(held("k", "holder", 1, 0), p.Owner); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"a", "waits", "b", "c"} {
		r := pooled(request("k", token), 1)
		if token != "waits" {
			r.Wait = 0
		}
		queuedAt(t, tab, p, r, 0)
	}
	tab.Open()
	expect(t, p, "refused a", "refused b", "refused c")
	must(t, tab.Release(&driver.Grant{Key: "k", Token: "holder"}))
	expect(t, p, "granted waits")
}

// A restored slot is held, and rests when its holder does not hand it back (P6).
func TestARestoredSlotIsHeldAndRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, p := shut(), newProcess()
		defer tab.Close()
		states := func(token string) driver.Request {
			r := pooled(request("pool", token), 2)
			r.Wait, r.Pool = 0, &driver.Pool{Prefer: -1, Avoid: -1, Quarantine: time.Minute}
			return r
		}
		for i, token := range []string{"loser", "a"} { // a has the higher fence
			l := held("pool", token, uint64(i+1), 0)
			l.Pool, l.Slots = states(token).Pool, 2
			l.Holder.Host = token
			if _, err := tab.Restore(l, p.Owner); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := tab.Inspect("pool"); err != nil || s.Slots[0].Status != driver.SlotHeld || s.Slots[0].LastHolder != s.Holders[0].Holder {
			t.Errorf("restored %+v, %v", s, err)
		}
		tab.Open()
		expect(t, p, "lost loser")
		if g := granted(t, tab, p, states("b")); g.Slot != 1 || g.Found == nil || g.Found.Left.Why != driver.LeftUnknown {
			t.Errorf("got slot %d, %+v", g.Slot, g.Found)
		}
		time.Sleep(5 * time.Second) // a has expired
		s, err := tab.Inspect("pool")
		if err != nil || s.Slots[0].Status != driver.SlotResting || !s.Slots[0].Until.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("slot 0 is %+v, %v", s.Slots[0], err)
		}
	})
}

// The newest grant decides how long the slots rest, in any order of the reports (P6).
func TestTheNewestQuarantineIsTakenOver(t *testing.T) {
	older, newer := held("pool", "older", 1, 0), held("pool", "newer", 2, 1)
	older.Pool = &driver.Pool{Prefer: -1, Avoid: -1, Quarantine: time.Hour}
	newer.Pool = &driver.Pool{Prefer: -1, Avoid: -1, Quarantine: time.Minute}
	for _, order := range [][]table.Lease{{older, newer}, {newer, older}} {
		synctest.Test(t, func(t *testing.T) {
			tab, p := shut(), newProcess()
			defer tab.Close()
			for _, l := range order {
				l.Expires = time.Now().Add(5 * time.Second)
				if _, err := tab.Restore(l, p.Owner); err != nil {
					t.Fatal(err)
				}
			}
			tab.Open()
			time.Sleep(5 * time.Second) // both have expired
			s, err := tab.Inspect("pool")
			if err != nil || s.Slots[0].Status != driver.SlotResting || !s.Slots[0].Until.Equal(time.Now().Add(time.Minute)) {
				t.Errorf("after %s: %+v, %v", order[0].Grant.Token, s.Slots, err)
			}
		})
	}
}

// A pool that was unused between two reports keeps its withdrawn slots like any other
// (P8).
func TestAPoolThatIsReportedAgainKeepsItsWithdrawnSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, p := shut(), newProcess()
		defer tab.Close()
		for slot, token := range []string{"a", "b"} {
			l := held("pool", token, uint64(slot+1), slot)
			l.Pool = &driver.Pool{Prefer: -1, Avoid: -1}
			if _, err := tab.Restore(l, p.Owner); err != nil {
				t.Fatal(err)
			}
			status := driver.SlotFree
			if slot == 1 {
				status = driver.SlotWithdrawn
			}
			must(t, tab.Release(&driver.Grant{Key: "pool", Token: token, Handback: &driver.Handback{Status: status}}))
		}
		tab.Open()
		time.Sleep(2 * driver.PoolMemory)
		s, err := tab.Inspect("pool")
		if err != nil || len(s.Slots) != 4 || s.Slots[1].Status != driver.SlotWithdrawn {
			t.Errorf("%+v, %v, want slot 1 withdrawn", s.Slots, err)
		}
	})
}

// A restored grant may be handed on with its next fences, which no other grant gets (L2).
func TestTheFencesOfARestoredGrantAreTaken(t *testing.T) {
	for reserved, last := range map[int]uint64{0: 1 << 52, 1: 1 << 52, 17: 1<<52 + 16} {
		tab, p := shut(), newProcess()
		l := held("k", "a", 1<<52, 0)
		l.Grant.Fences = reserved
		if _, err := tab.Restore(l, p.Owner); err != nil {
			t.Fatal(err)
		}
		if got := tab.HighestFence(); got != last {
			t.Errorf("with %d fences the highest is %d, want %d", reserved, got, last)
		}
	}
}

// What a holder reports of its slot in words of a newer build does not show that
// the slot is clean (P10).
func TestASlotInAnUnknownStateIsDirty(t *testing.T) {
	tab, p := open(), newProcess()
	left := &driver.Leaving{Why: "polished"}
	for i, back := range []driver.Handback{{Status: "polished"}, {Status: "polished", Left: left}, {}, {Status: driver.SlotDirty}} {
		r := request("pool", string(rune('a'+i)))
		r.Pool = &driver.Pool{Prefer: -1, Avoid: -1}
		g := granted(t, tab, p, r)
		if g.Found.Left == nil || g.Found.Left.Why != driver.LeftUnknown {
			t.Errorf("grant %d found %+v", i, g.Found)
		}
		g.Handback = &back
		must(t, tab.Release(&g))
		if s, err := tab.Inspect("pool"); err != nil || s.Slots[0].Status != driver.SlotDirty {
			t.Errorf("after %+v the slots are %+v, %v", back, s.Slots, err)
		}
	}
}

// The order in which the processes report does not matter (L15).
func TestTheNewestSizeOfAPoolIsTakenOver(t *testing.T) {
	small, large := held("k", "small", 1, 0), held("k", "large", 2, 2)
	small.Slots, large.Slots = 1, 3
	for _, order := range [][]table.Lease{{small, large}, {large, small}} {
		tab, p := shut(), newProcess()
		for _, l := range order {
			if _, err := tab.Restore(l, p.Owner); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := tab.Inspect("k"); err != nil || s.Size != 3 || len(s.Holders) != 2 {
			t.Errorf("after %s: %+v, %v", order[0].Grant.Token, s, err)
		}
		r := request("k", "waiter")
		r.Slots = 2
		queuedAt(t, tab, p, r, 10)
		earlier := r
		earlier.Token, earlier.Slots = "earlier", 3
		queuedAt(t, tab, p, earlier, 5)
		late := held("k", "late", 3, 1)
		late.Slots = 3
		if _, err := tab.Restore(late, p.Owner); err != nil {
			t.Fatal(err)
		}
		if s, err := tab.Inspect("k"); err != nil || s.Size != 2 {
			t.Errorf("with waiters: %+v, %v", s, err)
		}
	}
}

func TestALeaseThatTheTableStillHasGetsItsNewOwner(t *testing.T) {
	tab, before, after := open(), newProcess(), newProcess()
	g := granted(t, tab, before, request("k", "a"))
	tab.Disown(before.Owner)
	if again, err := tab.Restore(held("k", "a", g.Fence, 0), after.Owner); err != nil || again.Fence != g.Fence {
		t.Fatalf("got %+v, %v", again, err)
	}
	tab.Drop(after.Owner)
	granted(t, tab, before, request("k", "b"))
}

func shut() *table.Table { return table.New(table.Config{Now: time.Now, Shut: true}) }

func held(key, token string, fence uint64, slot int) table.Lease {
	return table.Lease{
		Grant:   driver.Grant{Key: key, Token: token, Fence: fence, Fences: 1, Slot: slot, TTL: 10 * time.Second},
		Slots:   4,
		Expires: time.Now().Add(5 * time.Second),
	}
}
