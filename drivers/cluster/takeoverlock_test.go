//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// A process that is the hub ends in order while another one releases: the work of
// the other one is done, and its Release returns nil (L5).
func TestReleaseWhileTheHubLeavesIsNoLoss(t *testing.T) {
	c := newCourt(t, 10*time.Second)
	for range suite.Scaled(8) {
		all := []*proc{c.come(false), c.come(false)}
		hub := c.hub(all)
		other := all[0]
		if hub == other {
			other = all[1]
		}
		// It takes and gives all the time; each error of Release is a line.
		other.tell("churn k")
		for len(other.lines) == 0 {
			time.Sleep(time.Millisecond)
		}
		hub.leave()
		other.tell("rest k")
		for line := other.says("churned"); line != "churned end"; line = other.says("churned") {
			if line != "churned <nil>" {
				t.Errorf("Release: %s", strings.TrimPrefix(line, "churned "))
			}
		}
		other.leave()
	}
}

// A hub is away for longer than the TTL of a waiter. The waiter's grant counts
// from its request at the next hub: no grant without a holder blocks the key.
func TestAnOutageLongerThanTheTTLLeavesNoGhost(t *testing.T) {
	const ttl = 4 * time.Second // far longer than a take-over on a busy machine
	c := newCourt(t, ttl)
	all := []*proc{c.come(false), c.come(false)}
	hub := c.hub(all)
	waiter := all[0]
	if waiter == hub {
		waiter = all[1]
	}
	hub.tell("take k")
	hub.says("took k")
	waiter.tell("take k")
	c.queued([]*proc{hub, waiter})
	must(t, hub.Pause())
	time.Sleep(ttl + ttl/4) // until nothing of the hub can be held
	killed := map[string]int64{hub.name: c.kill(hub)}
	began := time.Now()
	waiter.says("took k")
	if took := time.Since(began); took > ttl*3/4 {
		t.Errorf("the key is taken %v after the end of the hub", took)
	}
	c.verify(killed)
}

// A waiter whose hub is silent knows nothing of the key: that is unavailable, and
// not busy (L21).
func TestAWaiterOfASilentHubIsNotBusy(t *testing.T) {
	hub, dial := hubChild(t)
	a, b := memberAt(t, dial), memberAt(t, dial)
	lease, err := a.Acquire(t.Context(), "k", lock.TTL(time.Minute))
	must(t, err)
	for name, opts := range map[string][]lock.Option{"in the local queue": nil, "in the hub's queue": {lock.FIFO()}} {
		failed := make(chan error, 1)
		go func() {
			_, err := b.Acquire(context.WithoutCancel(t.Context()), "k", append(opts, lock.Wait(4*time.Second))...)
			failed <- err
		}()
		eventually(t, "it to queue", func() bool { return len(stateOf(t, a, "k").Waiters) == 1 })
		must(t, hub.Pause())
		err := <-failed
		must(t, hub.Continue())
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, "it to leave the queue", func() bool { return len(stateOf(t, a, "k").Waiters) == 0 })
	}
	must(t, lease.Release())
}

// A process that is stopped while its question is answered does not take the hub
// for silent when it continues.
func TestAStoppedAskerFindsItsAnswer(t *testing.T) {
	c := newCourt(t, time.Minute)
	all := []*proc{c.come(false), c.come(false)}
	hub := c.hub(all)
	asker := all[0]
	if asker == hub {
		asker = all[1]
	}
	for try := 1; ; try++ {
		must(t, hub.Pause())
		asker.tell("try k")
		time.Sleep(200 * time.Millisecond) // until it has asked
		must(t, asker.Pause())
		must(t, hub.Continue())
		time.Sleep(driver.CallTimeout)
		must(t, asker.Continue())
		line := asker.says("tried k")
		if line == "tried k <nil>" {
			return
		}
		if try == 3 { // a hub that gets no processor is silent, but not always
			t.Fatal(line)
		}
	}
}

// Waiters keep their order over hubs that are killed: they ask again with the time
// of their first request.
func TestTheQueueKeepsItsOrderOverHubs(t *testing.T) {
	p := openPost(t)
	var all []locksOf
	open := func() locksOf {
		d, err := p.open()
		must(t, err)
		t.Cleanup(func() { _ = d.Close(context.Background()) })
		return d.(locksOf)
	}
	holder := open()
	request := driver.Request{Key: "k", Token: "holder", TTL: time.Minute, Slots: 1, Fences: 1}
	held, err := holder.Acquire(t.Context(), request)
	must(t, err)
	request.Wait = -1
	served := make(chan string, 10)
	for i := range 6 {
		d := open()
		all = append(all, d)
		request.Token = fmt.Sprint("waiter", i)
		_, wait, err := d.Ask(t.Context(), request)
		must(t, err)
		go func() {
			g, err := wait(context.WithoutCancel(t.Context()))
			if err == nil {
				served <- g.Token
				err = d.Release(context.WithoutCancel(t.Context()), g)
			}
			if err != nil {
				served <- err.Error()
			}
		}()
		if i == 2 || i == 5 {
			must(t, p.kill())
			must(t, p.restart())
		}
	}
	eventually(t, "all to queue again", func() bool {
		s, err := all[0].Inspect(t.Context(), "k")
		return err == nil && len(s.Waiters) == len(all)
	})
	must(t, holder.Release(t.Context(), held))
	var order []string
	for range all {
		order = append(order, <-served)
	}
	if !slices.IsSorted(order) {
		t.Errorf("served in the order %v", order)
	}
}
