//go:build linux || darwin

package cluster

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/drivers/cluster/rendezvous"
)

// recovery is what a hub waits for before it grants anything: until all who may
// hold something that an earlier hub gave have said so, or hold it no more.
type recovery struct {
	seat   *rendezvous.Seat
	news   chan struct{} // has one when somebody has told
	bounds rendezvous.Record

	mu      sync.Mutex
	awaited map[string]int64 // members who have not told, and until when what they have is good
	until   int64            // what those who are gone have left is good until then
}

// newRecovery looks who lives. Whoever comes later cannot hold anything yet. bounds
// are those of what the last hub gave.
func newRecovery(seat *rendezvous.Seat, bounds rendezvous.Record) (*recovery, error) {
	living, until, err := seat.Members(nodeNanos())
	if err != nil {
		return nil, err
	}
	r := &recovery{seat: seat, bounds: bounds, until: until}
	r.news = make(chan struct{}, 1)
	r.awaited = make(map[string]int64, len(living))
	now := nodeNanos() // the last hub gives nothing any more
	for _, name := range living {
		r.awaited[name] = min(r.bounds.Expiry, goodUntil(now, seat.Longest(name)))
	}
	return r, nil
}

// goodUntil is until when what was given for ttl at most, at the latest now, is
// good.
func goodUntil(now, ttl int64) int64 {
	switch {
	case ttl == 0:
		return 0
	case ttl > math.MaxInt64-now-apart:
		return rendezvous.Never
	}
	return now + ttl + apart
}

// told notes that a member has said all that it has.
func (r *recovery) told(name string) {
	r.mu.Lock()
	delete(r.awaited, name)
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// longestLook is how seldom a hub looks whether those it waits for still live.
const longestLook = 20 * time.Millisecond

// wait returns when nothing has to be waited for any more, or end is closed. It
// returns the names of those who are alive and have not told, but hold nothing
// that is good any more.
func (r *recovery) wait(end <-chan struct{}) (silent []string) {
	for pause := time.Millisecond; ; pause = min(2*pause, longestLook) {
		left, silent := r.look(nodeNanos())
		if left <= 0 {
			return silent
		}
		select {
		case <-r.news:
		case <-time.After(min(left, pause)):
		case <-end:
			return nil
		}
	}
}

// look returns for how long there may be something to wait for, and for whom.
func (r *recovery) look(now int64) (left time.Duration, silent []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.until
	for name, good := range r.awaited {
		lives, until := r.seat.Lives(name, now)
		if !lives {
			delete(r.awaited, name)
			r.until = max(r.until, until)
			last = max(last, until)
			continue
		}
		if good > 0 { // else it has nothing to say
			silent = append(silent, name)
			last = max(last, good)
		}
	}
	slices.Sort(silent)
	return time.Duration(last - now), silent
}
