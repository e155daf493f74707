package hub

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/internal/routes"
)

// wish is the subscription of a client to a kind, a pattern and a group. The
// client's process passes a message for it to its own subscriptions, or to one
// of them if there is a group.
type wish struct {
	peer    *Client
	number  uint64 // the client's number of the wish
	kind    driver.Kind
	pattern string
	group   string
	members atomic.Int64
	ended   atomic.Bool // set under the client's bus.mu
}

// route lists the receivers of the messages of one subject.
type route struct {
	plain  []plainTarget // all of these receive the message
	groups []crowd       // one wish of each group receives it
}

// plainTarget is a client with wishes without a group.
type plainTarget struct {
	peer   *Client
	wishes []*wish
}

// crowd is a group: its wishes, one for each client with members in it.
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
	at := map[*Client]int{}
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

// choose returns the wish that serves a message for the group, or nil if only
// the client not is left. It draws two, weighted by the number of their
// members, and takes the one with less load. A process that stands still
// therefore gets no further message as soon as its load shows it. A client that
// takes no messages at the moment is chosen only if all others are in the same
// state.
func (c crowd) choose(not *Client) crowd {
	if len(c) == 1 && c[0].peer != not && !c[0].ended.Load() {
		return c[:1:1] // the slice is shared, and the caller may append to it
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

// load returns the load of the client for each of its members: its unanswered
// requests, or the bytes that wait for it.
func (w *wish) load() int64 {
	if w.kind == driver.Request {
		return w.peer.bus.owes.Load() / w.members.Load()
	}
	return int64(w.peer.line.Backlog()) / w.members.Load()
}

// draw returns a random index, or -1 if there is none. It excludes the wishes
// of the client not, and other. Each member has the same probability.
func (c crowd) draw(not *Client, other *wish, evenFull bool) (at int) {
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
		if !able(w) { // the state may have changed since
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
