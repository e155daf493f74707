package table

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// neighbours returns n keys of one shard.
func neighbours(tab *Table, n int) []string {
	keys := []string{"k0"}
	for i := 1; len(keys) < n; i++ {
		if key := "k" + strconv.Itoa(i); tab.shard(key) == tab.shard(keys[0]) {
			keys = append(keys, key)
		}
	}
	return keys
}

func grantFor(t *testing.T, tab *Table, r driver.Request) driver.Grant {
	t.Helper()
	r.Slots = max(r.Slots, 1)
	g, wait, err := tab.Request(&r)
	if err != nil || wait != nil {
		t.Fatalf("request %q: queued: %v, %v; want a grant", r.Key, wait != nil, err)
	}
	return g
}

// What nobody uses any more is removed by the timer of its shard, without any call
// (L18): each grant, token and record within slack of its own end.
func TestEachExpiryIsSweptByItself(t *testing.T) {
	for name, c := range map[string]struct {
		add  func(t *testing.T, tab *Table, key string, life time.Duration) // of something that stays for life
		left func(tab *Table) int
	}{
		"grants": {
			func(t *testing.T, tab *Table, key string, life time.Duration) {
				grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: life})
			}, keysOf,
		},
		"grants with a shorter life": {
			func(t *testing.T, tab *Table, key string, life time.Duration) {
				g := grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: time.Hour})
				g.Rev, g.TTL = 1, life
				if _, err := tab.Renew(&g); err != nil {
					t.Fatal(err)
				}
			}, keysOf,
		},
		"grants after a wait": {
			func(t *testing.T, tab *Table, key string, life time.Duration) {
				grantFor(t, tab, driver.Request{Key: key, Token: "holder", TTL: time.Hour})
				r := driver.Request{Key: key, Token: key, TTL: life, Slots: 1, Wait: -1}
				if _, wait, err := tab.Ask(&r, NewOwner(func(Event) {}), 0); !wait || err != nil {
					t.Fatal(wait, err)
				}
				if err := tab.Release(&driver.Grant{Key: key, Token: "holder"}); err != nil {
					t.Fatal(err)
				}
			}, keysOf,
		},
		"slots": {
			func(t *testing.T, tab *Table, key string, life time.Duration) {
				grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: life - driver.PoolMemory, Pool: &driver.Pool{Prefer: -1, Avoid: -1}})
			}, keysOf,
		},
		"healed slots": {
			func(t *testing.T, tab *Table, key string, life time.Duration) {
				g := grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: time.Minute, Pool: &driver.Pool{Prefer: -1, Avoid: -1}})
				g.Handback = &driver.Handback{Status: driver.SlotWithdrawn}
				if err := tab.Release(&g); err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(life-driver.PoolMemory, func() { _ = tab.Heal(key, 0, driver.Holder{}) })
			}, keysOf,
		},
		"cooldowns": {
			func(t *testing.T, tab *Table, key string, life time.Duration) {
				g := grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: time.Hour})
				g.Rev, g.Rest = 1, life
				if err := tab.Rest(&g); err != nil {
					t.Fatal(err)
				}
			}, keysOf,
		},
		"restored grants": {
			func(t *testing.T, tab *Table, key string, life time.Duration) {
				g := driver.Grant{Key: key, Token: key, Fence: 1, Fences: 1, TTL: life}
				if _, err := tab.Restore(Lease{Grant: g, Slots: 1, Expires: time.Now().Add(life)}, NewOwner(func(Event) {})); err != nil {
					t.Fatal(err)
				}
			}, keysOf,
		},
		"records of runs": {
			func(_ *testing.T, tab *Table, key string, life time.Duration) {
				tab.RestoreRun(&Record{Key: key, Run: driver.Run{Every: life / 2}})
			}, func(tab *Table) int { return len(tab.Runs()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := New(Config{Now: time.Now, Shut: name == "restored grants"})
				defer tab.Close()
				const each = 5
				keys := neighbours(tab, 3*each)
				for i, key := range keys { // in the order of 3, 1 and 2
					c.add(t, tab, key, time.Duration((i+2)%3+1)*10*time.Minute)
				}
				time.Sleep(3 * slack) // an expired slot is kept from when it was swept
				for n := 3; n > 0; n-- {
					if left := c.left(tab); left != n*each {
						t.Fatalf("%d are left, want %d", left, n*each)
					}
					time.Sleep(10 * time.Minute)
				}
				if left := c.left(tab); left != 0 {
					t.Errorf("%d are left at the end", left)
				}
				if _, _, timers := tab.Size(); timers != 0 {
					t.Errorf("%d timers are left", timers)
				}
			})
		})
	}
}

