package limit

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// refusals remembers, for each key, the last refusal by the backend. Until the
// time at which the call could be allowed, and for at most maxSilence, equal or
// larger costs under the same limit are refused without a call (W12).
type refusals struct {
	most  int // number of keys; negative for none
	count atomic.Int64
	// epoch grows with each clear. A refusal from before a clear is not added
	// after it.
	epoch atomic.Uint64

	mu    sync.Mutex // guards byKey
	byKey map[string]refusal
}

// maxSilence is how long a refusal is repeated without asking again.
const maxSilence = time.Second

// refusal is the answer of the backend to a cost.
type refusal struct {
	limit  Limit
	cost   int
	result Result
	paused *Pause
	at     instant // before the call was sent
}

// add remembers that c was refused, and the pause of its key then. sent is the time
// before the call, and epoch the epoch then.
func (rs *refusals) add(c *call, r Result, paused *Pause, sent instant, epoch uint64) {
	if rs.most < 0 || r.RetryAfter <= 0 {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.epoch.Load() != epoch {
		return
	}
	if _, known := rs.byKey[c.key]; !known && len(rs.byKey) >= rs.most {
		for key := range rs.byKey { // any one: forgetting a refusal is harmless
			delete(rs.byKey, key)
			break
		}
	}
	if rs.byKey == nil {
		rs.byKey = make(map[string]refusal)
	}
	m := Limit{Rates: slices.Clone(c.limit.Rates), Smooth: c.limit.Smooth, Slack: c.limit.Slack}
	rs.byKey[c.key] = refusal{m, c.cost, r, paused, sent}
	rs.count.Store(int64(len(rs.byKey)))
}

// none reports whether nothing is remembered.
func (rs *refusals) none() bool { return rs.count.Load() == 0 }

// find returns the result of a call that would be refused again, and the pause of its
// key or nil.
func (rs *refusals) find(c *call, now instant) (r Result, paused *Pause, known bool) {
	if rs.none() {
		return Result{}, nil, false
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	f, known := rs.byKey[c.key]
	passed := max(now.sub(f.at), 0) // another call may have added it since the clock was read
	if !known || passed >= min(f.result.RetryAfter, maxSilence) || c.cost < f.cost || !c.limit.equal(&f.limit) {
		return Result{}, nil, false
	}
	r = f.result
	r.RetryAfter -= passed
	r.ResetAfter = max(r.ResetAfter-passed, 0)
	if f.paused != nil && f.paused.Left > passed {
		left := *f.paused
		left.Left -= passed
		paused = &left
	}
	return r, paused, true
}

// clear forgets the refusal of key.
func (rs *refusals) clear(key string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.epoch.Add(1)
	delete(rs.byKey, key)
	rs.count.Store(int64(len(rs.byKey)))
}
