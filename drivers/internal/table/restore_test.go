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
	if _, err := tab.Restore(held("other", "r", restored, 0), p.Owner); err != nil {
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
			tab, p := shut(), newProcess()
			if g, err := tab.Restore(try(t, tab, p), p.Owner); !errors.Is(err, driver.ErrLost) {
				t.Errorf("got %+v, %v; want ErrLost", g, err)
			}
		})
	}
}

// A force must end every lease (L16), also one that its holder has not reported yet.
func TestATableThatIsShutRefusesAForce(t *testing.T) {
	tab, p := shut(), newProcess()
	if n, err := tab.Force("k", driver.Force{Reason: "test"}, nil); n != 0 || !errors.Is(err, table.ErrShut) {
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
