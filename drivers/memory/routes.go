package memory

import (
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

// deliver passes m to one member.
func (g group) deliver(m *driver.Message) bool {
	return routes.ToOne(g, (*registration).load, func(r *registration) bool { return r.Sink.Deliver(*m) })
}

func (r *registration) load() int { return r.Sink.Load() }
