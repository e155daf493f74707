package table

import (
	"strconv"
	"testing"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

func TestUnusedKeysDoNotAddUp(t *testing.T) {
	tab := New(Config{Now: time.Now})
	for i := range 10_000 {
		cycle(t, tab, "k"+strconv.Itoa(i), 1)
	}
	stored := 0
	for i := range tab.shards {
		stored += len(tab.shards[i].entries)
	}
	if keys, _, _ := tab.Size(); keys != 0 || stored > spares*shardCount {
		t.Errorf("%d keys are in use and %d are stored, want 0 and at most %d", keys, stored, spares*shardCount)
	}
}

func TestUnusedTicketsDoNotAddUp(t *testing.T) {
	tab := New(Config{Now: time.Now})
	keys := neighbours(tab, 10*spares)
	for _, key := range keys {
		grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: time.Minute})
	}
	for _, key := range keys {
		if err := tab.Release(&driver.Grant{Key: key, Token: key}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(tab.shard(keys[0]).spareTickets); n != spares {
		t.Errorf("%d tickets are stored, want %d", n, spares)
	}
}

func TestAClosedTableArmsNoTimer(t *testing.T) {
	tab := New(Config{Now: time.Now})
	tab.Close()
	_ = tab.Release(&driver.Grant{Key: "k", Token: "stray"})
	if _, _, timers := tab.Size(); timers != 0 || tab.shard("k").sweeper != nil {
		t.Errorf("%d timers are armed", timers)
	}
}

func TestAKeyThatWasFreeIsNotResized(t *testing.T) {
	tab := New(Config{Now: time.Now})
	cycle(t, tab, "k", 3)
	if g := cycle(t, tab, "k", 1); g.Resized != 0 {
		t.Errorf("the grant says that the pool had size %d", g.Resized)
	}
}

// cycle gets a slot of the key and releases it.
func cycle(t *testing.T, tab *Table, key string, slots int) driver.Grant {
	t.Helper()
	g, _, err := tab.Request(&driver.Request{Key: key, Token: "t", TTL: time.Minute, Slots: slots})
	if err == nil {
		err = tab.Release(&driver.Grant{Key: key, Token: "t"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}
