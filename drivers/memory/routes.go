package memory

import (
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/internal/routes"
)

// table holds the subscriptions of one kind.
type table = routes.Table[*registration, plan]

func newTable() *table {
	return routes.New(func(_ string, each []*registration, groups [][]*registration) plan {
		return plan{each, groups}
	})
}

// plan holds the receivers of the messages of one subject.
type plan struct {
	each   []*registration   // each of these
	groups [][]*registration // and one member of each group
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
		if routes.ToOne(g, (*registration).load, func(r *registration) bool { return r.Sink.Deliver(*m) }) {
			taken++
		}
	}
	return taken
}

func (r *registration) load() int { return r.Sink.Load() }
