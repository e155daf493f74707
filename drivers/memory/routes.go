package memory

import (
	"math/rand/v2"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/internal/routes"
)

// table holds the subscriptions of one kind.
type table = routes.Table[*registration, plan]

func newTable() *table {
	return routes.New(func(_ string, each []*registration, groups [][]*registration) plan {
		p := plan{each: each}
		for _, g := range groups {
			p.groups = append(p.groups, g)
		}
		return p
	})
}

// plan holds the receivers of the messages of one subject.
type plan struct {
	each   []*registration // each of these
	groups []group         // and one member of each group
}

// deliver passes m to the subscriptions that match, and returns how many
// accepted it.
func (p *plan) deliver(m *driver.Message) (taken int) {
	for _, r := range p.each {
		if r.Sink.Deliver(*m) {
			taken++
		}
	}
	for _, g := range p.groups {
		if g.deliver(m) {
			taken++
		}
	}
	return taken
}

// group holds the members of a group.
type group []*registration

// deliver passes m to one member: to the less busy of two that are chosen at
// random, or to any other if both are leaving.
func (g group) deliver(m *driver.Message) bool {
	if len(g) == 1 {
		return g[0].Sink.Deliver(*m)
	}
	a := rand.IntN(len(g))
	b := (a + 1 + rand.IntN(len(g)-1)) % len(g)
	if g[b].Sink.Load() < g[a].Sink.Load() {
		a = b
	}
	for n := range g {
		if g[(a+n)%len(g)].Sink.Deliver(*m) { // S11
			return true
		}
	}
	return false
}
