package table

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// The timer of an entry may have fired, and wait for the shard, when the entry is
// removed. It must not remove the next entry of the key, which has a holder (L1).
func TestALateTimerOfARemovedEntryEndsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := New(Config{})
		defer tab.Close()
		keys := neighbours(tab, spares+2)
		s := tab.shard(keys[0])
		grantFor(t, tab, driver.Request{Key: keys[0], Token: "first", TTL: time.Minute})
		e := s.entries[keys[0]]
		generation := e.generation
		for _, key := range keys[1:] { // these take its place among the kept ones
			grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: time.Hour})
		}
		if err := tab.Release(&driver.Grant{Key: keys[0], Token: "first"}); err != nil {
			t.Fatal(err)
		}
		if s.entries[keys[0]] != nil {
			t.Fatal("the entry is kept")
		}
		grantFor(t, tab, driver.Request{Key: keys[0], Token: "second", TTL: time.Hour})
		s.expire(e, generation)
		r := driver.Request{Key: keys[0], Token: "third", TTL: time.Minute, Slots: 1}
		if g, _, err := tab.Request(&r); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("got %+v, %v beside a live grant", g, err)
		}
	})
}

// The index of a busy key has its holders and waiters, and nobody who has left (L18).
func TestTheIndexOfABusyKeyForgetsThoseThatLeave(t *testing.T) {
	tab := New(Config{})
	defer tab.Close()
	o := NewOwner(func(Event) {})
	var last driver.Grant
	for i := range 10 * indexed {
		token := fmt.Sprint(i)
		r := driver.Request{Key: "k", Token: token, TTL: time.Minute, Slots: indexed / 2, Wait: -1}
		g, wait, err := tab.Ask(&r, o, int64(i))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !wait:
			last = g
		case i%3 == 0:
			if _, err := tab.Leave("k", token); !errors.Is(err, driver.ErrNotAcquired) {
				t.Fatal(err)
			}
		case i%3 == 1:
			if err := tab.Release(&driver.Grant{Key: "k", Token: token}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tab.Release(&last); err != nil { // and the next waiter is granted
		t.Fatal(err)
	}
	if e := tab.shard("k").entries["k"]; len(e.index) != e.held+e.queue.len {
		t.Errorf("the index has %d tickets of %d", len(e.index), e.held+e.queue.len)
	}
}