func keysOf(tab *Table) int {
	keys, _, _ := tab.Size()
	return keys
}

// The same for tokens that must not be used again, by a release or a force.
func TestEachTokenIsForgottenAfterAMinute(t *testing.T) {
	for name, bar := range map[string]func(t *testing.T, tab *Table, key string){
		"released before its request": func(t *testing.T, tab *Table, key string) {
			if err := tab.Release(&driver.Grant{Key: key, Token: key}); err == nil {
				t.Fatal("a release of nothing is no error")
			}
		},
		"forced": func(t *testing.T, tab *Table, key string) {
			grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: time.Hour})
			if n, err := tab.Force(key, driver.Force{Reason: "test"}, nil); n != 1 || err != nil {
				t.Fatalf("forced %d, %v", n, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := New(Config{Now: time.Now})
				defer tab.Close()
				keys := neighbours(tab, 2)
				s := tab.shard(keys[0])
				for _, key := range keys {
					bar(t, tab, key)
					time.Sleep(remembered / 2)
				}
				for n := 2; n > 0; n-- {
					s.mu.Lock()
					order, why := len(s.gone.order), len(s.gone.why)
					s.mu.Unlock()
					if order != n || why != n {
						t.Errorf("%d tokens are kept for %d, want %d", why, order, n)
					}
					time.Sleep(slack)
					if n == 2 {
						time.Sleep(remembered/2 - slack)
					}
				}
				time.Sleep(slack)
				if _, gone, timers := tab.Size(); gone != 0 || timers != 0 {
					t.Errorf("%d tokens and %d timers are left", gone, timers)
				}
			})
		})
	}
}

func TestAShrinkingShardKeepsItsHolders(t *testing.T) {
	tab := New(Config{Now: time.Now})
	keys := neighbours(tab, 8*(spares+roomy))
	for _, key := range keys {
		grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: time.Minute})
	}
	s := tab.shard(keys[0])
	peak := s.peak
	last := keys[len(keys)-1]
	for _, key := range keys[:len(keys)-1] {
		if err := tab.Release(&driver.Grant{Key: key, Token: key}); err != nil {
			t.Fatalf("release %q: %v", key, err)
		}
	}
	if s.peak == peak {
		t.Fatal("the shard has not shrunk")
	}
	if err := tab.Release(&driver.Grant{Key: last, Token: last}); err != nil {
		t.Errorf("the last holder has lost its lock: %v", err)
	}
}

// An expired key is not listed, although the sweeper has not come yet.
func TestNoUnusedKeyIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := New(Config{Now: time.Now})
		defer tab.Close()
		for _, key := range neighbours(tab, 3*spares) {
			grantFor(t, tab, driver.Request{Key: key, Token: key, TTL: time.Second})
		}
		time.Sleep(time.Second)
		if states, err := tab.List(""); err != nil || len(states) != 0 {
			t.Errorf("listed %d, %v; want none", len(states), err)
		}
	})
}

// A table finds the tickets of a long queue by an index, which it makes when the
// queue has become long.
func TestEachWaiterOfALongQueueIsFoundByItsToken(t *testing.T) {
	tab, o := New(Config{Now: time.Now}), NewOwner(func(Event) {})
	for i := range 3 * indexed {
		r := driver.Request{Key: "k", Token: strconv.Itoa(i), TTL: time.Minute, Slots: 2, Wait: -1}
		for range 2 { // L6: the repeated request is the same one
			if _, _, err := tab.Ask(&r, o, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := tab.Inspect("k")
	if got := fmt.Sprint(len(s.Holders), len(s.Waiters)); err != nil || got != fmt.Sprint(2, 3*indexed-2) {
		t.Fatalf("holders and waiters: %s, %v", got, err)
	}
	for i := range 3 * indexed {
		if err := tab.Release(&driver.Grant{Key: "k", Token: strconv.Itoa(i)}); err != nil {
			t.Errorf("release %d: %v", i, err)
		}
	}
	if keys, gone, _ := tab.Size(); keys != 0 || gone != 0 {
		t.Errorf("left %d keys, %d tokens", keys, gone)
	}
}
