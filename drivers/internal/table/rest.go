package table

import (
	"github.com/megaframework/mega/lock/driver"
)

// Rest implements Release of [driver.Driver] for a grant with Rest: the key
// stays taken, and the grant does not end with its process any more. The process
// still learns of a force.
func (t *Table) Rest(g *driver.Grant) error {
	return t.shard(g.Key).rest(g, t.clock.now())
}

func (s *shard) rest(g *driver.Grant, now instant) error {
	s.mu.Lock()
	defer s.unlock()
	t, err := s.live(g, now)
	if err != nil {
		return err
	}
	if t.grant.Rev >= g.Rev {
		return nil // L12: a late copy
	}
	t.grant.Rev, t.rests = g.Rev, true
	t.entry.extend(t, g.Rest, now)
	s.sweepBy(t.expires)
	return nil
}
