package table

import (
	"maps"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Record is the last run of a key, and the start of the newest spent tick.
type Record struct {
	Key   string
	Run   driver.Run
	Spent time.Time
	Life  time.Duration // how long another table has to keep it at least
}

// newerThan reports whether r is from a later run than o, or from a later state
// of the same run.
func (r *Record) newerThan(o *Record) bool {
	if r.Run.Fence != o.Run.Fence {
		return r.Run.Fence > o.Run.Fence
	}
	return o.Run.Outcome == ""
}

// recorded is a Record with its end, on the table's clock. Two intervals are
// enough: no clock that steps back by less than one makes its tick due again (O1).
// A run of a shorter interval does not shorten the life, because the longer tick is
// still spent. A run in progress is kept for as long as its grant is live.
type recorded struct {
	Record
	expires instant
}

// at returns the Record for another table.
func (r *recorded) at(now instant) *Record {
	known := r.Record
	known.Life = max(r.expires.sub(now), 0)
	return &known
}

// Begin implements BeginRun of [driver.Runner]. The record is nil unless it has
// changed.
func (t *Table) Begin(g *driver.Grant, every time.Duration, spend bool) (driver.Run, *Record, error) {
	return t.shard(g.Key).begin(g, every, spend, t.clock.now())
}

// End implements EndRun of [driver.Runner]. The record is nil unless it has
// changed.
func (t *Table) End(g *driver.Grant, run *driver.Run) (*Record, error) {
	return t.shard(g.Key).end(g, run, t.clock.now())
}

// RestoreRun adds a record of another table, unless a newer one of its key is
// known. It reports whether the table had another one, or none.
func (t *Table) RestoreRun(r *Record) (news bool) {
	return t.shard(r.Key).restoreRun(r, t.clock.now())
}

// Runs returns the records of all keys.
func (t *Table) Runs() []Record {
	var all []Record
	now := t.clock.now()
	for i := range t.shards {
		all = t.shards[i].appendRuns(all, now)
	}
	return all
}

// Run returns the record of key, or nil.
func (t *Table) Run(key string) *Record {
	s := t.shard(key)
	now := t.clock.now()
	s.mu.Lock()
	defer s.unlock()
	r := s.run(key, now)
	if r == nil {
		return nil
	}
	return r.at(now)
}

// wall returns the time of day in whole microseconds.
func (s *shard) wall(now instant) time.Time { return time.UnixMicro(s.clock.timeOfDay(now)) }

func (s *shard) begin(g *driver.Grant, every time.Duration, spend bool, now instant) (driver.Run, *Record, error) {
	s.mu.Lock()
	defer s.unlock()
	t, err := s.live(g, now)
	if err != nil {
		return driver.Run{}, nil, err
	}
	if s.shut {
		return driver.Run{}, nil, ErrShut
	}
	wall := s.wall(now)
	run := driver.Run{Every: every, Fence: g.Fence, Start: wall, By: t.holder}
	run.Tick, run.Left = driver.TickAt(wall, every)
	var spent time.Time
	if r := s.run(g.Key, now); r != nil {
		if r.Run.Fence == g.Fence { // L6: a copy of the request
			again := r.Run
			again.Due, again.Left = true, run.Left
			return again, nil, nil
		}
		if r.Run.Fence > g.Fence || !run.IsDue(r.Spent) {
			return run, nil, nil
		}
		spent = r.Spent
	}
	switch start := run.TickStart(); {
	case spend: // O3
		spent = start
	case spent.After(start): // more than one tick ahead
		spent = time.Time{}
	}
	written := &recorded{Record: Record{Key: g.Key, Run: run, Spent: spent}}
	s.keepRun(written, now)
	run.Due = true
	return run, written.at(now), nil
}

func (s *shard) end(g *driver.Grant, run *driver.Run, now instant) (*Record, error) {
	s.mu.Lock()
	defer s.unlock()
	t, err := s.live(g, now)
	if err != nil {
		return nil, err
	}
	r := s.run(g.Key, now)
	if r == nil && t.grant.Reserves(run.Fence) { // it has expired at an earlier hub, or in a copy of its table
		r = &recorded{Record: Record{Key: g.Key, Run: *run}}
		r.Run.Due, r.Run.Outcome = false, ""
	}
	if r == nil || r.Run.Fence != run.Fence || r.Run.Outcome != "" {
		return nil, nil
	}
	r.Run.Outcome, r.Run.End = run.Outcome, s.wall(now)
	if start := run.TickStart(); start.After(r.Spent) {
		r.Spent = start
	}
	s.keepRun(r, now)
	return r.at(now), nil
}

func (s *shard) restoreRun(r *Record, now instant) (news bool) {
	s.mu.Lock()
	defer s.unlock()
	known := s.run(r.Key, now)
	if known != nil && !r.newerThan(&known.Record) {
		return false
	}
	s.keepRun(&recorded{Record: *r}, now)
	return known == nil || known.Run.Fence != r.Run.Fence || known.Run.Outcome != r.Run.Outcome
}

func (s *shard) appendRuns(all []Record, now instant) []Record {
	s.mu.Lock()
	defer s.unlock()
	for _, r := range s.runs {
		all = append(all, *r.at(now))
	}
	return all
}

// The functions below expect the shard locked.

// live returns the ticket of the live grant g, or an error.
func (s *shard) live(g *driver.Grant, now instant) (*ticket, error) {
	if t := s.find(g.Key, g.Token, now); t != nil && t.state == granted {
		return t, nil
	}
	return nil, s.lost(g.Key, g.Token)
}

// run returns the record of key, or nil.
func (s *shard) run(key string, now instant) *recorded {
	if r := s.runs[key]; r != nil && now < s.keptUntil(r) {
		return r
	}
	return nil
}

// keptUntil returns the end of r, which a live grant can put off.
func (s *shard) keptUntil(r *recorded) instant {
	e := s.entries[r.Key]
	if e == nil || r.Run.Outcome != "" {
		return r.expires
	}
	for _, t := range e.slots {
		if t != nil && t.grant.Reserves(r.Run.Fence) {
			return max(r.expires, t.expires)
		}
	}
	return r.expires
}

// lastRun returns a copy of the last run of key, or nil.
func (s *shard) lastRun(key string, now instant) *driver.Run {
	r := s.run(key, now)
	if r == nil {
		return nil
	}
	run := r.Run
	return &run
}

func (s *shard) keepRun(r *recorded, now instant) {
	if s.runs == nil {
		s.runs = make(map[string]*recorded)
	}
	expires := now.add(max(2*r.Run.Every, r.Life))
	if known := s.runs[r.Key]; known != nil {
		expires = max(expires, known.expires)
	}
	r.expires = expires
	s.runs[r.Key] = r
	s.sweepBy(r.expires)
}

// purgeRuns removes expired records, and returns the next expiry.
func (s *shard) purgeRuns(now instant) (next instant, any bool) {
	maps.DeleteFunc(s.runs, func(_ string, r *recorded) bool { return now >= s.keptUntil(r) })
	for _, r := range s.runs {
		if until := s.keptUntil(r); !any || until < next {
			next, any = until, true
		}
	}
	return next, any
}
