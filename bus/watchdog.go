package bus

import (
	"sync"
	"sync/atomic"
	"time"
)

// watchdog looks at every runner, and reports handlers that do not return. It
// looks while anything runs, and costs the runners one store for each message.
type watchdog struct {
	interval time.Duration
	timer    *time.Timer
	armed    atomic.Bool

	mu      sync.Mutex // guards stopped, so that the timer is not set after it was stopped
	stopped bool
}

// sighting is the watchdog's last observation of a runner. Only the watchdog uses
// it.
type sighting struct {
	delivery *delivery
	since    time.Time
	reported time.Duration // age of the handler at the last report
}

// looks is the number of checks within StuckAfter.
const looks = 4

func (w *watchdog) init(b *Bus) {
	w.interval = max(b.config.StuckAfter/looks, time.Millisecond)
	w.timer = time.AfterFunc(time.Hour, func() { b.look() })
	w.timer.Stop()
}

// arm makes the watchdog look in a while. It is called for every runner that
// starts.
func (w *watchdog) arm() {
	if w.armed.Load() || w.armed.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.timer.Reset(w.interval)
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// look runs in the timer's goroutine.
func (b *Bus) look() {
	if !b.group.Begin() {
		return
	}
	defer b.group.Done()
	b.watch.armed.Store(false) // before looking, so that a runner that starts now arms it
	running := false
	now := time.Now()
	for _, s := range b.list() {
		running = s.lookAt(now, b.config.StuckAfter) || running
	}
	if running {
		b.watch.arm()
	}
}

// lookAt looks at the runners of s, and reports whether there are any.
func (s *Sub) lookAt(now time.Time, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runners {
		if d, age := r.look(now); d != nil && age >= limit && age-r.seen.reported >= limit {
			r.seen.reported = age
			s.bus.notify(Stuck{SubID: s.subID(), Subject: d.msg.Subject, For: age})
		}
	}
	return len(s.runners) > 0
}

// look returns what r handles, and for how long at least.
func (r *runner) look(now time.Time) (*delivery, time.Duration) {
	d := r.current.Load()
	if d != r.seen.delivery {
		r.seen = sighting{delivery: d, since: now}
	}
	return d, now.Sub(r.seen.since)
}
