package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/lock"
)

// The history has a point each interval, and keeps the last points.
const (
	interval = 2 * time.Second
	points   = 150 // 5 minutes
)

// history records the counters of all processes, so that a page that is opened
// later shows the last minutes.
type history struct {
	mu     sync.Mutex // guards the fields below
	points []point
	topics map[bus.SubID]float64 // messages per second, of the last interval, by topicOf
	last   sample
}

// point is the program within one interval: rates per second, and the numbers
// at its end.
type point struct {
	at time.Time

	acquired, contended, lost             float64
	holding, waiting                      float64
	median, slow                          time.Duration // quantiles 0.5 and 0.99 of the waits
	published, received, dropped, pending float64
}

// sample is the counters of all processes at one time.
type sample struct {
	at        time.Time
	processes map[source]counters
}

type counters struct {
	locks    lock.Stats
	messages bus.Stats
}

// record adds a point each interval, until the console ends.
func (c *Console) record() {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if s, ok := c.sample(c.ending); ok {
			c.history.add(s)
		}
		select {
		case <-tick.C:
		case <-c.ending.Done():
			return
		}
	}
}

// sample reads the counters of the processes that answer. It reports false if
// the console has ended meanwhile.
func (c *Console) sample(ctx context.Context) (sample, bool) {
	sources, _ := c.sources(ctx) // without workers it is an empty sample
	s := sample{time.Now(), map[source]counters{}}
	locks := callAll[lock.Stats](ctx, c, sources, "/ops/stats", nil)
	messages := callAll[admin.Messages](ctx, c, sources, "/ops/bus", nil)
	for i, process := range sources {
		if locks[i].Err == "" && messages[i].Err == "" {
			s.processes[process] = counters{locks[i].Value, messages[i].Value.Stats}
		}
	}
	return s, ctx.Err() == nil
}

// add adds the point between the last sample and s. A process without an
// earlier sample counts from the next one on.
func (h *history) add(s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last
	h.last = s
	if last.at.IsZero() {
		return
	}
	d := delta{seconds: s.at.Sub(last.at).Seconds(), point: point{at: s.at}, topics: map[bus.SubID]float64{}}
	for process, now := range s.processes {
		if before, known := last.processes[process]; known {
			d.count(before, now)
		}
		d.point.holding += float64(now.locks.Active)
		d.point.waiting += float64(now.locks.Waiting)
		d.point.pending += float64(now.messages.Total.Pending)
	}
	d.point.median, d.point.slow = d.waits.Quantile(0.5), d.waits.Quantile(0.99)
	h.points = append(h.points, d.point)
	h.points = slices.Delete(h.points, 0, max(len(h.points)-points, 0))
	h.topics = d.topics
}

// delta sums the activity of the processes within an interval.
type delta struct {
	seconds float64
	point   point
	waits   lock.Histogram
	topics  map[bus.SubID]float64
}

func (d *delta) count(before, now counters) {
	rate := func(now, before uint64) float64 {
		if now < before || d.seconds <= 0 {
			return 0 // another process with the same id
		}
		return float64(now-before) / d.seconds
	}
	p := &d.point
	p.acquired += rate(now.locks.Acquired, before.locks.Acquired)
	p.contended += rate(now.locks.Contended, before.locks.Contended)
	p.lost += rate(now.locks.Lost, before.locks.Lost)
	for i, n := range now.locks.Wait.Counts {
		if earlier := before.locks.Wait.Counts[i]; n >= earlier {
			d.waits.Counts[i] += n - earlier
		}
	}
	p.published += rate(now.messages.Published, before.messages.Published)
	p.received += rate(now.messages.Total.Received, before.messages.Total.Received)
	p.dropped += rate(now.messages.Total.Dropped+now.messages.Total.Missed, before.messages.Total.Dropped+before.messages.Total.Missed)
	then := receivedBy(before.messages.Subs)
	for key, n := range receivedBy(now.messages.Subs) {
		d.topics[key] += rate(n, then[key])
	}
}

func receivedBy(subs []bus.SubStats) map[bus.SubID]uint64 {
	sums := map[bus.SubID]uint64{}
	for _, s := range subs {
		sums[topicOf(s.SubID)] += s.Received
	}
	return sums
}

// topicOf returns the key of a row of the page of messages: the pattern, the group
// and the kind of a subscription.
func topicOf(s bus.SubID) bus.SubID {
	return bus.SubID{Pattern: s.Pattern, Group: s.Group, Answers: s.Answers}
}

// series returns value of each point, in order.
func (h *history) series(value func(point) float64) []float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]float64, len(h.points))
	for i, p := range h.points {
		all[i] = value(p)
	}
	return all
}

// perSecond returns the rate of the messages of a topic.
func (h *history) perSecond(topic bus.SubID) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[topic]
}
