//go:build linux || darwin

package cluster

import (
	"math"
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
	unknown int64            // until then clients may come that nothing here names
}

// homecoming is how long a new lock file keeps the hub shut after an earlier hub
// has gone: its clients, whose files were removed, come and tell what they have.
const homecoming = int64(2 * time.Second)

// newRecovery looks which clients live. A client that comes later cannot hold
// anything yet, unless the lock file is new though there was a hub: again says
// that this process was at one. bounds are those of what the last hub gave.
func newRecovery(seat *rendezvous.Seat, bounds rendezvous.Record, again bool) (*recovery, error) {
	living, until, err := seat.Members(nodeNanos())
	if err != nil {
		return nil, err
	}
	r := &recovery{seat: seat, bounds: bounds, until: until}
	r.news = make(chan struct{}, 1)
	r.awaited = make(map[string]int64, len(living))
	now := nodeNanos() // the last hub gives nothing any more
	if seat.Fresh() && (again || seat.Blind()) {
		r.unknown = now + homecoming
	}
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

const (
	// longestLook is the longest pause between two looks at the clients that are
	// awaited.
	longestLook = 20 * time.Millisecond
	// reunion is how long queued messages, and the queues of locks, wait at most
	// for the clients of an earlier hub: a stopped client does not hold them up.
	reunion = 500 * time.Millisecond
)

// run calls met once every client has told what it has, or a reunion has passed,
// and then clear once no lease can be held that no client told of. Clear gets the
// number of living clients that have not told, though they may have held a
// lease. Run returns after both, or when end is closed.
func (r *recovery) run(end <-chan struct{}, met func(), clear func(silent int)) {
	start := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, longestLook) {
		left, silent, absent := r.look(nodeNanos())
		if met != nil && (absent == 0 || time.Since(start) >= reunion) {
			met()
			met = nil
		}
		if met == nil && left <= 0 {
			clear(silent)
			return
		}
		select {
		case <-r.news:
		case <-time.After(pause):
		case <-end:
			return
		}
	}
}

// look returns for how long there may be something to wait for, of how many, and
// how many have not told at all.
func (r *recovery) look(now int64) (left time.Duration, silent, absent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seat.Contested() {
		r.unknown = now + homecoming
	}
	last := max(r.until, r.unknown)
	for name, good := range r.awaited {
		lives, until := r.seat.Lives(name, now)
		if !lives {
			delete(r.awaited, name)
			r.until = max(r.until, until)
			last = max(last, until)
			continue
		}
		absent++
		if good > 0 { // else it has nothing to lose
			silent++
			last = max(last, good)
		}
	}
	return time.Duration(last - now), silent, absent
}
