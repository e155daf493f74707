package hub

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/internal/routes"
)

// registration is the subscription of a client to a kind, a pattern and a
// group. The client's process passes a message for it to its own subscriptions,
// or to one of them if there is a group.
type registration struct {
	groupKey
	client  *Client
	number  uint64 // the client's number of the registration
	members atomic.Int64
	ended   atomic.Bool // set under the client's bus.mu
}

// groupKey identifies a group.
type groupKey struct {
	kind           driver.Kind
	pattern, group string
}

// route lists the receivers of the messages of one subject.
type route struct {
	plain  []plainTarget // all of these receive the message
	groups []group       // one registration of each group receives it
}

// plainTarget is a client with registrations without a group.
type plainTarget struct {
	client        *Client
	registrations []*registration
}

// group is the registrations of a group, one for each client with subscriptions
// in it.
type group []*registration

type hubTable = routes.Table[*registration, route]

func newHubTable() *hubTable {
	return routes.New(func(_ string, each []*registration, groups [][]*registration) route {
		r := route{plain: byClient(each)}
		for _, g := range groups {
			r.groups = append(r.groups, g)
		}
		return r
	})
}

func byClient(registrations []*registration) (targets []plainTarget) {
	at := map[*Client]int{}
	for _, r := range registrations {
		i, known := at[r.client]
		if !known {
			i = len(targets)
			at[r.client] = i
			targets = append(targets, plainTarget{client: r.client})
		}
		targets[i].registrations = append(targets[i].registrations, r)
	}
	return targets
}

// choose returns the registration that serves a message for the group, or nil
// if only the client except is left. It draws two, weighted by the number of
// their subscriptions, and takes the one with less load. A process that stands
// still therefore gets no further message as soon as its load shows it. A
// client that takes no messages at the moment is chosen only if all others are
// in the same state.
func (g group) choose(except *Client) group {
	if len(g) == 1 && g[0].client != except && !g[0].ended.Load() {
		return g[:1:1] // the slice is shared, and the caller may append to it
	}
	for _, evenFull := range []bool{false, true} {
		a := g.draw(except, nil, evenFull)
		if a < 0 {
			continue
		}
		if b := g.draw(except, g[a], evenFull); b >= 0 && g[b].load() < g[a].load() {
			a = b
		}
		return g[a : a+1 : a+1]
	}
	return nil
}

// load returns the load of the client for each of its subscriptions: its
// unanswered requests, or the bytes that wait for it.
func (r *registration) load() int64 {
	if r.kind == driver.Request {
		return r.client.bus.unanswered.Load() / r.members.Load()
	}
	return int64(r.client.line.Backlog()) / r.members.Load()
}

// draw returns a random index, or -1 if there is none. It excludes the
// registrations of the client except, and other. Each subscription has the same
// probability.
func (g group) draw(except *Client, other *registration, evenFull bool) (at int) {
	able := func(r *registration) bool {
		return r != other && r.client != except && !r.ended.Load() && (evenFull || !r.client.bus.full.Load())
	}
	total := int64(0)
	for _, r := range g {
		if able(r) {
			total += r.members.Load()
		}
	}
	at = -1
	if total == 0 {
		return at
	}
	number := rand.Int64N(total)
	for i, r := range g {
		if !able(r) { // the state may have changed since
			continue
		}
		at = i
		if number -= r.members.Load(); number < 0 {
			break
		}
	}
	return at
}

// of returns the group with the key, whose kind is the route's, or nil.
func (r *route) of(key groupKey) group {
	for _, g := range r.groups {
		if g[0].groupKey == key {
			return g
		}
	}
	return nil
}
