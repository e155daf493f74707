package cluster

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/internal/routes"
)

// wish is the interest of a peer in a kind, a pattern and a group. What is
// routed to it, its process hands to its subscriptions, or to one of them if
// there is a group.
type wish struct {
	peer    *Peer
	number  uint64 // the peer's own
	kind    driver.Kind
	pattern string
	group   string
	members atomic.Int64
	ended   atomic.Bool // set under the peer's bus.mu
}

// route is who gets the messages of one subject.
type route struct {
	plain  []plainTarget // each of these
	groups []crowd       // and one of each of these
}

// plainTarget is a peer with interests without a group.
type plainTarget struct {
	peer   *Peer
	wishes []*wish
}

// crowd is a group: the peers that have members of it.
type crowd []*wish

type hubTable = routes.Table[*wish, route]

func newHubTable() *hubTable {
	return routes.New(func(_ string, each []*wish, groups [][]*wish) route {
		r := route{plain: byPeer(each)}
		for _, g := range groups {
			r.groups = append(r.groups, g)
		}
		return r
	})
}

func byPeer(wishes []*wish) (targets []plainTarget) {
	at := map[*Peer]int{}
	for _, w := range wishes {
		i, known := at[w.peer]
		if !known {
			i = len(targets)
			at[w.peer] = i
			targets = append(targets, plainTarget{peer: w.peer})
		}
		targets[i].wishes = append(targets[i].wishes, w)
	}
	return targets
}

// choose returns the one that is to serve a message for the group, or nil if
// nobody is left but the peer not. Of two that are drawn by the number of their
// members it is the one with less to do, so that a process which stands still
// gets nothing more as soon as that can be seen. A peer that takes no messages
// at the moment is chosen only if all are like that.
func (c crowd) choose(not *Peer) crowd {
	if len(c) == 1 && c[0].peer != not && !c[0].ended.Load() {
		return c[:1:1] // it is shared, and who gets it may append
	}
	for _, evenFull := range []bool{false, true} {
		a := c.draw(not, nil, evenFull)
		if a < 0 {
			continue
		}
		if b := c.draw(not, c[a], evenFull); b >= 0 && c[b].load() < c[a].load() {
			a = b
		}
		return c[a : a+1 : a+1]
	}
	return nil
}

// load is what the peer has to do for each of its members: requests that it has
// not answered, or bytes that wait for it.
func (w *wish) load() int64 {
	if w.kind == driver.Request {
		return w.peer.bus.owes.Load() / w.members.Load()
	}
	return int64(w.peer.line.Backlog()) / w.members.Load()
}

// draw returns where one is, or -1 if there is none: neither of the peer not,
// nor other. Each member is as likely.
func (c crowd) draw(not *Peer, other *wish, evenFull bool) (at int) {
	able := func(w *wish) bool {
		return w != other && w.peer != not && !w.ended.Load() && (evenFull || !w.peer.bus.full.Load())
	}
	total := int64(0)
	for _, w := range c {
		if able(w) {
			total += w.members.Load()
		}
	}
	at = -1
	if total == 0 {
		return at
	}
	number := rand.Int64N(total)
	for i, w := range c {
		if !able(w) { // which may be new
			continue
		}
		at = i
		if number -= w.members.Load(); number < 0 {
			break
		}
	}
	return at
}

// of returns the crowd of a group, or nil.
func (r *route) of(pattern, group string) crowd {
	for _, c := range r.groups {
		if c[0].pattern == pattern && c[0].group == group {
			return c
		}
	}
	return nil
}
