//go:build linux || darwin

package cluster

import (
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
	awaited map[string]struct{} // members who have not told
	until   int64               // what those who are gone have left is good until then
}

// newRecovery looks who lives. Whoever comes later cannot hold anything yet.
func newRecovery(seat *rendezvous.Seat) (*recovery, error) {
	living, until, err := seat.Members(nodeNanos())
	if err != nil {
		return nil, err
	}
	r := &recovery{seat: seat, bounds: seat.Left(), until: until}
	r.news = make(chan struct{}, 1)
	r.awaited = make(map[string]struct{}, len(living))
	for _, name := range living {
		r.awaited[name] = struct{}{}
	}
	return r, nil
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
	for name := range r.awaited {
		lives, until := r.seat.Lives(name, now)
		if !lives {
			delete(r.awaited, name)
			r.until = max(r.until, until)
			continue
		}
		silent = append(silent, name)
	}
	slices.Sort(silent)
	if r.bounds.Expiry == 0 {
		return 0, nil // there is nothing to be held
	}
	expiry := r.bounds.Expiry
	if len(silent) == 0 {
		expiry = min(expiry, r.until)
	}
	return time.Duration(expiry - now), silent
}
